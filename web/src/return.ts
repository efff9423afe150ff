/* Notice when the person comes back to the tab: much may have happened meanwhile. */
import { useEffect, useRef } from "react";

/** Focus and visibility change together. */
const MIN_PAUSE_MS = 1000;

/** Call something when the person comes back to the tab. */
export function useReturn(onReturn: () => void): void {
  const latest = useRef(onReturn);
  latest.current = onReturn;
  useEffect(() => {
    let last = 0;
    const look = () => {
      if (document.visibilityState !== "visible" || Date.now() - last < MIN_PAUSE_MS) return;
      last = Date.now();
      latest.current();
    };
    document.addEventListener("visibilitychange", look);
    window.addEventListener("focus", look);
    return () => {
      document.removeEventListener("visibilitychange", look);
      window.removeEventListener("focus", look);
    };
  }, []);
}
