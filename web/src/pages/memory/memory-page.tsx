/* Memory: search it (/memory), look at one entity (/memory/TABLE/KEY), restore what was deleted (/memory/deleted). */
import { useEffect, useState } from "react";

import { ApiError, call } from "../../api/client";
import type { QueryResponse } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Button } from "../../components/button";
import { EmptyState } from "../../components/empty-state";
import { LoadState } from "../../components/load-state";
import { Spinner } from "../../components/spinner";
import { describeError } from "../../components/toast";
import { entityPath } from "../../entity-links";
import { PageFrame } from "../../layout/page-frame";
import { Link, navigate, usePath, useQuery } from "../../router";
import { texts } from "../../texts";
import { DeletedPage } from "./deleted-page";
import { EntityPage } from "./entity-page";
import styles from "./memory-page.module.css";
import { QueryBox } from "./query-box";
import { isQuery } from "./query-language";
import { Results } from "./results";

const MAX_PLAIN_ROWS = 20;

export default function MemoryPage() {
  const path = usePath();
  const [table = "", ...rest] = path.split("/").slice(2).map(decode);
  const key = rest.join("/");
  if (table === "deleted" && !key) return <DeletedPage />;
  if (table === "key" && key) return <FindKey keyName={key} />;
  if (table && key) return <EntityPage key={path} table={table} entityKey={key} />;
  return <SearchPage />;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function SearchPage() {
  const language = useApi((signal) => call("GET /api/v1/query/language", { signal }), []);
  return (
    <PageFrame
      title={texts.memory.title}
      description={texts.memory.description}
      actions={<Link href="/memory/deleted">{texts.memory.deletedLink}</Link>}
    >
      <LoadState loaded={language}>{(known) => <Search language={known} />}</LoadState>
    </PageFrame>
  );
}

function Search({ language }: { language: Parameters<typeof QueryBox>[0]["language"] }) {
  const [address, setAddress] = useQuery();
  const asked = address.get("q") ?? "";
  const [text, setText] = useState(asked);
  useEffect(() => setText(asked), [asked]);
  const verbs = language.verbs.map((verb) => verb.name);
  const answer = useApi(async (signal): Promise<QueryResponse | null> => {
    if (!asked.trim()) return null;
    const query = isQuery(asked, verbs);
    const body = query
      ? ({ query: asked, mode: "rem-dialect", explain: true } as const)
      : ({ query: asked, mode: "plain-words", explain: true, limit: MAX_PLAIN_ROWS } as const);
    return call("POST /api/v1/query", { body, signal });
  }, [asked]);
  const submit = (wanted: string) => {
    if (wanted.trim() === asked) answer.reload();
    else setAddress({ q: wanted.trim() });
  };
  return (
    <div className={styles.search}>
      <QueryBox
        value={text}
        language={language}
        isBusy={answer.isLoading && asked !== ""}
        onChange={setText}
        onSubmit={submit}
        onOpen={(known) => navigate(entityPath(known.table, known.key))}
      />
      {answer.error ? (
        <QueryProblem error={answer.error} query={asked} onCorrect={submit} onRetry={answer.reload} />
      ) : (
        asked && answer.data && <Results question={asked} response={answer.data} />
      )}
      {asked && answer.isLoading && !answer.data && !answer.error && (
        <div className={styles.searching}>
          <Spinner label={texts.memory.searching} />
        </div>
      )}
      {!asked && <Introduction onTry={submit} />}
    </div>
  );
}

interface ProblemProps {
  error: ApiError;
  query: string;
  onCorrect: (query: string) => void;
  onRetry: () => void;
}

/** An error in a query, with a mark where it is and a way to correct it. */
function QueryProblem({ error, query, onCorrect, onRetry }: ProblemProps) {
  const { line, column, suggestion } = (error.details ?? {}) as { line?: number; column?: number; suggestion?: string };
  if (error.code !== "query_syntax" || !line || !column) {
    return (
      <EmptyState icon="alert" title={texts.errors.title} actions={<Button onClick={onRetry}>{texts.common.tryAgain}</Button>}>
        {describeError(error)}
      </EmptyState>
    );
  }
  const source = query.split("\n")[line - 1] ?? "";
  return (
    <div className={styles.problem} role="alert">
      <p className={styles.problemText}>{error.message.split("\n")[0]}</p>
      <pre className={styles.source}>
        {source}
        {"\n"}
        {" ".repeat(column - 1)}
        <span className={styles.caret}>^</span>
      </pre>
      {suggestion && (
        <p>
          {texts.memory.didYouMean}{" "}
          <button type="button" className={styles.suggestion} onClick={() => onCorrect(suggestion)}>
            <code>{suggestion}</code>
          </button>
        </p>
      )}
    </div>
  );
}

/** What to do here, by examples that work on any memory. */
function Introduction({ onTry }: { onTry: (text: string) => void }) {
  return (
    <section className={styles.introduction} aria-label={texts.memory.examplesTitle}>
      <h2>{texts.memory.examplesTitle}</h2>
      <p>{texts.memory.examplesText}</p>
      <ul className={styles.examples}>
        {texts.memory.examples.map((example) => (
          <li key={example.query}>
            <button type="button" className={styles.example} onClick={() => onTry(example.query)}>
              <code>{example.query}</code>
              <span>{example.note}</span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Find the entity of a key that was named without its table, and go there. */
function FindKey({ keyName }: { keyName: string }) {
  const found = useApi(async (signal) => {
    const body = { query: `LOOKUP ${JSON.stringify(keyName)}` };
    const [row] = (await call("POST /api/v1/query", { body, signal })).results;
    if (!row) return false;
    navigate(entityPath(String(row["table"]), String(row["key"])), { replace: true });
    return true;
  }, [keyName]);
  return (
    <PageFrame title={keyName}>
      <LoadState loaded={found}>
        {(isFound) =>
          !isFound && (
            <EmptyState icon="question" title={texts.memory.missingTitle} actions={<Link href="/memory">{texts.memory.back}</Link>}>
              {texts.memory.missing}
            </EmptyState>
          )
        }
      </LoadState>
    </PageFrame>
  );
}
