/* The search box: plain words, or a query with colours and completion. */
import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent } from "react";

import { call } from "../../api/client";
import type { KnownKey, QueryLanguage } from "../../api/types";
import { Button } from "../../components/button";
import { Icon } from "../../components/icon";
import { texts } from "../../texts";
import styles from "./query-box.module.css";
import { complete, isQuery, quoteKey, tokenize } from "./query-language";

interface Props {
  value: string;
  language: QueryLanguage;
  isBusy: boolean;
  onChange: (text: string) => void;
  onSubmit: (text: string) => void;
  /** A suggested entity was chosen while plain words were typed. */
  onOpen: (key: KnownKey) => void;
}

interface Option {
  title: string;
  note?: string;
  choose: () => void;
}

const KEYS_SHOWN = 8;

export function QueryBox({ value, language, isBusy, onChange, onSubmit, onOpen }: Props) {
  const id = useId();
  const input = useRef<HTMLTextAreaElement>(null);
  const [caret, setCaret] = useState(value.length);
  const [isOpen, setIsOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const verbs = useMemo(() => language.verbs.map((verb) => verb.name), [language]);
  const query = isQuery(value, verbs);
  const options = useOptions({ value, caret, isOpen, query, language, replace, onOpen });
  useEffect(() => setActive(-1), [value]);

  function replace(start: number, end: number, text: string) {
    const isAtEnd = end === value.length;
    const next = value.slice(0, start) + text + (isAtEnd ? " " : "") + value.slice(end);
    onChange(next);
    const position = start + text.length + (isAtEnd ? 1 : 0);
    setCaret(position);
    // The value is set by React first.
    requestAnimationFrame(() => input.current?.setSelectionRange(position, position));
  }

  const choose = (index: number) => {
    const option = options[index];
    if (!option) return;
    option.choose();
    setActive(-1);
    input.current?.focus();
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const isList = isOpen && options.length > 0;
    if (event.key === "ArrowDown" && isList) {
      event.preventDefault();
      setActive((active + 1) % options.length);
    } else if (event.key === "ArrowUp" && isList) {
      event.preventDefault();
      setActive(active <= 0 ? options.length - 1 : active - 1);
    } else if (event.key === "Escape" && isList) {
      event.preventDefault();
      setIsOpen(false);
    } else if ((event.key === "Enter" || event.key === "Tab") && isList && active >= 0) {
      event.preventDefault();
      choose(active);
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      setIsOpen(false);
      onSubmit(value);
    }
  };

  const isListShown = isOpen && options.length > 0;
  return (
    <form
      role="search"
      className={styles.box}
      onSubmit={(event) => {
        event.preventDefault();
        setIsOpen(false);
        onSubmit(value);
      }}
    >
      <span className={styles.icon}>
        <Icon name="search" size={20} />
      </span>
      <div className={`${styles.editor} ${query ? styles.code : ""}`}>
        <div className={styles.mirror} aria-hidden="true">
          {query ? tokenize(value, language).map((token) => <span key={token.start} className={styles[token.kind]}>{token.text}</span>) : value}
          {"\u200b"}
        </div>
        <textarea
          ref={input}
          className={styles.input}
          rows={1}
          value={value}
          maxLength={20_000}
          spellCheck={!query}
          autoCapitalize="none"
          autoComplete="off"
          placeholder={texts.memory.searchPlaceholder}
          aria-label={texts.memory.search}
          role="combobox"
          aria-autocomplete="list"
          aria-expanded={isListShown}
          aria-controls={`${id}-list`}
          aria-activedescendant={isListShown && active >= 0 ? `${id}-${active}` : undefined}
          onChange={(event) => {
            onChange(event.target.value);
            setCaret(event.target.selectionStart);
            setIsOpen(true);
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart)}
          onBlur={() => setIsOpen(false)}
          onKeyDown={onKeyDown}
        />
      </div>
      <span className={styles.side}>
        {value.trim() && <span className={styles.kind}>{query ? texts.memory.isQuery : texts.memory.isPlain}</span>}
        <Button look="primary" type="submit" isBusy={isBusy} disabled={!value.trim()}>
          {texts.memory.searchButton}
        </Button>
      </span>
      <ul id={`${id}-list`} role="listbox" aria-label={texts.memory.suggestions} className={styles.list} hidden={!isListShown}>
        {options.map((option, index) => (
          <li
            key={option.title + (option.note ?? "")}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === active}
            className={styles.option}
            // The box keeps the focus.
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => choose(index)}
          >
            <span className={styles.optionTitle}>{option.title}</span>
            {option.note && <span className={styles.optionNote}>{option.note}</span>}
          </li>
        ))}
      </ul>
    </form>
  );
}

interface OptionsInput {
  value: string;
  caret: number;
  isOpen: boolean;
  query: boolean;
  language: QueryLanguage;
  replace: (start: number, end: number, text: string) => void;
  onOpen: (key: KnownKey) => void;
}

/** What may come next: words of the language at once, keys when the server has answered. */
function useOptions({ value, caret, isOpen, query, language, replace, onOpen }: OptionsInput): Option[] {
  const completion = isOpen ? complete(value, caret, language) : null;
  const isFirstWord = !/\s/.test(value.trim());
  const offersVerb = !query && isFirstWord && /^[A-Z]/.test(value);
  const plain = value.trim();
  const prefix = !isOpen ? null : query ? (completion?.keyPrefix ?? null) : plain.length > 1 && plain.length < 60 ? plain : null;
  const keys = useKeys(prefix);
  if (!isOpen) return [];
  const open: Option[] = query ? [] : keys.map((key) => ({ title: key.key, note: key.table, choose: () => onOpen(key) }));
  if (!completion) return open;
  const { start, end } = completion;
  if (completion.keyPrefix !== null) {
    return keys.map((key) => ({ title: key.key, note: key.table, choose: () => replace(start, end, quoteKey(key.key)) }));
  }
  const words = completion.options.map((title) => ({ title, choose: () => replace(start, end, title) }));
  return query ? words : [...(offersVerb ? words : []), ...open];
}

function useKeys(prefix: string | null): readonly KnownKey[] {
  const [keys, setKeys] = useState<readonly KnownKey[]>([]);
  useEffect(() => {
    if (prefix === null) {
      setKeys([]);
      return undefined;
    }
    const controller = new AbortController();
    const timer = setTimeout(() => {
      call("GET /api/v1/query/keys", { query: { prefix, limit: KEYS_SHOWN }, signal: controller.signal }).then(
        (page) => setKeys(page.data),
        // Without suggestions the box works as well.
        () => controller.signal.aborted || setKeys([]),
      );
    }, 120);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [prefix]);
  return keys;
}
