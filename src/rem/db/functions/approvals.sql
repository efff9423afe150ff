-- End the requests of a session for which a run waits: the run holds messages of the session, and one of them was deleted.
CREATE OR REPLACE FUNCTION rem_drop_waiting_runs(of_tenant text, of_session uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH dropped AS (
    DELETE FROM rem.approval_runs r USING rem.approvals a
    WHERE a.tenant_id = of_tenant AND a.session_id = of_session AND a.status = 'pending'
      AND (r.tenant_id, r.approval_id) = (a.tenant_id, a.id)
    RETURNING a.tenant_id, a.id)
  UPDATE rem.approvals a
  SET status = 'rejected', decided_by = 'forgotten', decided_at = clock_timestamp(), parameters = '{}', proposal = '{}'
  FROM dropped d WHERE (a.tenant_id, a.id) = (d.tenant_id, d.id);
END $$;
