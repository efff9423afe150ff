/* Short messages at the edge of the page: errors, and what was done with a way to undo it. */
import { useEffect, useSyncExternalStore } from "react";

import { ApiError, OFFLINE } from "../api/client";
import { texts } from "../texts";
import { IconButton } from "./button";
import { Icon } from "./icon";
import styles from "./toast.module.css";

interface Toast {
  id: number;
  tone: "error" | "info";
  text: string;
  action?: { label: string; run: () => void };
}

const LIFETIME_MS = 8000;
let toasts: readonly Toast[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function update(next: readonly Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

function dismiss(id: number): void {
  update(toasts.filter((toast) => toast.id !== id));
}

export function showToast(text: string, options: Partial<Pick<Toast, "tone" | "action">> = {}): void {
  lastId += 1;
  const others = toasts.filter((toast) => toast.text !== text);
  update([...others.slice(-3), { id: lastId, tone: "info", text, ...options }]);
}

/** Say what went wrong, in words. */
export function describeError(error: unknown): string {
  if (!(error instanceof ApiError)) return texts.errors.unknown;
  if (error.code === OFFLINE) return texts.errors.offline;
  if (error.retryAfter !== null) return texts.errors.rateLimited(error.message, error.retryAfter);
  return error.message || texts.errors.unknown;
}

/** Show an error. A request that the page itself cancelled is none. */
export function showError(error: unknown, action?: Toast["action"]): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  showToast(describeError(error), { tone: "error", action });
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
  return (
    <div className={styles.region} role="region" aria-label={texts.common.notifications}>
      {shown.map((toast) => (
        <ToastBox key={toast.id} toast={toast} />
      ))}
    </div>
  );
}

function ToastBox({ toast }: { toast: Toast }) {
  useEffect(() => {
    if (toast.tone === "error") return;
    const timer = setTimeout(() => dismiss(toast.id), LIFETIME_MS);
    return () => clearTimeout(timer);
  }, [toast]);
  return (
    <div className={`${styles.toast} ${styles[toast.tone]}`} role={toast.tone === "error" ? "alert" : "status"}>
      <Icon name={toast.tone === "error" ? "alert" : "info"} size={18} />
      <p className={styles.text}>{toast.text}</p>
      {toast.action && (
        <button
          type="button"
          className={styles.action}
          onClick={() => {
            dismiss(toast.id);
            toast.action?.run();
          }}
        >
          {toast.action.label}
        </button>
      )}
      <IconButton icon="close" label={texts.common.dismiss} isSmall onClick={() => dismiss(toast.id)} />
    </div>
  );
}
