-- name: server_info
-- Return everything that `rem.db.preflight` checks, in one round trip.
SELECT current_setting('server_version_num')::integer AS version_number,
       current_setting('server_version') AS version,
       current_database() AS database_name,
       current_user AS role_name,
       current_setting('server_encoding') AS encoding,
       -- The code comes from a row: the planner would evaluate a constant even if the encoding has no such letter.
       EXISTS (SELECT FROM unnest(ARRAY[203]) AS letter (code)
               WHERE getdatabaseencoding() = 'UTF8' AND lower(chr(code)) = chr(code + 32)) AS lowers_unicode,
       pg_is_in_recovery() AS is_replica,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       to_regnamespace('rem') IS NOT NULL AS has_schema,
       to_regnamespace('rem_unfinished_restore') IS NOT NULL AS is_restoring,
       coalesce(has_schema_privilege(to_regnamespace('rem'), 'USAGE, CREATE'), false) AS may_use_schema,
       (SELECT json_object_agg(a.name, json_build_object(
                 'available', a.default_version, 'installed', e.extversion, 'schema', n.nspname))
        FROM pg_available_extensions a
        LEFT JOIN pg_extension e ON e.extname = a.name
        LEFT JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE a.name IN ('vector', 'pg_trgm')) AS extensions

-- name: text_search_languages
-- Return the names of the text search configurations that SEARCH__LANGUAGE may name.
SELECT DISTINCT cfgname::text AS name FROM pg_ts_config WHERE pg_ts_config_is_visible(oid) ORDER BY name

-- name: operation
-- Return what `rem doctor` checks of a server that others share: its clock, its connections and its archive.
SELECT clock_timestamp() AS clock,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer AS max_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::integer AS connections,
       current_setting('archive_mode') <> 'off' AS is_archiving,
       a.last_archived_time AS archived_at,
       coalesce(a.last_failed_time > coalesce(a.last_archived_time, '-infinity'), false) AS is_archive_failing
FROM pg_stat_archiver a

-- name: durability
-- Return what decides which acknowledged writes survive a crash, or the loss of the server. A role without the rights of
-- pg_read_all_stats sees how many standbys there are, and not whether commits wait for them (null).
SELECT current_setting('wal_level') AS wal_level,
       current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean AS is_crash_safe,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       r.standbys, r.synchronous_standbys, pg_database_size(current_database()) AS size_bytes
FROM (SELECT count(*)::integer AS standbys,
             CASE WHEN bool_and(sync_state IS NOT NULL) OR count(*) = 0
                  THEN count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))::integer END AS synchronous_standbys
      FROM pg_stat_replication WHERE application_name <> 'pg_basebackup') r

-- name: identity
-- Return which server and database a connection leads to, and as whom.
SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier, current_database()::text AS database_name,
       current_user::text AS role_name, pg_is_in_recovery() AS is_standby, pg_backend_pid() AS backend_pid

-- name: standby
-- Return how a standby replays the log of its primary.
SELECT pg_get_wal_replay_pause_state() <> 'not paused' AS is_paused,
       current_setting('hot_standby_feedback')::boolean AS sends_feedback

-- name: stale_partitioned_tables
-- Count the divided tables with rows whose statistics are older than $1. Autovacuum analyses only their partitions.
SELECT count(*)::integer FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE c.relkind = 'p' AND c.relnamespace = to_regnamespace('rem')
  AND coalesce(s.last_analyze, '-infinity') < now() - $1::interval
  AND EXISTS (SELECT FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhrelid WHERE i.inhparent = c.oid AND p.reltuples > 0)

-- name: size
SELECT pg_database_size(current_database())
