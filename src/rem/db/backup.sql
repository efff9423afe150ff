-- name: lock
SELECT pg_advisory_lock(7236961, 1)

-- name: end_orphans
-- End the programs of restores whose process was killed, which would otherwise go on and commit. With the lock, no other restore runs.
SELECT pg_terminate_backend(a.pid, 10000) FROM pg_stat_activity a
WHERE a.application_name = 'rem-pg_restore' AND a.datname = current_database() AND a.usename = current_user

-- name: mark
-- As long as this schema exists, nobody takes the restored memory for a whole one.
CREATE SCHEMA IF NOT EXISTS rem_unfinished_restore

-- name: unmark
DROP SCHEMA IF EXISTS rem_unfinished_restore

-- name: has_tables
SELECT to_regclass('rem.entity_types') IS NOT NULL

-- name: drop_schema
DROP SCHEMA IF EXISTS rem, rem_jobs, rem_auth CASCADE

-- name: count_logins
SELECT (SELECT count(*) FROM rem_auth.accounts) + (SELECT count(*) FROM rem_auth.api_keys)

-- name: drop_partitions
-- In a transaction of its own: together they would need more locks than PostgreSQL allows by default.
DROP SCHEMA IF EXISTS rem_partitions CASCADE

-- name: protect
-- Take the rights of PUBLIC away again, and grant those of the SQL verb: a backup contains no rights.
SELECT rem.rem_sql_protect()

-- name: analyze
-- A backup contains no statistics, without which the planner guesses.
ANALYZE
