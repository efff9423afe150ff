/* What a page shows while its data is loading, or if that failed. */
import type { ReactNode } from "react";

import type { Loaded } from "../api/use-api";
import { texts } from "../texts";
import { Button } from "./button";
import { EmptyState } from "./empty-state";
import styles from "./load-state.module.css";
import { Spinner } from "./spinner";
import { describeError } from "./toast";

/** Show the data, or that it is loading, or why it could not be loaded, with a button to try again. */
export function LoadState<T>({ loaded, children }: { loaded: Loaded<T>; children: (data: T) => ReactNode }) {
  if (loaded.error) {
    const retry = <Button onClick={loaded.reload}>{texts.common.tryAgain}</Button>;
    return (
      <EmptyState icon="alert" title={texts.errors.title} actions={retry}>
        {describeError(loaded.error)}
      </EmptyState>
    );
  }
  if (loaded.data === null) {
    return (
      <div className={styles.loading}>
        <Spinner label={texts.common.loading} />
      </div>
    );
  }
  return <>{children(loaded.data)}</>;
}
