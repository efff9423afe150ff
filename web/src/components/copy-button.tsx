import { useEffect, useState } from "react";

import { texts } from "../texts";
import { IconButton } from "./button";
import { showToast } from "./toast";

/** Copies a text. The icon says for a moment that it did. */
export function CopyButton({ text, label = texts.common.copy }: { text: string; label?: string }) {
  const [isDone, setIsDone] = useState(false);
  useEffect(() => {
    if (!isDone) return;
    const timer = setTimeout(() => setIsDone(false), 2000);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setIsDone(true);
    } catch {
      showToast(texts.errors.copy, { tone: "error" });
    }
  };
  return (
    <IconButton
      icon={isDone ? "check" : "copy"}
      label={isDone ? texts.common.copied : label}
      isSmall
      onClick={() => void copy()}
    />
  );
}
