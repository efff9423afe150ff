/* Inputs with a label. */
import { useId, type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes, type TextareaHTMLAttributes } from "react";

import styles from "./field.module.css";
import { Icon } from "./icon";

interface Common {
  label: string;
  /** Show the label only to screen readers. */
  isLabelHidden?: boolean;
  hint?: ReactNode;
  error?: string | null;
}

function Frame({ id, label, isLabelHidden, hint, error, children }: Common & { id: string; children: ReactNode }) {
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={isLabelHidden ? "visually-hidden" : styles.label}>
        {label}
      </label>
      {children}
      {hint && !error && (
        <p className={styles.hint} id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p className={styles.error} id={`${id}-error`} role="alert">
          {error}
        </p>
      )}
    </div>
  );
}

function describe(id: string, { hint, error }: Common): { "aria-describedby"?: string; "aria-invalid"?: boolean } {
  if (error) return { "aria-describedby": `${id}-error`, "aria-invalid": true };
  return hint ? { "aria-describedby": `${id}-hint` } : {};
}

export function TextField({
  label,
  isLabelHidden,
  hint,
  error,
  ...rest
}: Common & InputHTMLAttributes<HTMLInputElement>) {
  const id = useId();
  const common = { label, isLabelHidden, hint, error };
  return (
    <Frame id={id} {...common}>
      <input id={id} className={styles.input} {...describe(id, common)} {...rest} />
    </Frame>
  );
}

export function TextArea({
  label,
  isLabelHidden,
  hint,
  error,
  ...rest
}: Common & TextareaHTMLAttributes<HTMLTextAreaElement>) {
  const id = useId();
  const common = { label, isLabelHidden, hint, error };
  return (
    <Frame id={id} {...common}>
      <textarea id={id} className={styles.input} rows={4} {...describe(id, common)} {...rest} />
    </Frame>
  );
}

export function Select({
  label,
  isLabelHidden,
  hint,
  error,
  options,
  ...rest
}: Common & SelectHTMLAttributes<HTMLSelectElement> & { options: readonly { value: string; title: string }[] }) {
  const id = useId();
  const common = { label, isLabelHidden, hint, error };
  return (
    <Frame id={id} {...common}>
      <div className={styles.selectBox}>
        <select id={id} className={styles.select} {...describe(id, common)} {...rest}>
          {options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.title}
            </option>
          ))}
        </select>
        <Icon name="chevronDown" size={16} />
      </div>
    </Frame>
  );
}

export function Toggle({ label, ...rest }: { label: string } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <label className={styles.toggle}>
      <input type="checkbox" role="switch" {...rest} />
      <span>{label}</span>
    </label>
  );
}

/** A box to search in a list. */
export function SearchField({ label, ...rest }: { label: string } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <div className={styles.search}>
      <Icon name="search" size={16} />
      <input type="search" aria-label={label} placeholder={label} className={styles.input} {...rest} />
    </div>
  );
}
