/* A menu that a button opens. */
import * as Radix from "@radix-ui/react-dropdown-menu";
import type { ReactElement, ReactNode } from "react";

import { Icon, type IconName } from "./icon";
import styles from "./menu.module.css";

interface MenuProps {
  trigger: ReactElement;
  align?: "start" | "center" | "end";
  side?: "top" | "bottom" | "left" | "right";
  children: ReactNode;
}

export function Menu({ trigger, align = "end", side = "bottom", children }: MenuProps) {
  return (
    <Radix.Root modal={false}>
      <Radix.Trigger asChild>{trigger}</Radix.Trigger>
      <Radix.Portal>
        <Radix.Content className={styles.menu} align={align} side={side} sideOffset={6} collisionPadding={8}>
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

interface ItemProps {
  icon?: IconName;
  isDestructive?: boolean;
  isDisabled?: boolean;
  onSelect: () => void;
  children: ReactNode;
}

export function MenuItem({ icon, isDestructive = false, isDisabled = false, onSelect, children }: ItemProps) {
  const classes = `${styles.item} ${isDestructive ? styles.destructive : ""}`;
  return (
    <Radix.Item className={classes} disabled={isDisabled} onSelect={onSelect}>
      {icon && <Icon name={icon} size={18} />}
      <span>{children}</span>
    </Radix.Item>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; title: string; note?: string; icon?: IconName }[];
  onChange: (value: T) => void;
}

/** A group of which one is chosen. */
export function MenuChoice<T extends string>({ label, value, options, onChange }: ChoiceProps<T>) {
  return (
    <Radix.RadioGroup value={value} onValueChange={(chosen) => onChange(chosen as T)}>
      <Radix.Label className={styles.label}>{label}</Radix.Label>
      {options.map((option) => (
        <Radix.RadioItem key={option.value} value={option.value} className={styles.item}>
          {option.icon && <Icon name={option.icon} size={18} />}
          <span className={styles.choice}>
            <span>{option.title}</span>
            {option.note && <span className={styles.note}>{option.note}</span>}
          </span>
          <Radix.ItemIndicator className={styles.check}>
            <Icon name="check" size={16} />
          </Radix.ItemIndicator>
        </Radix.RadioItem>
      ))}
    </Radix.RadioGroup>
  );
}

export function MenuLine() {
  return <Radix.Separator className={styles.line} />;
}

export function MenuLabel({ children }: { children: ReactNode }) {
  return <Radix.Label className={styles.label}>{children}</Radix.Label>;
}
