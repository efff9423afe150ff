-- name: enqueue
-- Add a job, and return its id and whether it is new: an equal one that waits is returned instead, and locked, so that it does not
-- start before this transaction has ended. Return no row if the owner has `$8` waiting jobs.
INSERT INTO rem_jobs.jobs (kind, tenant_id, user_id, payload, priority, dedupe_key, is_due, due_at)
SELECT $1, $2, $3, $4, $5::integer, $6, $7::interval <= '0', now() + $7::interval
WHERE $8::integer IS NULL
  OR (SELECT count(*) FROM (SELECT FROM rem_jobs.jobs w WHERE w.state = 'queued'
        AND w.owner_key = coalesce($2, '') || E'\x1f' || coalesce($3, '') LIMIT $8) waiting) < $8
  OR EXISTS (SELECT FROM rem_jobs.jobs e WHERE e.state = 'queued' AND e.dedupe_key = $6)
ON CONFLICT (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL DO UPDATE SET priority = rem_jobs.jobs.priority
RETURNING id, xmax = 0 AS is_new

-- name: list
-- Return jobs, the newest first. Dead jobs are ordered by the time of their death.
SELECT j.* FROM rem_jobs.jobs j
WHERE ($1::text IS NULL OR j.state = $1) AND ($2::text IS NULL OR j.kind = $2)
ORDER BY CASE WHEN j.state = 'dead' THEN j.changed_at ELSE j.created_at END DESC, j.id DESC
LIMIT $3

-- name: list_by_owner
SELECT j.* FROM rem_jobs.jobs j WHERE j.tenant_id = $1 AND j.user_id IS NOT DISTINCT FROM $2
ORDER BY j.created_at DESC, j.id DESC LIMIT $3

-- name: get
SELECT j.* FROM rem_jobs.jobs j WHERE j.id = $1

-- name: counts
SELECT kind, state, count(*) AS jobs, min(created_at) AS oldest FROM rem_jobs.jobs GROUP BY kind, state

-- name: ended
-- Count the jobs that ended recently. A job that died and was retried counts each time.
SELECT kind, outcome, count(*) AS jobs FROM rem_jobs.log WHERE ended_at > now() - $1::interval GROUP BY kind, outcome

-- name: schedules
SELECT kind, cron, next_at, last_at FROM rem_jobs.schedules ORDER BY kind

-- name: retry
-- Queue dead jobs again, the given ones or all. A job loses its dedupe key if an equal job waits: the key is unique. A job that was
-- running when its process ended stays under suspicion, and runs in a process of its own.
WITH dead AS (
  SELECT id, dedupe_key, row_number() OVER (PARTITION BY dedupe_key ORDER BY id) AS position
  FROM rem_jobs.jobs WHERE state = 'dead' AND ($1::bigint[] IS NULL OR id = ANY ($1))
)
UPDATE rem_jobs.jobs j
SET state = 'queued', is_due = true, due_at = now(), changed_at = now(), attempts = 0, losses = least(j.losses, 1),
    dedupe_key = CASE WHEN dead.position = 1 AND NOT EXISTS (
      SELECT FROM rem_jobs.jobs other WHERE other.dedupe_key = dead.dedupe_key AND other.state = 'queued') THEN dead.dedupe_key END
FROM dead WHERE j.id = dead.id AND j.state = 'dead'
RETURNING j.id

-- name: cancel
-- Remove jobs in any state, and notify the workers that run them.
WITH cancelled AS (
  DELETE FROM rem_jobs.jobs WHERE id = ANY ($1::bigint[]) RETURNING id, kind, state
), logged AS (
  INSERT INTO rem_jobs.log (job_id, kind, outcome) SELECT id, kind, 'cancelled' FROM cancelled
), notified AS (
  SELECT pg_notify('rem_jobs', id::text) FROM cancelled WHERE state = 'running'
)
SELECT id FROM cancelled WHERE (SELECT count(*) FROM notified) >= 0 ORDER BY id

-- name: find_by_owner
SELECT id FROM rem_jobs.jobs WHERE tenant_id = $1 AND user_id IS NOT DISTINCT FROM $2

-- name: erase_traces
-- Erase what is left of the jobs ($3) of an owner.
WITH places AS (DELETE FROM rem_jobs.turns WHERE tenant_id = $1 AND user_id IS NOT DISTINCT FROM $2)
DELETE FROM rem_jobs.log WHERE job_id = ANY ($3::bigint[])

-- name: trim
-- Delete old rows of the log, and the past turns of owners who were not served for an hour.
WITH past AS (DELETE FROM rem_jobs.turns WHERE NOT is_waiting AND served_at < now() - interval '1 hour')
DELETE FROM rem_jobs.log WHERE ended_at < now() - $1::interval

-- name: delays
-- Return how long the oldest due job has waited, and how many running jobs have a worker without a heartbeat for a time ($1).
SELECT coalesce(extract(epoch FROM now() - min(greatest(j.created_at, j.due_at))
         FILTER (WHERE j.state = 'queued' AND j.due_at <= now())), 0)::float8 AS oldest_due_seconds,
       count(*) FILTER (WHERE j.state = 'running' AND (w.beat_at > now() - $1::interval) IS NOT TRUE) AS silent_jobs
FROM rem_jobs.jobs j LEFT JOIN rem_jobs.workers w ON w.id = j.worker

-- name: register
INSERT INTO rem_jobs.workers (id) VALUES ($1) ON CONFLICT DO NOTHING

-- name: beat
-- Give a heartbeat, and return the jobs that the worker still holds. No row: another worker has declared it lost.
UPDATE rem_jobs.workers SET beat_at = clock_timestamp() WHERE id = $1
RETURNING ARRAY(SELECT j.id FROM rem_jobs.jobs j WHERE j.worker = $1 AND j.state = 'running') AS held

-- name: other_workers
SELECT id, beat_at FROM rem_jobs.workers WHERE id <> $1

-- name: lose_worker
SELECT * FROM rem.rem_lose_worker($1, $2, $3, $4)

-- name: take
SELECT * FROM rem.rem_take_jobs($1, $2, $3, $4)

-- name: seconds_to_next
-- Return the seconds until the next delayed job is due.
SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 AS seconds
FROM rem_jobs.jobs WHERE state = 'queued' AND NOT is_due

-- name: count_queued
SELECT count(*) AS jobs FROM rem_jobs.jobs WHERE kind = ANY ($1) AND state = 'queued' AND id <> ALL ($2::bigint[])

-- name: end
-- Store how runs ended: remove what is done, keep what is dead, queue the rest again. Only the worker that holds a job may do so:
-- what a worker says that was declared lost is ignored.
WITH runs AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::float8[], $5::integer[], $6::integer[], $7::text[])
    AS e (id, worker, outcome, delay, failed, lost, error)
), done AS (
  DELETE FROM rem_jobs.jobs j USING runs e WHERE j.id = e.id AND j.worker = e.worker AND e.outcome = 'done'
  RETURNING j.id, j.kind, e.outcome
), dead AS (
  UPDATE rem_jobs.jobs j
  SET state = 'dead', worker = NULL, attempts = j.attempts + e.failed, losses = j.losses + e.lost, error = e.error, changed_at = now()
  FROM runs e WHERE j.id = e.id AND j.worker = e.worker AND e.outcome = 'dead'
  RETURNING j.id, j.kind, e.outcome
), logged AS (
  INSERT INTO rem_jobs.log (job_id, kind, outcome) SELECT * FROM done UNION ALL SELECT * FROM dead
)
SELECT rem.rem_requeue_job(id, worker, make_interval(secs => delay), failed, lost, error) FROM runs WHERE outcome = 'queued'

-- name: requeue_unknown
-- After a lost connection: queue the jobs again that this worker took without ever receiving the answer.
SELECT rem.rem_requeue_job(id, worker, '0', 0, 0, NULL) FROM rem_jobs.jobs WHERE worker = $1 AND id <> ALL ($2::bigint[])

-- name: leave
-- Queue all jobs of a worker that ends, and remove it.
WITH requeued AS (
  SELECT rem.rem_requeue_job(id, worker, '0', 0, 0, NULL) FROM rem_jobs.jobs WHERE worker = $1
), removed AS (
  DELETE FROM rem_jobs.workers WHERE id = $1
)
SELECT count(*) FROM requeued

-- name: plan
-- Store when a kind of job is due next ($3), unless that is known for this cron expression.
INSERT INTO rem_jobs.schedules (kind, cron, next_at) VALUES ($1, $2, $3)
ON CONFLICT (kind) DO UPDATE SET cron = $2, next_at = $3 WHERE schedules.cron <> $2

-- name: unplan
DELETE FROM rem_jobs.schedules WHERE kind <> ALL ($1)

-- name: due_schedules
SELECT kind, next_at, now() AS now FROM rem_jobs.schedules WHERE kind = ANY ($1) AND next_at <= now()

-- name: fire
-- Enqueue a scheduled job ($3: its dedupe key), and store its next time ($4). Only one worker does that for each time ($2).
WITH fired AS (
  UPDATE rem_jobs.schedules SET last_at = now(), next_at = $4 WHERE kind = $1 AND next_at = $2 RETURNING kind
)
INSERT INTO rem_jobs.jobs (kind, dedupe_key) SELECT kind, $3 FROM fired
ON CONFLICT (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL DO NOTHING
