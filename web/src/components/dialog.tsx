/* Dialogs: a box in the middle, or a drawer at a side. */
import * as Radix from "@radix-ui/react-dialog";
import { useRef, useState, type ReactNode } from "react";

import { texts } from "../texts";
import { Button, IconButton } from "./button";
import styles from "./dialog.module.css";

interface Props {
  isOpen: boolean;
  onClose: () => void;
  title: string;
  /** One sentence under the title. */
  description?: ReactNode;
  /** The buttons at the bottom. */
  footer?: ReactNode;
  side?: "left" | "right";
  isWide?: boolean;
  children?: ReactNode;
}

export function Dialog({ isOpen, onClose, title, description, footer, side, isWide = false, children }: Props) {
  const box = side ? `${styles.drawer} ${styles[side]}` : `${styles.dialog} ${isWide ? styles.wide : ""}`;
  // Radix gives the focus back only to a trigger of its own.
  const opener = useRef<Element | null>(null);
  const begin = (event: Event) => {
    opener.current = document.activeElement;
    focusFirst(event);
  };
  const end = (event: Event) => {
    event.preventDefault();
    if (opener.current instanceof HTMLElement) opener.current.focus();
  };
  return (
    <Radix.Root open={isOpen} onOpenChange={(open) => !open && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className={styles.overlay} />
        <Radix.Content className={box} onOpenAutoFocus={begin} onCloseAutoFocus={end} {...(description ? {} : { "aria-describedby": undefined })}>
          <header className={styles.header}>
            <Radix.Title className={styles.title}>{title}</Radix.Title>
            <Radix.Close asChild>
              <IconButton icon="close" label={texts.common.close} isSmall />
            </Radix.Close>
          </header>
          {description && <Radix.Description className={styles.description}>{description}</Radix.Description>}
          <div className={styles.body}>{children}</div>
          {footer && <footer className={styles.footer}>{footer}</footer>}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

/** Begin at the first field. The button that closes the dialog has a tooltip, which would take the first Escape. */
function focusFirst(event: Event): void {
  const box = event.currentTarget;
  if (!(box instanceof HTMLElement)) return;
  event.preventDefault();
  (box.querySelector<HTMLElement>("input:not([type=checkbox]), textarea, select") ?? box).focus();
}

interface ConfirmProps {
  isOpen: boolean;
  onClose: () => void;
  title: string;
  description?: ReactNode;
  confirm: string;
  isDestructive?: boolean;
  /** What happens on consent. The dialog stays open until it is done. */
  onConfirm: () => Promise<void> | void;
  children?: ReactNode;
}

/** A question that must be answered before something happens that matters. */
export function ConfirmDialog({ confirm, isDestructive = true, onConfirm, onClose, ...rest }: ConfirmProps) {
  const [isBusy, setIsBusy] = useState(false);
  const run = async () => {
    setIsBusy(true);
    try {
      await onConfirm();
      onClose();
    } finally {
      setIsBusy(false);
    }
  };
  const footer = (
    <>
      <Button onClick={onClose}>{texts.common.cancel}</Button>
      <Button look={isDestructive ? "destructive" : "primary"} isBusy={isBusy} onClick={() => void run()}>
        {confirm}
      </Button>
    </>
  );
  return <Dialog {...rest} onClose={onClose} footer={footer} />;
}
