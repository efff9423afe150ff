-- Approvals of tool calls: what was proposed, until when it can be decided, and what became of an approved call.

ALTER TABLE approvals
  ADD COLUMN agent text,
  -- What the user was shown, exactly enough to carry it out: such as the rows that a change is about, with their versions.
  ADD COLUMN proposal jsonb NOT NULL DEFAULT '{}' CONSTRAINT proposal_is_object CHECK (jsonb_typeof(proposal) = 'object'),
  -- NULL: there is no time limit. `expires_at` is when the row itself is erased.
  ADD COLUMN decide_by timestamptz,
  -- NULL: an approved call has not begun yet. `unknown`: it began and never reported its end.
  ADD COLUMN execution text
    CONSTRAINT execution_is_known CHECK (execution IN ('running', 'done', 'failed', 'unknown')),
  ADD COLUMN executed_at timestamptz,
  ADD COLUMN outcome text,
  ADD CONSTRAINT action_type_is_given CHECK (action_type <> ''),
  ADD CONSTRAINT only_approved_is_executed CHECK (execution IS NULL OR status = 'approved');
-- Requests of before have no proposal. They lived for 15 minutes.
DELETE FROM approvals WHERE status = 'pending';
UPDATE approvals SET confidence = 1 WHERE confidence IS NULL;
ALTER TABLE approvals ALTER COLUMN confidence SET DEFAULT 1, ALTER COLUMN confidence SET NOT NULL;
CREATE INDEX approvals_pending ON approvals (tenant_id, user_id, created_at) WHERE status = 'pending';

-- The run of an agent that waits for the decision: its messages, agent, model and settings. A decision deletes it.
CREATE TABLE approval_runs (
  tenant_id text NOT NULL,
  approval_id uuid NOT NULL,
  user_id text,
  -- JSON as text: a model may write characters that jsonb refuses.
  state text NOT NULL,
  PRIMARY KEY (tenant_id, approval_id),
  FOREIGN KEY (tenant_id, approval_id) REFERENCES approvals (tenant_id, id) ON DELETE CASCADE
);
