/* Forget everything about a person or thing: what would go, then the consent, then what went. */
import { useState } from "react";

import { ApiError, call } from "../../api/client";
import type { AffectedRowView, ForgetPreview } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Button } from "../../components/button";
import { Dialog } from "../../components/dialog";
import { Toggle } from "../../components/field";
import { LoadState } from "../../components/load-state";
import { showError, showToast } from "../../components/toast";
import { toWords } from "../../format";
import { navigate } from "../../router";
import { texts } from "../../texts";
import styles from "./forget-dialog.module.css";

const SHOWN_ROWS = 20;

export function ForgetDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const [withMentions, setWithMentions] = useState(false);
  const [isSure, setIsSure] = useState(false);
  const [isBusy, setIsBusy] = useState(false);
  const preview = useApi(
    (signal) => call("POST /api/v1/forget/preview", { body: { name, mentions: withMentions }, signal }),
    [name, withMentions],
  );
  const forget = async (shown: ForgetPreview) => {
    setIsBusy(true);
    try {
      const body = { name, mentions: withMentions, fingerprint: shown.fingerprint };
      const result = await call("POST /api/v1/forget", { body });
      const erased = Object.values(result.erased).reduce((sum, rows) => sum + rows, 0);
      showToast(result.is_gone ? texts.memory.forgotten(name, erased) : texts.memory.forgottenPartly(name, result.kept_mentions));
      onClose();
      navigate("/memory");
    } catch (error) {
      showError(error);
      // Something was stored meanwhile: show what it is now, and ask again.
      if (error instanceof ApiError && error.status === 409) {
        setIsSure(false);
        preview.reload();
      }
    } finally {
      setIsBusy(false);
    }
  };
  const shown = preview.data;
  const footer = (
    <>
      <Button onClick={onClose}>{texts.common.cancel}</Button>
      <Button
        look="destructive"
        isBusy={isBusy}
        disabled={!shown || preview.isLoading || shown.is_empty || !isSure}
        onClick={() => shown && void forget(shown)}
      >
        {texts.memory.forgetButton}
      </Button>
    </>
  );
  return (
    <Dialog isOpen isWide onClose={onClose} title={texts.memory.forgetTitle(name)} description={texts.memory.forgetText} footer={footer}>
      <div className={styles.body}>
        <Toggle
          label={texts.memory.forgetMentions}
          checked={withMentions}
          onChange={(event) => {
            setWithMentions(event.target.checked);
            setIsSure(false);
          }}
        />
        <LoadState loaded={preview}>{(found) => <Preview preview={found} />}</LoadState>
        {shown && !shown.is_empty && (
          <label className={styles.consent}>
            <input type="checkbox" checked={isSure} onChange={(event) => setIsSure(event.target.checked)} />
            <span>{texts.memory.forgetConsent(shown.erased_count)}</span>
          </label>
        )}
      </div>
    </Dialog>
  );
}

function Preview({ preview }: { preview: ForgetPreview }) {
  if (preview.is_empty) return <p>{texts.memory.forgetNothing}</p>;
  return (
    <div className={styles.groups} aria-live="polite">
      <Rows title={texts.memory.forgetRows} rows={preview.rows} />
      <Rows title={texts.memory.forgetFacts} rows={preview.facts} />
      <Lines title={texts.memory.forgetStatements} lines={preview.statements.map((statement) => statement.says)} />
      <Rows title={preview.with_mentions ? texts.memory.forgetMentionRows : texts.memory.keptMentionRows} rows={preview.mentions} />
      <Lines title={texts.memory.keptShared} lines={preview.shared} />
      <Lines title={texts.memory.keptFiles} lines={preview.files} />
    </div>
  );
}

function Rows({ title, rows }: { title: string; rows: readonly AffectedRowView[] }) {
  const lines = rows.map((row) => {
    const along = row.along ? ` (+ ${row.along})` : "";
    return `${texts.memory.tables[row.table] ?? toWords(row.table)}: ${row.excerpt || row.key}${along}`;
  });
  return <Lines title={title} lines={lines} />;
}

function Lines({ title, lines }: { title: string; lines: readonly string[] }) {
  if (!lines.length) return null;
  return (
    <section>
      <h3>
        {title} <span className={styles.count}>{lines.length}</span>
      </h3>
      <ul className={styles.lines}>
        {lines.slice(0, SHOWN_ROWS).map((line, index) => (
          <li key={index}>{line}</li>
        ))}
        {lines.length > SHOWN_ROWS && <li>{texts.memory.andMore(lines.length - SHOWN_ROWS)}</li>}
      </ul>
    </section>
  );
}
