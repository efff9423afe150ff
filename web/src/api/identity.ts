/* Who uses this page: a name that the server trusts (without authentication), or a credential. */
import { useSyncExternalStore } from "react";

export interface Identity {
  /** The user and the workspace, for a server that trusts the headers. */
  user: string;
  tenant: string;
  /** An API key or a development token; it is forgotten when the tab is closed. */
  credential: string | null;
}

const NAMES_KEY = "rem.identity";
const CREDENTIAL_KEY = "rem.credential";
export const LOCAL_USER = "me@localhost";
/** The tenant of the sample workspace that `make run` loads. */
export const SAMPLE_TENANT = "demo";
export const DEFAULT_TENANT = "default";

let current: Identity = { user: LOCAL_USER, tenant: DEFAULT_TENANT, credential: null };
const listeners = new Set<() => void>();

function readStored(): Partial<Identity> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(NAMES_KEY) ?? "{}");
    return stored && typeof stored === "object" ? (stored as Partial<Identity>) : {};
  } catch {
    return {};
  }
}

/** Load the stored identity. `defaultUser` is the user that the server names for clients without one. */
export function loadIdentity(defaultUser: string | null): void {
  const stored = readStored();
  current = {
    user: stored.user || defaultUser || LOCAL_USER,
    tenant: stored.tenant || DEFAULT_TENANT,
    credential: sessionStorage.getItem(CREDENTIAL_KEY),
  };
}

export function getIdentity(): Identity {
  return current;
}

export function setIdentity(change: Partial<Identity>): void {
  current = { ...current, ...change };
  // A user that the person did not choose is not kept: the default may change.
  const { user, tenant } = { ...readStored(), ...change };
  localStorage.setItem(NAMES_KEY, JSON.stringify({ user, tenant }));
  if (current.credential) sessionStorage.setItem(CREDENTIAL_KEY, current.credential);
  else sessionStorage.removeItem(CREDENTIAL_KEY);
  for (const listener of listeners) listener();
}

export function useIdentity(): Identity {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
