/* Light, dark, or as the system says. */
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "rem.theme";
const listeners = new Set<() => void>();

export function getTheme(): Theme {
  const stored = localStorage.getItem(KEY);
  return stored === "light" || stored === "dark" ? stored : "system";
}

export function applyTheme(): void {
  const theme = getTheme();
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

export function setTheme(theme: Theme): void {
  localStorage.setItem(KEY, theme);
  applyTheme();
  for (const listener of listeners) listener();
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, getTheme);
}

/** Return true if the page is dark now. For canvases, which style sheets do not reach. */
export function useIsDark(): boolean {
  const theme = useTheme();
  const isSystemDark = useSyncExternalStore(
    (listener) => {
      const media = matchMedia("(prefers-color-scheme: dark)");
      media.addEventListener("change", listener);
      return () => media.removeEventListener("change", listener);
    },
    () => matchMedia("(prefers-color-scheme: dark)").matches,
  );
  return theme === "dark" || (theme === "system" && isSystemDark);
}
