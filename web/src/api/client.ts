/* Requests to the server, with the types of its OpenAPI document. */
import { getIdentity } from "./identity";
import type { Operations } from "./types";

/** An error that the server explained, or that kept the request from reaching it (`code: "offline"`). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> | null = null,
    /** Seconds to wait before the next request, if the server refused this one because of a limit. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

export const OFFLINE = "offline";
/** Sent to the window when the server wants a login. */
export const SIGN_IN_NEEDED = "rem:sign-in";

type Operation = keyof Operations;
type Part<O extends Operation, P extends string> = P extends keyof Operations[O] ? Operations[O][P] : undefined;
type Answer<O extends Operation> = Operations[O]["answer"];
type PartOption<O extends Operation, P extends string, N extends string = P> = P extends keyof Operations[O]
  ? Operations[O] extends Record<P, unknown>
    ? Partial<Part<O, P>> extends Part<O, P>
      ? { [K in N]?: Part<O, P> }
      : { [K in N]: Part<O, P> }
    : { [K in N]?: Part<O, P> }
  : object;
type Options<O extends Operation> = PartOption<O, "path"> &
  PartOption<O, "query"> &
  PartOption<O, "body"> & { signal?: AbortSignal; headers?: Record<string, string> };

let trustsHeaders = true;

/** Say whether the server trusts the headers that name the user and the workspace. */
export function setTrustsHeaders(value: boolean): void {
  trustsHeaders = value;
}

export function getTrustsHeaders(): boolean {
  return trustsHeaders;
}

/** The headers that say who calls. */
export function identityHeaders(): Record<string, string> {
  const { user, tenant, credential } = getIdentity();
  if (trustsHeaders) return { "X-User-Id": user, "X-Tenant-Id": tenant, "X-Client-Id": "web" };
  const client = { "X-Client-Id": "web" };
  return credential ? { ...client, Authorization: `Bearer ${credential}` } : client;
}

/** Call an operation, such as `call("GET /api/v1/sessions", { query: { limit: 20 } })`. Throws ApiError. */
export async function call<O extends Operation>(
  operation: O,
  ...[options]: object extends Options<O> ? [Options<O>?] : [Options<O>]
): Promise<Answer<O>> {
  const response = await send(operation, options as AnyOptions);
  if (response.status === 204) return undefined as Answer<O>;
  const isJson = response.headers.get("content-type")?.includes("json");
  return (await (isJson ? response.json() : response.text())) as Answer<O>;
}

interface AnyOptions {
  path?: Record<string, string | number>;
  query?: Record<string, unknown>;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** Send a request and return the response, whose status is 2xx. For streams and files; else use `call`. */
export async function send(operation: string, options: AnyOptions = {}): Promise<Response> {
  const [method = "GET", template = ""] = operation.split(" ", 2);
  const path = template.replace(/\{(\w+)\}/g, (_, name: string) =>
    // A key may have slashes, which are part of the path.
    encodeURIComponent(String(options.path?.[name] ?? "")).replaceAll("%2F", "/"),
  );
  const isForm = options.body instanceof FormData;
  const init: RequestInit = { method, headers: { ...identityHeaders(), ...options.headers }, signal: options.signal };
  if (options.body !== undefined) {
    init.body = isForm ? (options.body as FormData) : JSON.stringify(options.body);
    if (!isForm) init.headers = { "Content-Type": "application/json", ...init.headers };
  }
  let response: Response;
  try {
    response = await fetch(path + toQuery(options.query), init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, OFFLINE, "");
  }
  if (!response.ok) throw await readError(response);
  return response;
}

function toQuery(query: Record<string, unknown> | undefined): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (Array.isArray(value)) for (const item of value) search.append(name, String(item));
    else if (value !== undefined && value !== null) search.set(name, String(value));
  }
  const text = search.toString();
  return text && `?${text}`;
}

async function readError(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => null)) as {
    error?: { message?: string; code?: string; details?: Record<string, unknown> | null };
  } | null;
  const error = body?.error;
  const wait = Number(response.headers.get("retry-after") ?? error?.details?.["retry_after"]);
  if (response.status === 401) window.dispatchEvent(new Event(SIGN_IN_NEEDED));
  return new ApiError(
    response.status,
    error?.code ?? "unknown",
    error?.message ?? response.statusText,
    error?.details ?? null,
    response.status === 429 && wait > 0 ? wait : null,
  );
}
