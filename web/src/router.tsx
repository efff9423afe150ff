/* The address of the page: read it, change it, link to it. */
import { useSyncExternalStore, type ComponentProps, type MouseEvent } from "react";

const CHANGE = "rem:address";

function subscribe(listener: () => void): () => void {
  window.addEventListener("popstate", listener);
  window.addEventListener(CHANGE, listener);
  return () => {
    window.removeEventListener("popstate", listener);
    window.removeEventListener(CHANGE, listener);
  };
}

/** Go to another page of the interface, such as `/chat/abc` or `/memory?q=sarah`. */
export function navigate(to: string, options: { replace?: boolean } = {}): void {
  if (to === location.pathname + location.search) return;
  history[options.replace ? "replaceState" : "pushState"](null, "", to);
  window.dispatchEvent(new Event(CHANGE));
}

/** The path without a slash at its end, such as `/chat/abc`. */
export function usePath(): string {
  return useSyncExternalStore(subscribe, () => location.pathname.replace(/(.)\/+$/, "$1"));
}

/** The parameters after `?`, and a function that changes some of them. An empty value removes one. */
export function useQuery(): [URLSearchParams, (changes: Record<string, string | null>, replace?: boolean) => void] {
  const search = useSyncExternalStore(subscribe, () => location.search);
  const change = (changes: Record<string, string | null>, replace = false) => {
    const next = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    const text = next.toString();
    navigate(location.pathname + (text ? `?${text}` : ""), { replace });
  };
  return [new URLSearchParams(search), change];
}

/** The parts of a path that a pattern such as `/memory/:table/:key` names; null if it does not fit. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const names = pattern.split("/");
  const parts = path.split("/");
  if (parts.length !== names.length) return null;
  const found: Record<string, string> = {};
  for (const [index, name] of names.entries()) {
    const part = parts[index] ?? "";
    if (name.startsWith(":")) {
      try {
        found[name.slice(1)] = decodeURIComponent(part);
      } catch {
        return null;
      }
    } else if (name !== part) return null;
  }
  return found;
}

/** A link to another page of the interface. It opens without a new load; Ctrl, Shift and the middle button work. */
export function Link({ href, onClick, ...rest }: ComponentProps<"a"> & { href: string }) {
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (event.defaultPrevented || !isPlain || rest.target) return;
    event.preventDefault();
    navigate(href);
  };
  return <a href={href} onClick={follow} {...rest} />;
}
