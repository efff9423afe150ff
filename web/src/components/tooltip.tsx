import * as Radix from "@radix-ui/react-tooltip";
import type { ReactElement } from "react";

import styles from "./tooltip.module.css";

/** A short explanation that appears beside a control when it is pointed at or focused. */
export function Tooltip({ text, children }: { text: string; children: ReactElement }) {
  return (
    <Radix.Root delayDuration={400}>
      <Radix.Trigger asChild>{children}</Radix.Trigger>
      <Radix.Portal>
        <Radix.Content className={styles.tooltip} sideOffset={6} collisionPadding={8}>
          {text}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

export const TooltipProvider = Radix.Provider;
