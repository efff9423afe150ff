/* A box with a heading, for the parts of a page. */
import type { ReactNode } from "react";

import styles from "./panel.module.css";

interface Props {
  title: string;
  /** A number beside the title. */
  count?: number;
  description?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

export function Panel({ title, count, description, actions, children }: Props) {
  return (
    <section className={styles.panel} aria-label={title}>
      <header className={styles.header}>
        <div className={styles.heading}>
          <h2>
            {title}
            {count !== undefined && <span className={styles.count}>{count.toLocaleString("en")}</span>}
          </h2>
          {description && <p className={styles.description}>{description}</p>}
        </div>
        {actions && <div className={styles.actions}>{actions}</div>}
      </header>
      {children}
    </section>
  );
}
