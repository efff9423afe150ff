-- Queries of experiments, always for one owner ($1 the tenant, $2 the user). A run of another owner does not exist for them.

-- name: lock_numbers
-- Let one transaction at a time number the runs of an owner.
SELECT pg_advisory_xact_lock(hashtextextended('rem.eval_runs:' || $1::text || ':' || coalesce($2::text, ''), 0))

-- name: insert_run
-- Insert a run with the next number of its name.
INSERT INTO rem.eval_runs (tenant_id, user_id, name, number, golden_set, target, evaluators, versions, seed)
SELECT $1, $2, $3,
       coalesce((SELECT max(r.number) FROM rem.eval_runs r
                 WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.name = $3), 0) + 1,
       $4, $5::jsonb, $6::jsonb, $7::jsonb, $8
RETURNING *

-- name: insert_cases
-- Insert the cases of a run in their order, before any of them runs.
INSERT INTO rem.eval_cases (tenant_id, user_id, run_id, position, case_id, golden)
SELECT $1, $2, $3, c.position, c.case_id, c.golden::jsonb
FROM unnest($4::text[], $5::text[]) WITH ORDINALITY AS c (case_id, golden, position)

-- name: list_runs
-- Return the owner's runs, latest first, with the number of cases, of outputs and of errors.
SELECT r.*, n.cases, n.outputs, n.errors
FROM rem.eval_runs r
CROSS JOIN LATERAL (
  SELECT count(*) AS cases, count(c.ended_at) AS outputs, count(c.error) AS errors
  FROM rem.eval_cases c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id) n
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND ($3::text IS NULL OR r.name = $3)
ORDER BY r.created_at DESC, r.id LIMIT $4

-- name: find_run
-- Return the run with an id ($3), or the run of a name ($4) with a number ($5), or its latest run.
SELECT r.* FROM rem.eval_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2
  AND (r.id = $3::uuid OR (r.name = $4 AND ($5::integer IS NULL OR r.number = $5)))
ORDER BY r.number DESC LIMIT 1

-- name: find_previous
-- Return the latest finished run of the same name before a number ($4).
SELECT r.* FROM rem.eval_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.name = $3 AND r.number < $4 AND r.ended_at IS NOT NULL
ORDER BY r.number DESC LIMIT 1

-- name: try_lock_run
-- Let one process at a time work on a run. The lock ends with the connection.
SELECT pg_try_advisory_lock(hashtextextended('rem.eval_run:' || $1::uuid::text, 0))

-- name: list_cases
SELECT c.position, c.case_id, c.golden, c.output, c.details, c.error, c.seconds, c.ended_at
FROM rem.eval_cases c
WHERE c.tenant_id = $1 AND c.user_id IS NOT DISTINCT FROM $2 AND c.run_id = $3 ORDER BY c.position

-- name: save_output
-- Store the output of a case, once.
UPDATE rem.eval_cases c SET output = $5::jsonb, details = $6::jsonb, error = $7, seconds = $8, ended_at = clock_timestamp()
WHERE c.tenant_id = $1 AND c.user_id IS NOT DISTINCT FROM $2 AND c.run_id = $3 AND c.position = $4 AND c.ended_at IS NULL

-- name: clear_errors
-- Let the failed cases of a run, and the failed evaluators, run again.
WITH scores AS (
  DELETE FROM rem.eval_scores s USING rem.eval_cases c
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.run_id = $3
    AND (c.tenant_id, c.run_id, c.position) = (s.tenant_id, s.run_id, s.position)
    AND (s.error IS NOT NULL OR c.error IS NOT NULL))
UPDATE rem.eval_cases c SET error = NULL, output = NULL, details = NULL, seconds = NULL, ended_at = NULL
WHERE c.tenant_id = $1 AND c.user_id IS NOT DISTINCT FROM $2 AND c.run_id = $3 AND c.error IS NOT NULL

-- name: list_scores
SELECT s.position, s.evaluator, s.scores, s.explanation, s.error, s.seconds
FROM rem.eval_scores s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.run_id = $3 ORDER BY s.position, s.evaluator

-- name: save_scores
-- Store the scores of a case by one evaluator, once.
INSERT INTO rem.eval_scores (tenant_id, user_id, run_id, position, evaluator, scores, explanation, error, seconds)
VALUES ($1, $2, $3, $4, $5, $6::jsonb, $7, $8, $9) ON CONFLICT DO NOTHING

-- name: set_evaluators
-- Replace the evaluators of a run, and delete the scores of those that are not in it any more or that changed ($6).
WITH scores AS (
  DELETE FROM rem.eval_scores s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.run_id = $3 AND s.evaluator = ANY ($6::text[]))
UPDATE rem.eval_runs r SET evaluators = $4::jsonb, versions = $5::jsonb, ended_at = NULL
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.id = $3
RETURNING r.*

-- name: end_run
-- Mark a run as complete or, if errors are to run again, as not complete ($4).
UPDATE rem.eval_runs r SET ended_at = CASE WHEN $4 THEN clock_timestamp() END
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.id = $3
RETURNING r.*

-- name: delete_run
DELETE FROM rem.eval_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.id = $3 RETURNING r.id
