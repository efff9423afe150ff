/* Load something from the server when a component appears, and again when its inputs change. */
import { useCallback, useEffect, useRef, useState } from "react";

import { ApiError } from "./client";

export interface Loaded<T> {
  /** The last answer; it stays while a newer one is loading. */
  data: T | null;
  error: ApiError | null;
  isLoading: boolean;
  reload: () => void;
  /** Replace the data after a change that the page made itself. */
  setData: (change: (data: T | null) => T | null) => void;
}

/** Call `load` now and whenever one of `inputs` changes. An older request that is still running is cancelled. */
export function useApi<T>(load: (signal: AbortSignal) => Promise<T>, inputs: readonly unknown[]): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; error: ApiError | null; isLoading: boolean }>({
    data: null,
    error: null,
    isLoading: true,
  });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const controller = new AbortController();
    setState((old) => ({ ...old, isLoading: true }));
    latest.current(controller.signal).then(
      (data) => !controller.signal.aborted && setState({ data, error: null, isLoading: false }),
      (error: unknown) => {
        if (controller.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        setState((old) => ({ ...old, error, isLoading: false }));
      },
    );
    return () => controller.abort();
    // eslint-style exhaustiveness does not apply: `inputs` are the dependencies of `load`.
  }, [...inputs, round]);
  const reload = useCallback(() => setRound((value) => value + 1), []);
  const setData = useCallback(
    (change: (data: T | null) => T | null) => setState((old) => ({ ...old, data: change(old.data) })),
    [],
  );
  return { ...state, reload, setData };
}
