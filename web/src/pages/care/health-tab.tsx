/* The audit of what dreams derived, the storage, and the sample workspace. */
import { useState } from "react";

import { call } from "../../api/client";
import type { AuditView, SampleWorkspace, Storage } from "../../api/types";
import { SAMPLE_TENANT, setIdentity, useIdentity } from "../../api/identity";
import { useApi } from "../../api/use-api";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { ConfirmDialog } from "../../components/dialog";
import { Toggle } from "../../components/field";
import { LoadState } from "../../components/load-state";
import { Panel } from "../../components/panel";
import { showError, showToast } from "../../components/toast";
import { entityPath, keyPath } from "../../entity-links";
import { formatBytes, formatNumber, toWords } from "../../format";
import { Link, navigate } from "../../router";
import { texts } from "../../texts";
import styles from "./care-page.module.css";

const ISSUES_SHOWN = 10;

export function HealthTab() {
  return (
    <div className={styles.columns}>
      <AuditPanel />
      <div className={styles.column}>
        <StoragePanel />
        <SamplePanel />
      </div>
    </div>
  );
}

function AuditPanel() {
  const audit = useApi((signal) => call("GET /api/v1/dreams/audit", { signal }), []);
  const [isAsking, setIsAsking] = useState(false);
  const fix = async () => {
    try {
      const report = await call("POST /api/v1/dreams/audit");
      showToast(texts.care.fixed(report.fixed));
      audit.reload();
    } catch (error) {
      showError(error);
    }
  };
  const problems = audit.data ? countFixable(audit.data) : 0;
  const actions = (
    <>
      <Button isSmall icon="retry" isBusy={audit.isLoading} onClick={audit.reload}>
        {texts.care.checkAgain}
      </Button>
      {problems > 0 && (
        <Button isSmall look="primary" onClick={() => setIsAsking(true)}>
          {texts.care.fix}
        </Button>
      )}
    </>
  );
  return (
    <Panel title={texts.care.audit} description={texts.care.auditText} actions={actions}>
      <LoadState loaded={audit}>
        {(report) => (
          <ul className={styles.checks}>
            {Object.entries(report.counts).map(([check, number]) => (
              <li key={check}>
                <div className={styles.check}>
                  <div>
                    <h3>{texts.care.checks[check]?.title ?? toWords(check)}</h3>
                    <p>{texts.care.checks[check]?.text}</p>
                  </div>
                  <Badge tone={number ? "warning" : "positive"}>{number ? formatNumber(number) : texts.care.fine}</Badge>
                </div>
                <Issues report={report} check={check} />
              </li>
            ))}
          </ul>
        )}
      </LoadState>
      <ConfirmDialog
        isOpen={isAsking}
        onClose={() => setIsAsking(false)}
        title={texts.care.fixTitle(problems)}
        description={texts.care.fixText}
        confirm={texts.care.fix}
        isDestructive={false}
        onConfirm={fix}
      />
    </Panel>
  );
}

/** A stale profile is made anew by the next dream, not by the audit. */
function countFixable(report: AuditView): number {
  return Object.entries(report.counts).reduce((sum, [check, number]) => sum + (check === "stale_profiles" ? 0 : number), 0);
}

function Issues({ report, check }: { report: AuditView; check: string }) {
  const issues = report.issues[check] ?? [];
  if (!issues.length) return null;
  const table = check.includes("duplicates") ? "moments" : null;
  // A statement is named by what it says, and belongs to a row.
  const isStatement = check === "without_source";
  const hidden = (report.counts[check] ?? 0) - ISSUES_SHOWN;
  const path = (key: string) => (table ? entityPath(table, key) : keyPath(key));
  return (
    <ul className={styles.issues}>
      {issues.slice(0, ISSUES_SHOWN).map((issue, index) => (
        <li key={index}>
          <Link href={isStatement ? path(issue.other ?? "") : issue.table ? entityPath(issue.table, issue.key) : path(issue.key)}>{issue.key}</Link>
          {issue.other && !isStatement && (
            <>
              <span>{issue.rel_type ? toWords(issue.rel_type) : texts.care.like}</span>
              {table ? <Link href={path(issue.other)}>{issue.other}</Link> : <span>{issue.other}</span>}
            </>
          )}
        </li>
      ))}
      {hidden > 0 && <li>{texts.memory.andMore(hidden)}</li>}
    </ul>
  );
}

function StoragePanel() {
  const storage = useApi((signal) => call("GET /api/v1/storage", { signal }), []);
  return (
    <Panel title={texts.care.storage} description={storage.data ? describeStorage(storage.data) : undefined}>
      <LoadState loaded={storage}>
        {(found) => {
          const rows = Object.entries(found.tables).sort((left, right) => right[1].bytes - left[1].bytes);
          const largest = Math.max(1, ...rows.map(([, table]) => table.bytes));
          if (!rows.length) return <p className={styles.none}>{texts.care.noStorage}</p>;
          return (
            <ul className={styles.storage}>
              {rows.map(([name, table]) => (
                <li key={name}>
                  <p>
                    <span>{texts.care.tableNames[name] ?? toWords(name)}</span>
                    <span>{formatNumber(table.live)}</span>
                    <span>{formatBytes(table.bytes)}</span>
                  </p>
                  <span className={styles.track} aria-hidden="true">
                    <span style={{ width: `${(table.bytes / largest) * 100}%` }} />
                  </span>
                  {table.deleted > 0 && <Link href="/memory/deleted">{texts.care.deleted(table.deleted)}</Link>}
                </li>
              ))}
            </ul>
          );
        }}
      </LoadState>
    </Panel>
  );
}

function describeStorage(storage: Storage): string {
  const tables = Object.values(storage.tables);
  const bytes = tables.reduce((sum, table) => sum + table.bytes, 0);
  const rows = tables.reduce((sum, table) => sum + table.live, 0);
  return texts.care.storageText(rows, formatBytes(bytes));
}

function SamplePanel() {
  const sample = useApi((signal) => call("GET /api/v1/sample", { signal }), []);
  const identity = useIdentity();
  const [isBusy, setIsBusy] = useState(false);
  const [isAsking, setIsAsking] = useState(false);
  const change = async (isOn: boolean) => {
    setIsBusy(true);
    try {
      const changed = await (isOn ? call("PUT /api/v1/sample") : call("DELETE /api/v1/sample"));
      sample.setData(() => changed);
    } catch (error) {
      showError(error);
    } finally {
      setIsBusy(false);
    }
  };
  const open = (workspace: SampleWorkspace) => {
    setIdentity({ tenant: workspace.tenant_id });
    navigate("/memory");
  };
  return (
    <Panel title={texts.care.sample} description={texts.care.sampleText}>
      <LoadState loaded={sample}>
        {(workspace) => (
          <div className={styles.sample}>
            <Toggle
              label={workspace.rows ? texts.care.sampleOn(workspace.rows) : texts.care.sampleOff}
              checked={workspace.rows > 0}
              disabled={isBusy || !workspace.may_change}
              onChange={(event) => (event.target.checked ? void change(true) : setIsAsking(true))}
            />
            {!workspace.may_change && <p className={styles.none}>{texts.care.sampleFixed}</p>}
            {workspace.rows > 0 && workspace.may_change && identity.tenant !== SAMPLE_TENANT && (
              <Button isSmall onClick={() => open(workspace)}>
                {texts.care.sampleOpen}
              </Button>
            )}
          </div>
        )}
      </LoadState>
      <ConfirmDialog
        isOpen={isAsking}
        onClose={() => setIsAsking(false)}
        title={texts.care.sampleRemoveTitle}
        description={texts.care.sampleRemoveText}
        confirm={texts.care.sampleRemove}
        onConfirm={() => change(false)}
      />
    </Panel>
  );
}
