/* What an agent notes about its answer: badges, and the sources, which open beside the chat. */
import { useState } from "react";

import { call } from "../../api/client";
import { useApi } from "../../api/use-api";
import { Badge, type BadgeTone } from "../../components/badge";
import { Dialog } from "../../components/dialog";
import { EmptyState } from "../../components/empty-state";
import { Icon } from "../../components/icon";
import { LoadState } from "../../components/load-state";
import { isSafeLink, Markdown } from "../../components/markdown";
import { Link } from "../../router";
import { texts } from "../../texts";
import type { Notes } from "./events";
import styles from "./notes.module.css";

const HIDDEN_FLAGS = ["needs_approval"];
const RISK_TONES: Record<string, BadgeTone> = {
  low: "positive",
  green: "positive",
  moderate: "warning",
  yellow: "warning",
  orange: "warning",
};

export function NoteBadges({ notes }: { notes: Notes }) {
  const [isExtraShown, setIsExtraShown] = useState(false);
  const { confidence, risk_level: risk, risk_score: score, extra } = notes;
  const flags = (notes.flags ?? []).filter((flag) => !HIDDEN_FLAGS.includes(flag));
  const keys = [...new Set([...(notes.sources ?? []), ...(notes.references ?? [])])];
  const hasExtra = extra !== undefined && Object.keys(extra).length > 0;
  if (confidence === undefined && !risk && flags.length === 0 && keys.length === 0 && !hasExtra) return null;
  return (
    <div className={styles.notes}>
      {confidence !== undefined && (
        <Badge tone={confidence >= 0.7 ? "positive" : confidence >= 0.4 ? "warning" : "danger"}>
          {texts.chat.confidence(confidence)}
        </Badge>
      )}
      {risk && <Badge tone={RISK_TONES[risk] ?? "danger"}>{texts.chat.risk(risk, score)}</Badge>}
      {flags.map((flag) => (
        <Badge key={flag} tone="warning">
          {texts.chat.flags[flag] ?? flag.replaceAll("_", " ")}
        </Badge>
      ))}
      <Sources keys={keys} />
      {hasExtra && (
        <button type="button" className={styles.source} onClick={() => setIsExtraShown(true)}>
          <Icon name="info" size={14} />
          {texts.chat.extra}
        </button>
      )}
      <Dialog isOpen={isExtraShown} onClose={() => setIsExtraShown(false)} title={texts.chat.extra}>
        <pre className={styles.extra} tabIndex={0}>
          {JSON.stringify(extra, null, 2)}
        </pre>
      </Dialog>
    </div>
  );
}

/** Keys and addresses; a key opens beside the chat. */
export function Sources({ keys }: { keys: readonly string[] }) {
  const [opened, setOpened] = useState<string | null>(null);
  return (
    <>
      {keys.map((key) => (
        <Source key={key} source={key} onOpen={() => setOpened(key)} />
      ))}
      {opened !== null && <SourceDrawer source={opened} onClose={() => setOpened(null)} />}
    </>
  );
}

function Source({ source, onOpen }: { source: string; onOpen: () => void }) {
  if (isSafeLink(source)) {
    return (
      <a className={styles.source} href={source} target="_blank" rel="noopener noreferrer">
        <Icon name="external" size={14} />
        <span>{source.replace(/^https?:\/\//, "")}</span>
      </a>
    );
  }
  return (
    <button type="button" className={styles.source} onClick={onOpen}>
      <Icon name="file" size={14} />
      <span>{source}</span>
    </button>
  );
}

interface FoundRow {
  table: string;
  key: string;
  title: string;
  text: string;
}

/** The row of the memory with a key, as text. */
async function lookUp(key: string, signal: AbortSignal): Promise<FoundRow | null> {
  const query = `LOOKUP ${JSON.stringify(key)}`;
  const { results } = await call("POST /api/v1/query", { body: { query, limit: 1 }, signal });
  const [row] = results;
  if (!row) return null;
  const record = (row["record"] ?? row) as Record<string, unknown>;
  const text = [record["content"], record["summary"], record["description"]].find((value) => typeof value === "string" && value);
  return {
    table: String(row["table"] ?? row["entity_type"] ?? ""),
    key: String(row["key"] ?? key),
    title: String(record["title"] ?? record["name"] ?? row["key"] ?? key),
    text: String(text ?? ""),
  };
}

function SourceDrawer({ source, onClose }: { source: string; onClose: () => void }) {
  const loaded = useApi(async (signal) => ({ row: await lookUp(source, signal) }), [source]);
  return (
    <Dialog isOpen onClose={onClose} title={loaded.data?.row?.title ?? source} side="right">
      <LoadState loaded={loaded}>
        {({ row }) =>
          row === null ? (
            <EmptyState icon="question" title={texts.chat.sourceGone}>
              {texts.chat.sourceGoneText}
            </EmptyState>
          ) : (
            <div className={styles.drawer}>
              <div className={styles.notes}>
                {row.table && <Badge tone="accent">{row.table}</Badge>}
                <Badge>{row.key}</Badge>
              </div>
              <Markdown text={row.text || texts.chat.sourceEmpty} />
              <Link href={`/memory?q=${encodeURIComponent(`LOOKUP ${JSON.stringify(row.key)}`)}`}>{texts.chat.openInMemory}</Link>
            </div>
          )
        }
      </LoadState>
    </Dialog>
  );
}
