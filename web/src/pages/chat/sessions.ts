/* Tell the list of sessions that one of them has changed. */
const CHANGE = "rem:sessions";

export function announceSessions(): void {
  window.dispatchEvent(new Event(CHANGE));
}

export function onSessionsChange(listener: () => void): () => void {
  window.addEventListener(CHANGE, listener);
  return () => window.removeEventListener(CHANGE, listener);
}

const DAY_MS = 24 * 3600 * 1000;

export type Age = "today" | "yesterday" | "week" | "month" | "older";

/** How long ago a time is, in the calendar of the person. */
export function getAge(time: string, now = new Date()): Age {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const days = Math.ceil((midnight - Date.parse(time)) / DAY_MS);
  if (days <= 0) return "today";
  if (days === 1) return "yesterday";
  if (days <= 7) return "week";
  return days <= 30 ? "month" : "older";
}
