import styles from "./spinner.module.css";

/** A turning ring. With a label it is read aloud; without one it is decoration. */
export function Spinner({ size = 20, label }: { size?: number; label?: string }) {
  return (
    <span className={styles.box} role={label ? "status" : undefined}>
      <svg className={styles.spinner} width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
        <circle cx="12" cy="12" r="9" />
      </svg>
      {label && <span className={styles.label}>{label}</span>}
    </span>
  );
}
