/* The results of a search: cards, or a table for SQL; with how they were found. */
import type { ReactNode } from "react";

import type { QueryResponse } from "../../api/types";
import { Badge } from "../../components/badge";
import { EmptyState } from "../../components/empty-state";
import { Icon } from "../../components/icon";
import { isCodeName, toPlainText } from "../../components/markdown";
import { entityPath, isShared, shorten, textOf, titleOf, toSafeUrl, type Row } from "../../entity-links";
import { formatAge, formatDateTime, toWords } from "../../format";
import { Link } from "../../router";
import { texts } from "../../texts";
import { wordsToMark } from "./query-language";
import styles from "./results.module.css";

const PASSAGE_CHARS = 420;

interface Props {
  question: string;
  response: QueryResponse;
}

export function Results({ question, response }: Props) {
  const words = wordsToMark(question);
  const isTable = response.query_type === "SQL";
  return (
    <section aria-label={texts.memory.results} className={styles.results}>
      <header className={styles.summary}>
        <p role="status">{texts.memory.found(response.count)}</p>
        <Explanation response={response} />
      </header>
      {response.notes?.map((note) => (
        <p key={note.text} className={styles.note}>
          <Icon name="info" size={16} />
          <span>{note.text}</span>
        </p>
      ))}
      {response.results.length === 0 && (
        <EmptyState icon="search" title={texts.memory.nothingTitle}>
          {texts.memory.nothing}
        </EmptyState>
      )}
      {isTable ? (
        <ValueTable rows={response.results} />
      ) : (
        <ol className={styles.list}>
          {response.results.map((row, index) => (
            <li key={`${String(row["table"])}/${String(row["key"])}/${index}`}>
              {row["record"] ? <Card row={row} words={words} type={response.query_type} /> : <PlainCard row={row} />}
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

function Card({ row, words, type }: { row: Row; words: readonly string[]; type: string }) {
  const record = row["record"] as Row;
  const table = String(row["table"]);
  const key = String(row["key"]);
  const passage = row["passage"] as Row | undefined;
  const written = passage ? String(passage["text"]) : textOf(record);
  const text = isCodeName(String(record["uri"] ?? key)) ? written : toPlainText(written);
  const time = (row["happened_at"] ?? record["created_at"]) as string | null;
  const source = toSafeUrl(record["uri"]);
  const superseded = row["superseded_by"] as string | undefined;
  return (
    <article className={styles.card}>
      <header className={styles.cardHeader}>
        <h2>
          <Link href={entityPath(table, key)}>{titleOf(table, record, key)}</Link>
        </h2>
        <span className={styles.badges}>
          {superseded && <Badge tone="warning">{texts.memory.superseded}</Badge>}
          {isShared(record) && <Badge>{texts.memory.shared}</Badge>}
          <Badge tone="accent">{texts.memory.tables[table] ?? toWords(table)}</Badge>
        </span>
      </header>
      {text && (
        <p className={styles.passage}>
          <Marked text={cutAround(text, words)} words={words} />
        </p>
      )}
      <footer className={styles.cardFooter}>
        {time && <time dateTime={time} title={formatDateTime(time)}>{formatAge(time)}</time>}
        {source ? (
          <a href={source} target="_blank" rel="noreferrer noopener">{shorten(source, 60)}</a>
        ) : (
          <span className={styles.source}>{record["uri"] ? shorten(String(record["uri"]), 60) : shorten(key, 60)}</span>
        )}
        <span className={styles.reason}>{explainRank(row, type)}</span>
      </footer>
    </article>
  );
}

/** Say why a row is where it is. */
function explainRank(row: Row, type: string): string {
  const { depth, path, similarity, weight, score } = row as Record<string, number | null | undefined> & { path?: unknown };
  if (Array.isArray(path)) {
    return texts.memory.reasonPath(path.map(String), toWords(String(row["rel_type"] ?? "")), Number(depth));
  }
  if (type === "FUZZY" && typeof score === "number") return texts.memory.reasonSpelling(score);
  if (typeof similarity === "number" || typeof weight === "number") {
    return texts.memory.reasonSearch(similarity ?? null, weight ?? 0);
  }
  return type === "LOOKUP" ? texts.memory.reasonKey : "";
}

/** The part of a text with the most marked words, as long as a card has room for. */
function cutAround(text: string, words: readonly string[]): string {
  if (text.length <= PASSAGE_CHARS) return text;
  const lower = text.toLowerCase();
  const places = words.map((word) => lower.indexOf(word)).filter((place) => place >= 0);
  const first = places.length ? Math.min(...places) : 0;
  let start = first < PASSAGE_CHARS - 120 ? 0 : first - 80;
  if (start > 0) start = text.indexOf(" ", start) + 1 || start;
  const cut = text.slice(start, start + PASSAGE_CHARS);
  return `${start > 0 ? "… " : ""}${cut.trimEnd()}${start + PASSAGE_CHARS < text.length ? " …" : ""}`;
}

/** A text with the words of the question marked. */
function Marked({ text, words }: { text: string; words: readonly string[] }) {
  if (!words.length) return text;
  const stems = words.map((word) => word.replaceAll(/[^\p{L}\p{N}]/gu, ""));
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])((?:${stems.join("|")})[\\p{L}\\p{N}]*)`, "giu");
  return text.split(pattern).map((part, index) => (index % 2 ? <mark key={index}>{part}</mark> : part));
}

/** A row without an entity, such as the answer of an agent. */
function PlainCard({ row }: { row: Row }) {
  return (
    <article className={styles.card}>
      <dl className={styles.values}>
        {Object.entries(row).map(([name, value]) => (
          <div key={name}>
            <dt>{toWords(name)}</dt>
            <dd>{toText(value)}</dd>
          </div>
        ))}
      </dl>
    </article>
  );
}

function ValueTable({ rows }: { rows: readonly Row[] }) {
  const columns = Object.keys(rows[0] ?? {});
  if (!columns.length) return null;
  return (
    <div className={styles.tableBox} tabIndex={0} role="region" aria-label={texts.memory.results}>
      <table className={styles.table}>
        <thead>
          <tr>{columns.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>{columns.map((name) => <td key={name}>{shorten(toText(row[name]), 200)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function toText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** The verb, the steps with their time, and the parsed query. */
function Explanation({ response }: { response: QueryResponse }): ReactNode {
  const steps = (response.steps ?? []) as { name: string; milliseconds: number; rows: number | null; detail: string | null }[];
  const longest = Math.max(1, ...steps.map((step) => step.milliseconds));
  return (
    <details className={styles.explanation}>
      <summary>{texts.memory.explain}</summary>
      <div className={styles.explained}>
        <p>
          {texts.memory.explainVerb} <code>{response.query_type}</code>
        </p>
        <ol className={styles.steps}>
          {steps.map((step, index) => (
            <li key={index} className={styles.step}>
              <span>{step.name}</span>
              <span className={styles.track} aria-hidden="true">
                <span className={styles.bar} style={{ width: `${Math.max(1, (step.milliseconds / longest) * 100)}%` }} />
              </span>
              <span className={styles.stepTime}>
                {texts.memory.stepTime(step.milliseconds)}
                {step.rows !== null && ` · ${texts.memory.stepRows(step.rows)}`}
                {step.detail && ` · ${step.detail}`}
              </span>
            </li>
          ))}
        </ol>
        {response.tree && (
          <pre className={styles.tree} tabIndex={0} aria-label={texts.memory.explainTree}>
            {JSON.stringify(response.tree, null, 2)}
          </pre>
        )}
      </div>
    </details>
  );
}

