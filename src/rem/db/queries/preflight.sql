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
