-- name: lock
SELECT pg_advisory_lock(7236961, 1)

-- name: has_tables
SELECT to_regclass('rem.entity_types') IS NOT NULL

-- name: drop_schema
DROP SCHEMA IF EXISTS rem, rem_jobs, rem_auth CASCADE

-- name: has_logins
SELECT to_regclass('rem_auth.accounts') IS NOT NULL

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
