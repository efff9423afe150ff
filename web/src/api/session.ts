/* Start: find out how the server wants to know who uses the page. */
import { ApiError, call, setTrustsHeaders } from "./client";
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

/** Return who uses the page; null if the server wants a login first, also to lift the limit of anonymous callers. */
export async function fetchCaller(): Promise<Caller | null> {
  return call("GET /api/auth/me").catch((error: unknown) => {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401 || (error.status === 429 && error.details?.["tier"] === "anonymous")) return null;
    throw error;
  });
}
