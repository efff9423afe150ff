/* What the last dream has learnt and dropped, with a way to undo it; and the dreams before it. */
import { useState } from "react";

import { call } from "../../api/client";
import type { DreamRunView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { ConfirmDialog } from "../../components/dialog";
import { LoadState } from "../../components/load-state";
import { toPlainText } from "../../components/markdown";
import { showError, showToast } from "../../components/toast";
import { formatAge, formatTime, toWords } from "../../format";
import { texts } from "../../texts";
import styles from "./timeline-page.module.css";

const RUNS_SHOWN = 10;
const LINES_SHOWN = 8;

export function DreamPanel({ onChanged }: { onChanged: () => void }) {
  const runs = useApi((signal) => call("GET /api/v1/dreams", { query: { limit: RUNS_SHOWN }, signal }), []);
  const [isDreaming, setIsDreaming] = useState(false);
  const [chosen, setChosen] = useState<string | null>(null);
  const reload = () => {
    runs.reload();
    onChanged();
  };
  const dream = async () => {
    setIsDreaming(true);
    try {
      const result = await call("POST /api/v1/dreams");
      showToast(result.run_id ? texts.timeline.dreamt(result.learnt.length) : texts.timeline.nothingNew);
      setChosen(null);
      reload();
    } catch (error) {
      showError(error);
    } finally {
      setIsDreaming(false);
    }
  };
  return (
    <section className={styles.panel} aria-label={texts.timeline.dreams}>
      <header className={styles.panelHeader}>
        <h2>{texts.timeline.dreams}</h2>
        <Button isSmall icon="spark" isBusy={isDreaming} onClick={() => void dream()}>
          {texts.timeline.dreamNow}
        </Button>
      </header>
      <LoadState loaded={runs}>
        {(page) => {
          const run = page.data.find((candidate) => candidate.id === chosen) ?? page.data[0];
          if (!run) return <p className={styles.hint}>{texts.timeline.noDreams}</p>;
          return (
            <>
              <Run key={run.id + run.state} run={run} onUndone={reload} />
              {page.data.length > 1 && (
                <details className={styles.runs}>
                  <summary>{texts.timeline.otherDreams}</summary>
                  <ul>
                    {page.data.map((other) => (
                      <li key={other.id}>
                        <button type="button" aria-pressed={other.id === run.id} onClick={() => setChosen(other.id)}>
                          {`${formatAge(other.started_at)}, ${formatTime(other.started_at)}`}
                          <span>{texts.timeline.changes(other.said, other.ended)}</span>
                        </button>
                      </li>
                    ))}
                  </ul>
                </details>
              )}
            </>
          );
        }}
      </LoadState>
    </section>
  );
}

function Run({ run, onUndone }: { run: DreamRunView; onUndone: () => void }) {
  const [isAsking, setIsAsking] = useState(false);
  const details = useApi((signal) => call("GET /api/v1/dreams/{run}", { path: { run: run.id }, signal }), [run.id]);
  const undo = async () => {
    try {
      const undone = await call("POST /api/v1/dreams/{run}/undo", { path: { run: run.id } });
      showToast(texts.timeline.undone(undone.statements));
      onUndone();
    } catch (error) {
      showError(error);
    }
  };
  return (
    <div className={styles.run}>
      <p className={styles.hint}>
        {`${formatAge(run.started_at)}, ${formatTime(run.started_at)} `}
        {run.state !== "done" && <Badge tone={run.state === "failed" ? "danger" : "neutral"}>{toWords(run.state)}</Badge>}
      </p>
      {run.error && <p className={styles.error}>{run.error}</p>}
      <LoadState loaded={details}>
        {(report) => (
          <>
            <Lines title={texts.timeline.learnt} lines={report.learnt} />
            <Lines title={texts.timeline.dropped} lines={report.dropped} />
            {!report.learnt.length && !report.dropped.length && (
              <p className={styles.hint}>{run.state === "running" ? texts.timeline.stillDreaming : texts.timeline.nothingLeft}</p>
            )}
          </>
        )}
      </LoadState>
      {run.state === "done" && (
        <Button isSmall icon="restore" onClick={() => setIsAsking(true)}>
          {texts.timeline.undo}
        </Button>
      )}
      <ConfirmDialog
        isOpen={isAsking}
        onClose={() => setIsAsking(false)}
        title={texts.timeline.undoTitle}
        description={texts.timeline.undoText}
        confirm={texts.timeline.undo}
        onConfirm={undo}
      />
    </div>
  );
}

function Lines({ title, lines }: { title: string; lines: readonly string[] }) {
  const [isAll, setIsAll] = useState(false);
  if (!lines.length) return null;
  const shown = isAll ? lines : lines.slice(0, LINES_SHOWN);
  return (
    <section className={styles.lines}>
      <h3>{title}</h3>
      <ul>
        {shown.map((line, position) => (
          <li key={position}>{toPlainText(line)}</li>
        ))}
      </ul>
      {shown.length < lines.length && (
        <Button isSmall look="quiet" onClick={() => setIsAll(true)}>
          {texts.memory.andMore(lines.length - shown.length)}
        </Button>
      )}
    </section>
  );
}
