DROP TABLE approval_runs;
DROP INDEX approvals_pending;
ALTER TABLE approvals
  DROP CONSTRAINT only_approved_is_executed,
  DROP CONSTRAINT action_type_is_given,
  ALTER COLUMN confidence DROP NOT NULL,
  ALTER COLUMN confidence DROP DEFAULT,
  DROP COLUMN outcome,
  DROP COLUMN executed_at,
  DROP COLUMN execution,
  DROP COLUMN decide_by,
  DROP COLUMN proposal,
  DROP COLUMN agent;
