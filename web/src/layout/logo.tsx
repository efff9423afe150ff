import styles from "./layout.module.css";

/** The mark of the product: a moon and two thoughts. */
export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg className={styles.logo} width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M20.8 19.6A8 8 0 0 1 11 9.600a7.600 7.600 0 1 0 9.800 10Z" />
      <circle cx="21.500" cy="10.500" r="2" />
      <circle cx="17" cy="14.500" r="1.200" />
    </svg>
  );
}
