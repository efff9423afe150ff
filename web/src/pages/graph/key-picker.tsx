/* Choose the key in the middle of the graph, by its beginning. */
import { useEffect, useId, useState, type KeyboardEvent } from "react";

import { call } from "../../api/client";
import type { KnownKey } from "../../api/types";
import { Icon } from "../../components/icon";
import { navigate } from "../../router";
import { texts } from "../../texts";
import styles from "./graph-page.module.css";

export function KeyPicker({ keyName, onPick }: { keyName: string; onPick: (key: KnownKey) => void }) {
  const id = useId();
  const [text, setText] = useState(keyName);
  const [keys, setKeys] = useState<readonly KnownKey[]>([]);
  const [isOpen, setIsOpen] = useState(false);
  const [active, setActive] = useState(-1);
  useEffect(() => setText(keyName), [keyName]);
  useEffect(() => {
    if (!isOpen || !text.trim()) return undefined;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      call("GET /api/v1/query/keys", { query: { prefix: text.trim(), limit: 10 }, signal: controller.signal }).then(
        (page) => setKeys(page.data),
        // Without suggestions, the key can be typed in full.
        () => controller.signal.aborted || setKeys([]),
      );
    }, 120);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text, isOpen]);
  const shown = isOpen && text.trim() ? keys : [];
  const pick = (key: KnownKey) => {
    setIsOpen(false);
    setActive(-1);
    onPick(key);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step && shown.length) {
      event.preventDefault();
      setActive((active + step + shown.length) % shown.length);
    } else if (event.key === "Escape") setIsOpen(false);
    else if (event.key === "Enter") {
      event.preventDefault();
      const key = shown[active] ?? shown.find((known) => known.key === text.trim()) ?? shown[0];
      if (key) pick(key);
      else if (text.trim()) navigate(`/graph?key=${encodeURIComponent(text.trim())}`);
    }
  };
  return (
    <div className={styles.picker}>
      <Icon name="search" size={18} />
      <input
        type="text"
        role="combobox"
        aria-label={texts.graph.pick}
        placeholder={texts.graph.pick}
        aria-autocomplete="list"
        aria-expanded={shown.length > 0}
        aria-controls={`${id}-list`}
        aria-activedescendant={shown.length && active >= 0 ? `${id}-${active}` : undefined}
        autoComplete="off"
        maxLength={1000}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setIsOpen(true);
          setActive(-1);
        }}
        onBlur={() => setIsOpen(false)}
        onKeyDown={onKeyDown}
      />
      <ul id={`${id}-list`} role="listbox" aria-label={texts.memory.suggestions} className={styles.keys} hidden={!shown.length}>
        {shown.map((key, index) => (
          <li
            key={`${key.table}/${key.key}`}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === active}
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => pick(key)}
          >
            <span>{key.key}</span>
            <span>{key.table}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
