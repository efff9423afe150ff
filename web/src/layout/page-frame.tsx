/* The frame of a page: its title, its actions, and its content, which scrolls. */
import { useEffect, type ReactNode } from "react";

import { texts } from "../texts";
import styles from "./page-frame.module.css";

interface Props {
  title: string;
  /** Buttons beside the title. */
  actions?: ReactNode;
  /** One sentence under the title. */
  description?: ReactNode;
  children: ReactNode;
}

export function PageFrame({ title, actions, description, children }: Props) {
  useTitle(title);
  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <div className={styles.heading}>
          <h1>{title}</h1>
          {description && <p className={styles.description}>{description}</p>}
        </div>
        {actions && <div className={styles.actions}>{actions}</div>}
      </header>
      <div className={styles.content}>{children}</div>
    </div>
  );
}

/** Set the title of the browser's tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === texts.product ? title : `${title} · ${texts.product}`;
  }, [title]);
}
