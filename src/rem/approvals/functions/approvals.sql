-- End the requests of a session for which a run waits, also of approved ones that never began: the run holds messages of the session,
-- and one of them was deleted. If it was erased, end all requests that may repeat it; those to forget rows only lose their words.
CREATE OR REPLACE FUNCTION rem_drop_waiting_runs(of_tenant text, of_session uuid, is_erased boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH open AS (
    SELECT a.tenant_id, a.id, a.tool_name = 'forget' AS is_kept FROM rem.approvals a
    LEFT JOIN rem.approval_runs r ON (r.tenant_id, r.approval_id) = (a.tenant_id, a.id)
    WHERE a.tenant_id = of_tenant AND a.session_id = of_session AND (is_erased OR r.approval_id IS NOT NULL)
      AND (a.status = 'pending' OR (a.status = 'approved' AND a.execution IS NULL))),
  dropped AS (
    DELETE FROM rem.approval_runs r USING open o WHERE (r.tenant_id, r.approval_id) = (o.tenant_id, o.id))
  UPDATE rem.approvals a
  SET status = CASE WHEN o.is_kept THEN a.status ELSE 'rejected' END,
      decided_by = CASE WHEN o.is_kept THEN a.decided_by ELSE 'forgotten' END,
      decided_at = CASE WHEN o.is_kept THEN a.decided_at ELSE clock_timestamp() END,
      parameters = '{}', proposal = CASE WHEN o.is_kept THEN a.proposal ELSE '{}' END
  FROM open o WHERE (a.tenant_id, a.id) = (o.tenant_id, o.id);
END $$;
