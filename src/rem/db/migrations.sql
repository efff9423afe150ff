-- name: bookkeeping
-- The down script is stored, so a process without the source of a migration can undo it.
CREATE SCHEMA IF NOT EXISTS rem;
CREATE TABLE IF NOT EXISTS rem.migrations (
  position integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE,
  checksum text NOT NULL,
  down_script text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS rem.installed_functions (checksum text NOT NULL);

-- name: lock
SELECT pg_advisory_xact_lock(7236961, 1)

-- name: has_bookkeeping
SELECT to_regclass('rem.migrations') IS NOT NULL AND to_regclass('rem.installed_functions') IS NOT NULL

-- name: applied
SELECT name, checksum, down_script, applied_at FROM rem.migrations ORDER BY position

-- name: has_migration
SELECT EXISTS (SELECT FROM rem.migrations WHERE name = $1)

-- name: functions_checksum
SELECT checksum FROM rem.installed_functions

-- name: record
INSERT INTO rem.migrations (name, checksum, down_script) VALUES ($1, $2, $3)

-- name: delete
DELETE FROM rem.migrations WHERE name = $1

-- name: record_functions
INSERT INTO rem.installed_functions (checksum) VALUES ($1)

-- name: delete_functions
DELETE FROM rem.installed_functions

-- name: functions_by_name
-- The order of creation: a function comes before those that call it.
SELECT string_agg(p.oid::regprocedure::text, ', ' ORDER BY p.oid) FROM pg_proc p
WHERE p.pronamespace = 'rem'::regnamespace AND p.proname = ANY ($1::text[])

-- name: rebuild
SELECT rem.rem_rebuild_kv_store(), rem.rem_rebuild_edges()

-- name: role_defaults
-- Set what REM otherwise sets for each connection: a connection pooler passes only a few settings on.
DO $$ BEGIN
  EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET search_path = {search_path}', current_database());
  EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET jit = off', current_database());
  IF EXISTS (SELECT FROM pg_class WHERE relnamespace = 'rem'::regnamespace AND relkind = 'p') THEN
    EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET plan_cache_mode = force_generic_plan', current_database());
  END IF;
END $$

-- name: has_schemas
SELECT current_schemas(false)::text[] @> $1::text[]

-- name: index_embeddings
SELECT rem.rem_index_embeddings($1), rem.rem_name_partition_indexes()

-- name: kv_tables
-- Return the tables that hold the rows of kv_store, the table itself or its partitions, with this persistence (p: logged, u: unlogged).
SELECT c.oid::regclass::text FROM pg_class c
WHERE c.oid IN (SELECT 'rem.kv_store'::regclass UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = 'rem.kv_store'::regclass)
  AND c.relkind = 'r' AND c.relpersistence = $1::text::"char"

-- name: oldest_transactions
-- Describe the oldest transactions of other sessions, which may hold tables.
SELECT string_agg(format('process %s (%s) for %s s', o.pid, coalesce(nullif(o.application_name, ''), 'unnamed'),
                         round(extract(epoch FROM clock_timestamp() - o.xact_start))), ', ' ORDER BY o.xact_start)
FROM (SELECT pid, application_name, xact_start FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
        AND backend_type = 'client backend'
      ORDER BY xact_start LIMIT 3) o
