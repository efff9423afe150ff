-- name: jobs
-- Count the jobs by kind and state. The wait is that of the oldest job that is due.
SELECT kind, state, count(*) AS jobs,
       coalesce(extract(epoch FROM now() - min(greatest(created_at, due_at))
         FILTER (WHERE state = 'queued' AND due_at <= now())), 0)::float8 AS wait_seconds
FROM rem_jobs.jobs GROUP BY kind, state

-- name: ended_jobs
SELECT kind, outcome, count(*) AS jobs FROM rem_jobs.log WHERE ended_at > now() - interval '1 hour' GROUP BY kind, outcome

-- name: dream_runs
SELECT state, count(*) AS runs FROM rem.dream_runs WHERE started_at > now() - interval '1 day' GROUP BY state

-- name: server
-- The number of connections of all clients of the server, and the age of the oldest transaction that this role may see.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       current_setting('max_connections')::bigint AS max_connections,
       pg_database_size(current_database()) AS size_bytes,
       coalesce((SELECT extract(epoch FROM now() - min(xact_start)) FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_type = 'client backend'), 0)::float8
         AS oldest_transaction_seconds
