/* A row of choices of which one holds, such as Day and Week. */
import styles from "./segments.module.css";

interface Props<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; title: string }[];
  onChange: (value: T) => void;
}

export function Segments<T extends string>({ label, value, options, onChange }: Props<T>) {
  return (
    <div className={styles.segments} role="group" aria-label={label}>
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          className={styles.segment}
          aria-pressed={option.value === value}
          onClick={() => onChange(option.value)}
        >
          {option.title}
        </button>
      ))}
    </div>
  );
}
