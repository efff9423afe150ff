-- Erase the data of a benchmark, which is in its own tenant.

-- name: erase_sessions
DELETE FROM rem.sessions WHERE tenant_id = $1

-- name: erase_resources
DELETE FROM rem.resources WHERE tenant_id = $1

-- name: erase_dream_runs
-- Derived rows are erased with their sources; this erases the records of the runs.
DELETE FROM rem.dream_runs WHERE tenant_id = $1
