-- Queries of requests for approval, always for one owner ($1 the tenant, $2 the user), except the sweep.

-- name: pending
-- Return the ids of the owner's requests that can be decided, latest first: all, or those of a session ($3). $4: also those that were
-- approved and have not begun.
SELECT a.id FROM rem.approvals a
WHERE a.tenant_id = $1 AND a.user_id IS NOT DISTINCT FROM $2 AND a.deleted_at IS NULL
  AND ((a.status = 'pending' AND (a.decide_by IS NULL OR a.decide_by > clock_timestamp()))
       OR ($4::boolean AND a.status = 'approved' AND a.execution IS NULL))
  AND ($3::uuid IS NULL OR a.session_id = $3)
ORDER BY a.created_at DESC, a.id

-- name: has_later_message
-- Return whether the user has said something in the session since a time.
SELECT EXISTS (
  SELECT FROM rem.messages m
  WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.role = 'user' AND m.created_at > $4)

-- name: lock
-- Lock one of the owner's requests, and return its state, its recorded arguments and whether its time is over.
SELECT a.id, a.status, a.execution, coalesce(a.decide_by <= clock_timestamp(), false) AS is_overdue, a.decide_by, a.parameters
FROM rem.approvals a
WHERE a.tenant_id = $1 AND a.user_id IS NOT DISTINCT FROM $2 AND a.id = $3 AND a.deleted_at IS NULL
FOR UPDATE

-- name: approve
-- Record that the user approves, with the arguments of the user ($5) if they were edited.
UPDATE rem.approvals a
SET status = 'approved', decided_by = $4, decided_at = clock_timestamp(), parameters = coalesce($5::jsonb, a.parameters)
WHERE a.tenant_id = $1 AND a.user_id IS NOT DISTINCT FROM $2 AND a.id = $3 AND a.status = 'pending'

-- name: close
-- Record that a request ends without its action: $4 is the status. The texts are not needed any more.
UPDATE rem.approvals a
SET status = $4, decided_by = $5, decided_at = clock_timestamp(), outcome = $6, parameters = '{}', proposal = '{}',
    expires_at = clock_timestamp() + make_interval(days => $7)
WHERE a.tenant_id = $1 AND a.user_id IS NOT DISTINCT FROM $2 AND a.id = $3 AND a.status = 'pending'

-- name: begin_execution
-- Claim an approved action, once.
UPDATE rem.approvals a SET execution = 'running', executed_at = clock_timestamp()
WHERE a.tenant_id = $1 AND a.user_id IS NOT DISTINCT FROM $2 AND a.id = $3 AND a.status = 'approved' AND a.execution IS NULL
RETURNING a.id

-- name: end_execution
-- Record the end of an action: $4 is done or failed.
UPDATE rem.approvals a
SET execution = $4, executed_at = clock_timestamp(), outcome = $5, parameters = '{}', proposal = '{}',
    expires_at = clock_timestamp() + make_interval(days => $6)
WHERE a.tenant_id = $1 AND a.user_id IS NOT DISTINCT FROM $2 AND a.id = $3 AND a.execution = 'running'

-- name: save_run
INSERT INTO rem.approval_runs (tenant_id, user_id, approval_id, state) VALUES ($1, $2, $3, $4)

-- name: load_run
SELECT r.state, r.approval_id FROM rem.approval_runs r WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.approval_id = $3

-- name: delete_run
DELETE FROM rem.approval_runs r WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.approval_id = $3

-- name: drop_stale
-- End the requests of all owners that were not decided in time, or were approved more than an hour ago and never began, and delete their
-- runs. Actions that began more than an hour ago and never reported their end are marked: they are not repeated.
WITH overdue AS (
  UPDATE rem.approvals a
  SET status = 'expired', decided_at = clock_timestamp(), outcome = CASE a.status WHEN 'pending' THEN $1 ELSE $4 END,
      parameters = '{}', proposal = '{}', expires_at = clock_timestamp() + make_interval(days => $3)
  WHERE (a.status = 'pending' AND a.decide_by <= clock_timestamp())
    OR (a.status = 'approved' AND a.execution IS NULL AND a.decided_at < clock_timestamp() - interval '1 hour')
  RETURNING a.tenant_id, a.id),
lost AS (
  UPDATE rem.approvals a
  SET execution = 'unknown', outcome = $2, parameters = '{}', proposal = '{}',
      expires_at = clock_timestamp() + make_interval(days => $3)
  WHERE a.execution = 'running' AND a.executed_at < clock_timestamp() - interval '1 hour'
  RETURNING a.tenant_id, a.id),
runs AS (
  DELETE FROM rem.approval_runs r USING (SELECT * FROM overdue UNION SELECT * FROM lost) e
  WHERE (r.tenant_id, r.approval_id) = (e.tenant_id, e.id))
SELECT (SELECT count(*) FROM overdue) AS overdue, (SELECT count(*) FROM lost) AS lost

-- name: drop_repetitions
-- End the owner's other requests ($3 stays), also approved ones that never began, that may repeat a forgotten text: those with the messages of a run, those with a text to
-- store, and those about an erased row ($4). The remaining ones lose their words.
WITH other AS (
  SELECT a.tenant_id, a.id,
         a.tool_name <> 'forget' OR EXISTS (
           SELECT FROM jsonb_array_elements(a.proposal -> 'rows') AS e (item) WHERE e.item ->> 1 = ANY ($4::text[])) AS is_dropped
  FROM rem.approvals a
  WHERE a.tenant_id = $1 AND a.user_id IS NOT DISTINCT FROM $2 AND a.id <> $3
    AND (a.status = 'pending' OR (a.status = 'approved' AND a.execution IS NULL))),
runs AS (
  DELETE FROM rem.approval_runs r USING other o WHERE (r.tenant_id, r.approval_id) = (o.tenant_id, o.id))
UPDATE rem.approvals a
SET status = CASE WHEN o.is_dropped THEN 'rejected' ELSE 'pending' END,
    decided_by = CASE WHEN o.is_dropped THEN 'forgotten' END,
    decided_at = CASE WHEN o.is_dropped THEN clock_timestamp() END,
    parameters = '{}', proposal = CASE WHEN o.is_dropped THEN '{}' ELSE a.proposal END
FROM other o WHERE (a.tenant_id, a.id) = (o.tenant_id, o.id)
