/* Times, sizes and names as people read them. */
const DAY_MS = 86_400_000;
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const WEEKDAY = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** `12 May 2026`, in the time zone of the browser. */
export function formatDay(time: string | Date): string {
  return DAY.format(new Date(time));
}

/** `Tuesday, 12 May 2026`. */
export function formatWeekday(time: string | Date): string {
  return WEEKDAY.format(new Date(time));
}

/** `14:05`. */
export function formatTime(time: string | Date): string {
  return TIME.format(new Date(time));
}

/** `12 May 2026, 14:05`. */
export function formatDateTime(time: string | Date): string {
  return `${formatDay(time)}, ${formatTime(time)}`;
}

/** `today`, `yesterday`, `3 days ago`; older times as a date. */
export function formatAge(time: string | Date): string {
  const date = new Date(time);
  const days = Math.round((startOfDay(date).getTime() - startOfDay(new Date()).getTime()) / DAY_MS);
  return Math.abs(days) < 7 ? RELATIVE.format(days, "day") : formatDay(date);
}

export function startOfDay(time: Date): Date {
  return new Date(time.getFullYear(), time.getMonth(), time.getDate());
}

/** The Monday of the week. */
export function startOfWeek(time: Date): Date {
  return addDays(startOfDay(time), -((time.getDay() + 6) % 7));
}

export function addDays(time: Date, days: number): Date {
  return new Date(time.getFullYear(), time.getMonth(), time.getDate() + days);
}

/** `2026-05-12`, as the browser's clock says. */
export function toDayKey(time: Date): string {
  const pad = (value: number) => String(value).padStart(2, "0");
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
}

export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function formatNumber(value: number): string {
  return value.toLocaleString("en");
}

/** `works_at` and `near_duplicates` in words. */
export function toWords(name: string): string {
  return name.replaceAll(/[_-]+/g, " ").trim();
}
