-- name: system_identifier
-- The same number on a primary and on all its replicas.
SELECT system_identifier FROM pg_control_system()

-- name: committed_position
-- The end of the WAL that is on disk. It contains each transaction whose commit was acknowledged.
SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint

-- name: replayed_position
-- The end of the WAL that the replica has replayed; -1 on a server that is not a replica (any more).
SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint ELSE -1 END
