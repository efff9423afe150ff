-- name: enqueue
-- Add a job unless an equal one is queued or running. This is the statement of pgqueuer 1.6; a test compares them.
WITH added AS (
  INSERT INTO rem_jobs.pgqueuer (priority, entrypoint, payload, execute_after, dedupe_key, headers, status)
  VALUES ($1, $2, $3, now() + $4::interval, $5, $6::text::jsonb, 'queued')
  ON CONFLICT (dedupe_key) WHERE status IN ('queued', 'picked') AND dedupe_key IS NOT NULL DO NOTHING
  RETURNING id, entrypoint, priority
), logged AS (
  INSERT INTO rem_jobs.pgqueuer_log (job_id, status, entrypoint, priority)
  SELECT id, 'queued', entrypoint, priority FROM added
)
SELECT id FROM added

-- name: equal_job
SELECT id, status = 'picked' AS is_running FROM rem_jobs.pgqueuer WHERE dedupe_key = $1 AND status IN ('queued', 'picked')

-- name: count_queued
SELECT count(*) AS jobs FROM rem_jobs.pgqueuer WHERE entrypoint = ANY ($1) AND status = 'queued' AND id <> ALL ($2::bigint[])

-- name: is_running
SELECT EXISTS (SELECT FROM rem_jobs.pgqueuer WHERE id = $1 AND status = 'picked') AS is_running

-- name: list
-- Return jobs, the newest first. Dead jobs are ordered by the time of their death.
SELECT id, entrypoint, status::text, priority, attempts, created, updated, execute_after, payload, headers::text
FROM rem_jobs.pgqueuer
WHERE ($1::text IS NULL OR status::text = $1) AND ($2::text IS NULL OR entrypoint = $2)
ORDER BY CASE WHEN status = 'failed' THEN updated ELSE created END DESC, id DESC
LIMIT $3

-- name: list_by_owner
SELECT id, entrypoint, status::text, priority, attempts, created, updated, execute_after, payload, headers::text
FROM rem_jobs.pgqueuer
WHERE headers ->> 'tenant_id' = $1 AND headers ->> 'user_id' IS NOT DISTINCT FROM $2
ORDER BY created DESC, id DESC
LIMIT $3

-- name: get
SELECT id, entrypoint, status::text, priority, attempts, created, updated, execute_after, payload, headers::text
FROM rem_jobs.pgqueuer WHERE id = $1

-- name: counts
SELECT entrypoint, status::text, count(*) AS jobs, min(created) AS oldest
FROM rem_jobs.pgqueuer GROUP BY entrypoint, status ORDER BY entrypoint, status

-- name: ended
-- Count the jobs that ended recently. A job that died and was retried counts each time.
SELECT entrypoint, status::text, count(*) AS jobs FROM rem_jobs.pgqueuer_log
WHERE created > now() - $1::interval AND status IN ('successful', 'failed', 'canceled')
GROUP BY entrypoint, status ORDER BY entrypoint, status

-- name: schedules
SELECT DISTINCT ON (entrypoint) entrypoint, expression, next_run, last_run
FROM rem_jobs.pgqueuer_schedules ORDER BY entrypoint, updated DESC

-- name: retry
-- Queue dead jobs again, the given ones or all. A job loses its dedupe key if an equal job is queued: the key is unique.
WITH dead AS (
  SELECT id, dedupe_key, row_number() OVER (PARTITION BY dedupe_key ORDER BY id) AS position
  FROM rem_jobs.pgqueuer WHERE status = 'failed' AND ($1::bigint[] IS NULL OR id = ANY ($1))
), retried AS (
  UPDATE rem_jobs.pgqueuer j
  SET status = 'queued', execute_after = now(), updated = now(), attempts = 0, queue_manager_id = NULL,
      dedupe_key = CASE WHEN dead.position = 1 AND NOT EXISTS (
        SELECT FROM rem_jobs.pgqueuer other
        WHERE other.dedupe_key = dead.dedupe_key AND other.status IN ('queued', 'picked')) THEN dead.dedupe_key END
  FROM dead WHERE j.id = dead.id AND j.status = 'failed'
  RETURNING j.id, j.entrypoint, j.priority
), logged AS (
  INSERT INTO rem_jobs.pgqueuer_log (job_id, status, entrypoint, priority)
  SELECT id, 'queued', entrypoint, priority FROM retried
), woken AS (
  SELECT rem_jobs.wake_workers('update') FROM retried LIMIT 1
)
SELECT id FROM retried WHERE (SELECT count(*) FROM woken) <= 1 ORDER BY id

-- name: cancel
-- Remove jobs in any state, and notify the workers that run them.
WITH cancelled AS (
  DELETE FROM rem_jobs.pgqueuer WHERE id = ANY ($1::bigint[])
  RETURNING id, entrypoint, priority, status
), logged AS (
  INSERT INTO rem_jobs.pgqueuer_log (job_id, status, entrypoint, priority)
  SELECT id, 'canceled', entrypoint, priority FROM cancelled
), notified AS (
  SELECT pg_notify('rem_jobs', json_build_object('type', 'cancellation_event', 'channel', 'rem_jobs',
    'ids', json_build_array(id), 'sent_at', now())::text) FROM cancelled WHERE status = 'picked'
)
SELECT id FROM cancelled WHERE (SELECT count(*) FROM notified) >= 0 ORDER BY id

-- name: find_by_owner
SELECT id FROM rem_jobs.pgqueuer
WHERE headers ->> 'tenant_id' = $1 AND headers ->> 'user_id' IS NOT DISTINCT FROM $2

-- name: erase_log
DELETE FROM rem_jobs.pgqueuer_log WHERE job_id = ANY ($1::bigint[])

-- name: trim_log
DELETE FROM rem_jobs.pgqueuer_log WHERE created < now() - $1::interval

-- name: heartbeat
-- Renew the heartbeat of the jobs that a worker still holds, and return their ids.
UPDATE rem_jobs.pgqueuer SET heartbeat = now()
WHERE id = ANY ($1::bigint[]) AND queue_manager_id = $2 AND status = 'picked'
RETURNING id

-- name: finish
-- Write the end of runs: remove a successful job, keep a failed one as dead, queue an interrupted one again. Only the worker
-- that holds a job may do so: after a takeover the result of the old worker is ignored.
WITH runs AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[]) AS e (id, worker, status, error)
), done AS (
  DELETE FROM rem_jobs.pgqueuer j USING runs e
  WHERE j.id = e.id AND j.queue_manager_id = e.worker AND j.status = 'picked' AND e.status = 'successful'
  RETURNING j.id, j.entrypoint, j.priority, e.status
), dead AS (
  UPDATE rem_jobs.pgqueuer j
  SET status = 'failed', updated = now(), queue_manager_id = NULL, attempts = j.attempts + 1,
      headers = coalesce(j.headers, '{}') || jsonb_build_object('error', e.error::jsonb)
  FROM runs e
  WHERE j.id = e.id AND j.queue_manager_id = e.worker AND j.status = 'picked' AND e.status = 'failed'
  RETURNING j.id, j.entrypoint, j.priority, e.status
), interrupted AS (
  UPDATE rem_jobs.pgqueuer j SET status = 'queued', updated = now(), queue_manager_id = NULL
  FROM runs e
  WHERE j.id = e.id AND j.queue_manager_id = e.worker AND j.status = 'picked' AND e.status = 'canceled'
  RETURNING j.id, j.entrypoint, j.priority, 'queued' AS status
)
INSERT INTO rem_jobs.pgqueuer_log (job_id, status, entrypoint, priority)
SELECT id, status::rem_jobs.pgqueuer_status, entrypoint, priority
FROM (SELECT * FROM done UNION ALL SELECT * FROM dead UNION ALL SELECT * FROM interrupted) finished

-- name: requeue
-- Queue a job again after a delay ($3), with used-up attempts ($4: 0 or 1) and the error of the last attempt ($5).
WITH requeued AS (
  UPDATE rem_jobs.pgqueuer
  SET status = 'queued', updated = now(), queue_manager_id = NULL, execute_after = now() + $3::interval,
      attempts = attempts + $4,
      headers = CASE WHEN $5::text IS NULL THEN headers
                ELSE coalesce(headers, '{}') || jsonb_build_object('error', $5::text::jsonb) END
  WHERE id = $1 AND queue_manager_id = $2 AND status = 'picked'
  RETURNING id, entrypoint, priority
), logged AS (
  INSERT INTO rem_jobs.pgqueuer_log (job_id, status, entrypoint, priority)
  SELECT id, 'queued', entrypoint, priority FROM requeued
)
SELECT rem_jobs.wake_workers('update') FROM requeued

-- name: requeue_unknown
-- After a lost connection: queue the jobs again that this worker took without ever receiving the answer.
UPDATE rem_jobs.pgqueuer SET status = 'queued', updated = now(), queue_manager_id = NULL
WHERE queue_manager_id = $1 AND status = 'picked' AND id <> ALL ($2::bigint[])

-- name: delays
-- Return how long the oldest due job has waited, and how many running jobs had no heartbeat for a time ($1).
SELECT coalesce(extract(epoch FROM now() - min(greatest(created, execute_after))
         FILTER (WHERE status = 'queued' AND execute_after <= now())), 0)::float8 AS oldest_due_seconds,
       count(*) FILTER (WHERE status = 'picked' AND heartbeat < now() - $1::interval) AS silent_jobs
FROM rem_jobs.pgqueuer
