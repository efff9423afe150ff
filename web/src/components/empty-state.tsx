import type { ReactNode } from "react";

import styles from "./empty-state.module.css";
import { Icon, type IconName } from "./icon";

interface Props {
  icon: IconName;
  title: string;
  /** What belongs here, and how it gets here. */
  children?: ReactNode;
  actions?: ReactNode;
}

export function EmptyState({ icon, title, children, actions }: Props) {
  return (
    <div className={styles.empty}>
      <span className={styles.badge}>
        <Icon name={icon} size={26} />
      </span>
      <h2>{title}</h2>
      {children && <div className={styles.text}>{children}</div>}
      {actions && <div className={styles.actions}>{actions}</div>}
    </div>
  );
}
