-- Who read, wrote, deleted, approved and administered what. Entries name rows by table and id, and hash keys. The time is part of
-- the primary key, so the table can be partitioned by it.
CREATE TABLE audit_log (
  tenant_id text NOT NULL,
  at timestamptz NOT NULL,
  id uuid NOT NULL,
  actor text,
  subject text,
  role text,
  via text NOT NULL,
  method text,
  credential_id text,
  action text NOT NULL CONSTRAINT action_is_known CHECK (action IN ('read', 'write', 'login', 'delete', 'approve', 'admin')),
  operation text NOT NULL,
  status smallint,
  targets jsonb NOT NULL DEFAULT '[]',
  client text,
  request_id text,
  PRIMARY KEY (tenant_id, at, id)
);
CREATE INDEX audit_log_actor ON audit_log (tenant_id, actor, at);
CREATE INDEX audit_log_subject ON audit_log (tenant_id, subject, at) WHERE subject IS NOT NULL;
CREATE INDEX audit_log_targets ON audit_log USING gin (targets jsonb_path_ops);
CREATE INDEX audit_log_age ON audit_log USING brin (at);

-- Entries are only added. Pruning by age and the erasure of a user say in their transaction that they change the log.
CREATE FUNCTION rem_audit_log_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF coalesce(current_setting('rem.audit_change', true), '') <> TG_OP THEN
    RAISE EXCEPTION 'The audit log is append-only.' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF TG_OP = 'UPDATE' THEN
    RETURN NEW;
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER audit_log_rows BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION rem_audit_log_guard();
CREATE TRIGGER audit_log_truncate BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION rem_audit_log_guard();
