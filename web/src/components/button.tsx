/* Buttons with text, with an icon, or both. */
import { forwardRef, type ButtonHTMLAttributes } from "react";

import styles from "./button.module.css";
import { Icon, type IconName } from "./icon";
import { Spinner } from "./spinner";
import { Tooltip } from "./tooltip";

export type ButtonStyle = "default" | "primary" | "secondary" | "destructive" | "positive" | "quiet";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: ButtonStyle;
  icon?: IconName;
  isBusy?: boolean;
  isSmall?: boolean;
}

export const Button = forwardRef<HTMLButtonElement, Props>(function Button(
  { look = "default", icon, isBusy = false, isSmall = false, className = "", children, disabled, ...rest },
  ref,
) {
  const classes = [styles.button, styles[look], isSmall ? styles.small : "", className].join(" ");
  return (
    <button ref={ref} type="button" className={classes} disabled={disabled || isBusy} {...rest}>
      {isBusy ? <Spinner size={16} /> : icon && <Icon name={icon} size={isSmall ? 16 : 18} />}
      {children}
    </button>
  );
});

interface IconButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "aria-label"> {
  icon: IconName;
  /** What it does; shown as a tooltip and read aloud. */
  label: string;
  isPressed?: boolean;
  isSmall?: boolean;
}

export const IconButton = forwardRef<HTMLButtonElement, IconButtonProps>(function IconButton(
  { icon, label, isPressed, isSmall = false, className = "", ...rest },
  ref,
) {
  const classes = [styles.iconButton, isSmall ? styles.iconSmall : "", className].join(" ");
  return (
    <Tooltip text={label}>
      <button ref={ref} type="button" className={classes} aria-label={label} aria-pressed={isPressed} {...rest}>
        <Icon name={icon} size={isSmall ? 16 : 20} />
      </button>
    </Tooltip>
  );
});
