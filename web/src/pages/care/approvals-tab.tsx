/* Actions of agents that wait for consent, and the decisions so far. */
import { useState } from "react";

import { call } from "../../api/client";
import type { ApprovalView, RiskLevel } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge, type BadgeTone } from "../../components/badge";
import { Button } from "../../components/button";
import { EmptyState } from "../../components/empty-state";
import { LoadState } from "../../components/load-state";
import { Panel } from "../../components/panel";
import { showError, showToast } from "../../components/toast";
import { formatDateTime, toWords } from "../../format";
import { texts } from "../../texts";
import styles from "./care-page.module.css";

const RISKS: Record<RiskLevel, BadgeTone> = { reversible: "positive", reversible_with_delay: "warning", irreversible: "danger" };

export function ApprovalsTab() {
  const approvals = useApi((signal) => call("GET /api/v1/approvals", { query: { limit: 50 }, signal }), []);
  return (
    <LoadState loaded={approvals}>
      {(page) => {
        const waiting = page.data.filter((approval) => approval.status === "pending");
        const decided = page.data.filter((approval) => approval.status !== "pending");
        return (
          <div className={styles.column}>
            {waiting.length === 0 ? (
              <EmptyState icon="check" title={texts.care.noApprovalsTitle}>
                {texts.care.noApprovals}
              </EmptyState>
            ) : (
              waiting.map((approval) => <Waiting key={approval.id} approval={approval} onDecided={approvals.reload} />)
            )}
            {decided.length > 0 && (
              <Panel title={texts.care.decided}>
                <ul className={styles.decisions}>
                  {decided.map((approval) => (
                    <li key={approval.id}>
                      <span>{approval.action_description}</span>
                      <span className={styles.badges}>
                        <Badge tone={approval.status === "approved" ? "positive" : "neutral"}>{toWords(approval.status)}</Badge>
                        {approval.execution && <Badge>{toWords(approval.execution)}</Badge>}
                        <span className={styles.none}>{formatDateTime(approval.decided_at ?? approval.created_at)}</span>
                      </span>
                    </li>
                  ))}
                </ul>
              </Panel>
            )}
          </div>
        );
      }}
    </LoadState>
  );
}

function Waiting({ approval, onDecided }: { approval: ApprovalView; onDecided: () => void }) {
  const details = useApi((signal) => call("GET /api/v1/approvals/{approval}", { path: { approval: approval.id }, signal }), [approval.id]);
  const [busy, setBusy] = useState<"approve" | "reject" | null>(null);
  const decide = async (decision: "approve" | "reject") => {
    setBusy(decision);
    try {
      const result = await call("POST /api/v1/approvals/{approval}/decision", { path: { approval: approval.id }, body: { decision } });
      showToast(result.answer || texts.care.done);
      onDecided();
    } catch (error) {
      showError(error);
      onDecided();
    } finally {
      setBusy(null);
    }
  };
  const actions = (
    <>
      <Badge tone={RISKS[approval.risk_level]}>{toWords(approval.risk_level)}</Badge>
      {approval.decide_by && <span className={styles.none}>{texts.care.decideBy(formatDateTime(approval.decide_by))}</span>}
    </>
  );
  return (
    <Panel title={approval.action_description} description={texts.care.asks(approval.agent ?? "", approval.tool_name)} actions={actions}>
      <LoadState loaded={details}>
        {(known) => (
          <pre className={styles.preview} tabIndex={0} aria-label={texts.care.preview}>
            {known.preview || JSON.stringify(known.parameters, null, 2)}
          </pre>
        )}
      </LoadState>
      <div className={styles.buttons}>
        <Button look="primary" isBusy={busy === "approve"} disabled={busy !== null} onClick={() => void decide("approve")}>
          {texts.care.approve}
        </Button>
        <Button isBusy={busy === "reject"} disabled={busy !== null} onClick={() => void decide("reject")}>
          {texts.care.reject}
        </Button>
      </div>
    </Panel>
  );
}
