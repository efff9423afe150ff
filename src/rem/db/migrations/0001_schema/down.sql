-- Remove everything but the bookkeeping of the migrator and the extensions.

-- The rights that the SQL verb has, and what rem_sql_close_catalog() closed.
DO $$
DECLARE
  access rem.sql_access;
  statement text;
BEGIN
  SELECT * INTO access FROM rem.sql_access;
  FOREACH statement IN ARRAY coalesce(access.reopening, '{}') LOOP
    EXECUTE statement;
  END LOOP;
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = access.role_name) THEN
    EXECUTE format('REVOKE ALL ON SCHEMA rem FROM %I', access.role_name);
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA rem FROM %I', access.role_name);
    EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA rem FROM %I', access.role_name);
    -- A role without a password of ours was made by an administrator, who may need it elsewhere; and a clone of the
    -- database names the role of the one it was made from.
    IF access.password IS NOT NULL
       AND access.role_name = 'rem_sql_' || (SELECT oid FROM pg_database WHERE datname = current_database()) THEN
      EXECUTE format('DROP ROLE %I', access.role_name);
    END IF;
  END IF;
END $$;

-- Partitions go with their tables.
DO $$
DECLARE
  tables text;
  routine regprocedure;
  type_name regtype;
BEGIN
  SELECT string_agg(oid::regclass::text, ', ') INTO tables FROM pg_class
  WHERE relnamespace IN ('rem'::regnamespace, to_regnamespace('rem_jobs'), to_regnamespace('rem_auth'))
    AND relkind IN ('r', 'p') AND NOT relispartition AND relname NOT IN ('migrations', 'installed_functions');
  EXECUTE format('DROP TABLE %s CASCADE', tables);
  FOR routine IN
    SELECT oid FROM pg_proc p WHERE pronamespace IN ('rem'::regnamespace, to_regnamespace('rem_jobs'))
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    ORDER BY oid DESC
  LOOP
    EXECUTE format('DROP ROUTINE %s CASCADE', routine);
  END LOOP;
  FOR type_name IN
    SELECT oid FROM pg_type t WHERE typnamespace IN ('rem'::regnamespace, to_regnamespace('rem_jobs'))
      AND typtype IN ('c', 'e') AND (typrelid = 0 OR (SELECT relkind = 'c' FROM pg_class WHERE pg_class.oid = typrelid))
  LOOP
    EXECUTE format('DROP TYPE %s CASCADE', type_name);
  END LOOP;
END $$;

-- An administrator may have made these schemas, and owns them then.
DO $$
DECLARE
  schema_name text;
BEGIN
  FOREACH schema_name IN ARRAY '{rem_jobs,rem_auth}'::text[] LOOP
    IF pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = schema_name), 'USAGE') THEN
      EXECUTE format('DROP SCHEMA %I', schema_name);
    END IF;
  END LOOP;
END $$;
