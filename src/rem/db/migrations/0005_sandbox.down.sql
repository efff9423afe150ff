DO $$
DECLARE
  access rem.sql_access;
  statement text;
  table_name text;
  routine regprocedure;
BEGIN
  SELECT * INTO access FROM rem.sql_access;
  FOREACH statement IN ARRAY coalesce(access.reopening, '{}') LOOP
    EXECUTE statement;
  END LOOP;
  FOR table_name IN SELECT relname FROM pg_class WHERE relnamespace = 'rem'::regnamespace AND relrowsecurity LOOP
    EXECUTE format('DROP POLICY IF EXISTS rem_sql ON rem.%I', table_name);
    EXECUTE format('ALTER TABLE rem.%I DISABLE ROW LEVEL SECURITY', table_name);
  END LOOP;
  FOR routine IN
    SELECT oid FROM pg_proc p WHERE pronamespace = 'rem'::regnamespace AND proacl IS NOT NULL
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
  LOOP
    EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO PUBLIC', routine);
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
DROP TABLE sql_access;
