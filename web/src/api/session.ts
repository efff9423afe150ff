/* Start: find out how the server wants to know who uses the page. */
import { call, setTrustsHeaders } from "./client";
import { loadIdentity } from "./identity";
import type { Caller, ProviderList } from "./types";

export interface Start {
  logins: ProviderList;
  /** Who uses the page; null if the server wants a login first. */
  caller: Caller | null;
}

export async function start(): Promise<Start> {
  const logins = await call("GET /api/auth/providers");
  setTrustsHeaders(!logins.is_required);
  loadIdentity(logins.default_user);
  return { logins, caller: await fetchCaller() };
}

export async function fetchCaller(): Promise<Caller | null> {
  return call("GET /api/auth/me").catch(() => null);
}
