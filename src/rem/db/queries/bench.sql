-- What a benchmark on a database that is also used otherwise leaves behind, all of it in a tenant of its own.

-- name: erase_sessions
DELETE FROM rem.sessions WHERE tenant_id = $1

-- name: erase_resources
DELETE FROM rem.resources WHERE tenant_id = $1

-- name: erase_statements
-- What was dreamt has gone with its sources; this is the record that there was a dream.
DELETE FROM rem.dream_runs WHERE tenant_id = $1
