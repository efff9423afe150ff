/* Addresses of entities in this interface, and what to show of a record. */
export type Row = Record<string, unknown>;

/** The page of an entity. Keys may have slashes and spaces. */
export function entityPath(table: string, key: string): string {
  return `/memory/${encodeURIComponent(table)}/${encodePath(key)}`;
}

/** The page of whatever has a key, for texts that name only the key. */
export function keyPath(key: string): string {
  return `/memory/key/${encodePath(key)}`;
}

export function graphPath(table: string, key: string): string {
  return `/graph?key=${encodeURIComponent(key)}&table=${encodeURIComponent(table)}`;
}

function encodePath(key: string): string {
  return encodeURIComponent(key).replaceAll("%2F", "/");
}

const TEXT_FIELDS = ["content", "summary", "description"] as const;

/** The name of a field that holds the text of a record. */
export function textField(record: Row): string | null {
  return TEXT_FIELDS.find((name) => typeof record[name] === "string" && record[name]) ?? null;
}

export function textOf(record: Row): string {
  const field = textField(record);
  return field ? String(record[field]) : "";
}

/** What people call a record. The key of a message says nothing to them. */
export function titleOf(table: string, record: Row, key: string): string {
  if (typeof record["name"] === "string" && record["name"]) return record["name"];
  const text = table === "messages" ? textOf(record) : "";
  return text ? shorten(text, 80) : key;
}

export function shorten(text: string, maxChars: number): string {
  const flat = text.replaceAll(/\s+/g, " ").trim();
  return flat.length <= maxChars ? flat : `${flat.slice(0, maxChars - 1).trimEnd()}…`;
}

/** A row that the workspace shares can only be read. */
export function isShared(record: Row): boolean {
  return record["user_id"] === null || record["user_id"] === undefined;
}

/** An address that a person may follow: nothing but the web, so that a stored `javascript:` does nothing. */
export function toSafeUrl(address: unknown): string | null {
  if (typeof address !== "string") return null;
  try {
    const url = new URL(address);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

