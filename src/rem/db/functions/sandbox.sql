-- The protections of the SQL verb. A query runs as a login role that owns nothing, and only through rem_sql_run. Policies
-- decide which rows it sees, from a signed scope. See docs/decisions/0006-sql-sandbox.md.

-- Return the scope of the running query: {tenant, user}. A query can set `rem.scope` to any text, so it is valid only with a
-- signature made with the secret keys, and only in the transaction and backend that it was signed for.
CREATE OR REPLACE FUNCTION rem_sql_scope() RETURNS text[] LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  signed text := current_setting('rem.scope', true);
  payload text := substr(signed, 66);
  scope jsonb;
BEGIN
  IF left(signed, 65) = (SELECT encode(sha256(a.outer_key || sha256(a.inner_key || convert_to(payload, 'UTF8'))), 'hex') || ':'
                         FROM rem.sql_access a) THEN
    scope := payload;
    IF (scope ->> 0)::integer = pg_backend_pid() AND (scope ->> 1)::bigint = (extract(epoch FROM now()) * 1000000)::bigint THEN
      RETURN ARRAY[scope ->> 2, scope ->> 3];
    END IF;
  END IF;
  RAISE EXCEPTION 'the scope of this query is not genuine' USING ERRCODE = 'insufficient_privilege';
END $$;

-- Set the scope of the transaction. It runs with the rights of the owner, because the role may not call set_config.
CREATE OR REPLACE FUNCTION rem_sql_set_scope(scope text) RETURNS void LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('rem.scope', scope, true);
END $$;

-- Run a SELECT of a user and return each row as JSON. A last row that is NULL means that `max_bytes` was not enough.
-- STABLE is a protection: in a stable function PostgreSQL runs only a SELECT that neither writes nor locks. The loop accepts
-- exactly one statement. As a parameter, the statement is invisible to others in pg_stat_activity.
CREATE OR REPLACE FUNCTION rem_sql_run(scope text, statement text, max_rows integer, max_bytes integer) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  result_row record;
  line text;
  rows_left integer := max_rows;
  bytes_left bigint := max_bytes;
BEGIN
  PERFORM rem.rem_sql_set_scope(scope);
  FOR result_row IN EXECUTE statement LOOP
    line := pg_catalog.row_to_json(result_row);
    rows_left := rows_left - 1;
    bytes_left := bytes_left - octet_length(line);
    IF bytes_left < 0 THEN
      RETURN NEXT NULL;
      RETURN;
    END IF;
    RETURN NEXT line;
    EXIT WHEN rows_left <= 0;
  END LOOP;
END $$;

-- Return the functions that a query may call: all IMMUTABLE functions, because they only compute; the functions of operators
-- and casts; and the other functions named here. Excluded are functions that make gigabytes from a number, and functions that
-- compare texts character by character without checking for a cancel. (rem_key needs the remaining btrim.)
CREATE OR REPLACE FUNCTION rem_sql_functions() RETURNS TABLE (routine oid, name text) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.oid, p.proname::text FROM pg_proc p
  WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname !~ '^(xml|xpath|pg_snapshot_|txid_|lo_)'
    AND p.proname <> ALL ('{repeat,lpad,rpad,array_fill,set_masklen,pg_partition_root,pg_visible_in_snapshot,
      translate,strpos,position}')
    AND NOT (p.proname IN ('btrim', 'ltrim', 'rtrim') AND p.pronargs = 2 AND p.oid <> 'btrim(text, text)'::regprocedure)
    AND (p.provolatile = 'i'
      OR p.oid IN (SELECT oprcode FROM pg_operator) OR p.oid IN (SELECT castfunc FROM pg_cast)
      OR p.proname = ANY ('{age,array_to_json,array_to_string,clock_timestamp,concat,concat_ws,convert_from,convert_to,
        date_add,date_part,date_subtract,date_trunc,enum_first,enum_last,enum_range,extract,gen_random_uuid,
        generate_series,json_agg,json_agg_strict,json_build_array,json_build_object,json_object_agg,json_object_agg_strict,
        json_object_agg_unique,json_object_agg_unique_strict,json_populate_record,json_populate_recordset,json_to_record,
        json_to_recordset,jsonb_agg,jsonb_agg_strict,jsonb_build_array,jsonb_build_object,jsonb_object_agg,
        jsonb_object_agg_strict,jsonb_object_agg_unique,jsonb_object_agg_unique_strict,jsonb_path_exists_tz,
        jsonb_path_match_tz,jsonb_path_query_array_tz,jsonb_path_query_first_tz,jsonb_path_query_tz,jsonb_populate_record,
        jsonb_populate_recordset,jsonb_to_record,jsonb_to_recordset,length,make_timestamptz,now,overlaps,phraseto_tsquery,
        pg_input_is_valid,pg_typeof,plainto_tsquery,quote_literal,quote_nullable,random,random_normal,row_to_json,
        statement_timestamp,timeofday,timezone,to_char,to_date,to_json,to_jsonb,to_number,to_timestamp,to_tsquery,
        to_tsvector,transaction_timestamp,ts_headline,uuidv4,uuidv7,websearch_to_tsquery,json_to_tsvector,
        jsonb_to_tsvector,timestamptz}'))
  UNION ALL
  SELECT p.oid, p.proname::text FROM pg_proc p
  JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname IN ('vector', 'pg_trgm')
  WHERE p.provolatile = 'i' OR p.oid IN (SELECT oprcode FROM pg_operator)
  UNION ALL
  SELECT p.oid, p.proname::text FROM pg_proc p
  WHERE p.pronamespace = 'rem'::regnamespace AND p.proname IN ('rem_key', 'rem_compact_key', 'rem_fold', 'rem_key_of_clean_label')
$$;

-- Return the tables that a query may read: entity tables and mirrors.
CREATE OR REPLACE FUNCTION rem_sql_tables() RETURNS SETOF text LANGUAGE sql STABLE AS $$
  SELECT name FROM rem.entity_types UNION ALL VALUES ('kv_store'), ('edges')
$$;

-- Return the condition for visible rows of a table. The scope is read once per query (an InitPlan), so the owner index is used.
CREATE OR REPLACE FUNCTION rem_sql_policy(table_name text) RETURNS text LANGUAGE sql STABLE
RETURN
  'tenant_id = (SELECT (rem.rem_sql_scope())[1]) AND (user_id = (SELECT (rem.rem_sql_scope())[2]) OR user_id IS NULL)'
  || CASE table_name
    WHEN 'kv_store' THEN ' AND (expires_at IS NULL OR expires_at > now())'
    -- An edge is visible if its source row is visible.
    WHEN 'edges' THEN ' AND EXISTS (SELECT FROM rem.kv_store k WHERE k.tenant_id = edges.tenant_id
                        AND k.entity_id = edges.src_id AND k.entity_type = edges.src_type)'
    ELSE ' AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > now())'
  END;

-- Return true if an access list gives a privilege to PUBLIC.
CREATE OR REPLACE FUNCTION rem_sql_grants_public(acl aclitem[], kind "char", owner oid, privilege text) RETURNS boolean
LANGUAGE sql STABLE
RETURN EXISTS (SELECT FROM aclexplode(coalesce(acl, acldefault(kind, owner))) a
               WHERE a.grantee = 0 AND a.privilege_type = privilege);

-- Create the policy on every table that has none yet, and revoke REM's functions from PUBLIC. Policies do not apply to the
-- owner, as whom REM's other verbs run.
CREATE OR REPLACE FUNCTION rem_sql_protect() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  table_name text;
  routine regprocedure;
BEGIN
  FOR table_name IN
    SELECT t FROM rem.rem_sql_tables() t JOIN pg_class c ON c.oid = format('rem.%I', t)::regclass
    WHERE NOT c.relrowsecurity OR NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid AND polname = 'rem_sql')
  LOOP
    EXECUTE format('ALTER TABLE rem.%I ENABLE ROW LEVEL SECURITY', table_name);
    EXECUTE format('CREATE POLICY rem_sql ON rem.%I FOR SELECT USING (%s)', table_name, rem.rem_sql_policy(table_name));
  END LOOP;
  FOR routine IN
    SELECT p.oid FROM pg_proc p
    WHERE p.pronamespace = 'rem'::regnamespace AND rem.rem_sql_grants_public(p.proacl, 'f', p.proowner, 'EXECUTE')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
  LOOP
    EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', routine);
  END LOOP;
  PERFORM rem.rem_sql_grant(a.role_name) FROM rem.sql_access a JOIN pg_roles r ON r.rolname = a.role_name
    -- A clone of a database still has the role name of its original.
    WHERE a.password IS NULL OR a.role_name = rem.rem_sql_role_name();
END $$;

-- Grant the role the rights it needs, and no more.
CREATE OR REPLACE FUNCTION rem_sql_grant(role_name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  table_name text;
  routine regprocedure;
BEGIN
  IF NOT has_schema_privilege(role_name, 'rem', 'USAGE') THEN
    EXECUTE format('GRANT USAGE ON SCHEMA rem TO %I', role_name);
  END IF;
  FOR table_name IN SELECT t FROM rem.rem_sql_tables() t WHERE NOT has_table_privilege(role_name, format('rem.%I', t), 'SELECT') LOOP
    EXECUTE format('GRANT SELECT ON rem.%I TO %I', table_name, role_name);
  END LOOP;
  FOR routine IN
    SELECT p.oid FROM pg_proc p
    WHERE p.pronamespace = 'rem'::regnamespace AND NOT has_function_privilege(role_name, p.oid, 'EXECUTE')
      AND (p.proname IN ('rem_sql_scope', 'rem_sql_set_scope', 'rem_sql_run') OR p.oid IN (SELECT f.routine FROM rem.rem_sql_functions() f))
  LOOP
    EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', routine, role_name);
  END LOOP;
END $$;

-- Return the role name for this database. Roles belong to the whole server, so the name contains the oid of the database.
CREATE OR REPLACE FUNCTION rem_sql_role_name() RETURNS text LANGUAGE sql STABLE
RETURN 'rem_sql_' || (SELECT oid FROM pg_database WHERE datname = current_database());

-- Return the login of the SQL verb. The first caller creates the role; concurrent callers wait for its lock.
CREATE OR REPLACE FUNCTION rem_sql_login(OUT role_name text, OUT role_password text) LANGUAGE plpgsql AS $$
BEGIN
  role_name := rem.rem_sql_role_name();
  SELECT a.password INTO role_password FROM rem.sql_access a JOIN pg_roles r ON r.rolname = a.role_name AND r.rolcanlogin
    WHERE a.role_name = rem_sql_login.role_name;
  IF role_password IS NOT NULL THEN
    RETURN;
  END IF;
  PERFORM FROM rem.sql_access FOR UPDATE;
  SELECT a.password INTO role_password FROM rem.sql_access a JOIN pg_roles r ON r.rolname = a.role_name AND r.rolcanlogin
    WHERE a.role_name = rem_sql_login.role_name;
  IF role_password IS NOT NULL THEN
    RETURN;
  END IF;
  role_password := translate(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
  IF EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
    -- Left over from an earlier database with the same oid, or its password was lost.
    EXECUTE format('ALTER ROLE %I LOGIN NOINHERIT PASSWORD %L', role_name, role_password);
  ELSE
    EXECUTE format('CREATE ROLE %I LOGIN NOINHERIT PASSWORD %L', role_name, role_password);
  END IF;
  EXECUTE format('ALTER ROLE %I SET default_transaction_read_only = on', role_name);
  BEGIN
    EXECUTE format('ALTER ROLE %I SET temp_file_limit = %L', role_name, '256MB');
  EXCEPTION WHEN insufficient_privilege THEN
    -- Only a superuser may set it; rem_sql_security_gaps() reports it.
    NULL;
  END;
  UPDATE rem.sql_access SET role_name = rem_sql_login.role_name, password = role_password;
  PERFORM rem.rem_sql_protect();
END $$;

-- Use a role that an administrator created.
CREATE OR REPLACE FUNCTION rem_sql_use_role(new_role_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM rem.sql_access WHERE role_name IS DISTINCT FROM new_role_name OR password IS NOT NULL) THEN
    UPDATE rem.sql_access SET role_name = new_role_name, password = NULL;
    PERFORM rem.rem_sql_protect();
  END IF;
END $$;

-- Return the rights that a role must not have to run queries of users. No row means that the role is safe.
CREATE OR REPLACE FUNCTION rem_sql_unsafe_rights(of_role text) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
DECLARE
  role pg_roles;
BEGIN
  SELECT * INTO role FROM pg_roles WHERE rolname = of_role;
  IF role.oid IS NULL THEN
    RETURN NEXT format('there is no role %s', of_role);
    RETURN;
  END IF;
  RETURN QUERY
    SELECT format('it is %s', attribute) FROM (VALUES
      ('a superuser', role.rolsuper), ('free of row-level security (BYPASSRLS)', role.rolbypassrls),
      ('allowed to create roles', role.rolcreaterole), ('allowed to create databases', role.rolcreatedb),
      ('a replication role', role.rolreplication), ('the role that owns REM''s tables', role.rolname = current_user)
    ) AS attributes (attribute, is_set) WHERE is_set
    UNION ALL
    SELECT format('it is a member of the role %s', pg_get_userbyid(roleid)) FROM pg_auth_members WHERE member = role.oid
    UNION ALL
    SELECT 'it owns something on this server' WHERE EXISTS (
      SELECT FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = role.oid AND deptype = 'o')
    UNION ALL
    SELECT format('it may read rem.%s, which no policy protects', relname) FROM pg_class c
    WHERE relnamespace = 'rem'::regnamespace AND relkind IN ('r', 'v', 'm', 'p', 'f') AND NOT relrowsecurity
      AND has_any_column_privilege(role.oid, c.oid, 'SELECT')
    UNION ALL
    SELECT format('it may write rem.%s', relname) FROM pg_class c
    WHERE relnamespace = 'rem'::regnamespace AND relkind IN ('r', 'v', 'p', 'f')
      AND (has_any_column_privilege(role.oid, c.oid, 'INSERT, UPDATE') OR has_table_privilege(role.oid, c.oid, 'DELETE, TRUNCATE'));
END $$;

-- Return the rights that only the check in Python restricts on this server, because only a superuser can revoke them.
CREATE OR REPLACE FUNCTION rem_sql_security_gaps(of_role text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
  SELECT 'every role may call functions such as pg_sleep, and read the catalogue: a superuser closes that with '
         'SELECT rem.rem_sql_close_catalog(), for all but REM''s own role in this database'
  WHERE has_function_privilege(of_role, 'pg_catalog.pg_sleep(double precision)', 'EXECUTE')
    OR has_function_privilege(of_role, 'pg_catalog.translate(text, text, text)', 'EXECUTE')
    OR has_table_privilege(of_role, 'pg_catalog.pg_stat_activity', 'SELECT')
  UNION ALL
  SELECT format('there is no limit on temporary files: a superuser sets one with ALTER ROLE %I SET temp_file_limit = ''256MB''', of_role)
  WHERE current_setting('temp_file_limit') = '-1' AND NOT EXISTS (
    SELECT FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) AS setting
    WHERE r.rolname = of_role AND setting LIKE 'temp_file_limit=%')
  UNION ALL
  SELECT format('every role may call %s', string_agg(p.oid::regprocedure::text, ', ' ORDER BY p.proname))
  FROM pg_proc p WHERE p.prosecdef AND p.pronamespace NOT IN ('rem'::regnamespace, 'pg_catalog'::regnamespace)
    AND has_schema_privilege(of_role, p.pronamespace, 'USAGE') AND has_function_privilege(of_role, p.oid, 'EXECUTE')
  HAVING count(*) > 0
$$;

-- Revoke from PUBLIC, in this database, everything that a query does not need: functions that are not in rem_sql_functions(),
-- the catalogue, and temporary tables. REM's own role keeps all rights. REM calls it on the embedded server. Return the number of revoked rights.
CREATE OR REPLACE FUNCTION rem_sql_close_catalog() RETURNS integer LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  owner text := (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'rem');
  privilege text;
  earlier_statements text[] := coalesce((SELECT reopening FROM rem.sql_access FOR UPDATE), '{}');
  undo_statements text[] := '{}';
BEGIN
  FOR privilege IN
    SELECT format('EXECUTE ON ROUTINE %s', p.oid::regprocedure) FROM pg_proc p
    WHERE rem.rem_sql_grants_public(p.proacl, 'f', p.proowner, 'EXECUTE')
      AND p.oid NOT IN (SELECT f.routine FROM rem.rem_sql_functions() f)
    UNION ALL
    SELECT format('SELECT ON %s', c.oid::regclass) FROM pg_class c
    WHERE c.relnamespace IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) AND c.relkind IN ('r', 'v')
      AND rem.rem_sql_grants_public(c.relacl, 'r', c.relowner, 'SELECT')
    UNION ALL
    SELECT format('TEMPORARY ON DATABASE %I', d.datname) FROM pg_database d
    WHERE d.datname = current_database() AND rem.rem_sql_grants_public(d.datacl, 'd', d.datdba, 'TEMPORARY')
  LOOP
    EXECUTE format('REVOKE %s FROM PUBLIC', privilege);
    undo_statements := undo_statements || format('GRANT %s TO PUBLIC', privilege);
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = owner) THEN
      EXECUTE format('GRANT %s TO %I', privilege, owner);
      undo_statements := undo_statements || format('REVOKE %s FROM %I', privilege, owner);
    END IF;
  END LOOP;
  UPDATE rem.sql_access SET reopening = earlier_statements || undo_statements;
  RETURN cardinality(undo_statements);
END $$;

-- Undo rem_sql_close_catalog.
CREATE OR REPLACE FUNCTION rem_sql_reopen_catalog() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  statement text;
BEGIN
  FOREACH statement IN ARRAY coalesce((SELECT reopening FROM rem.sql_access FOR UPDATE), '{}') LOOP
    EXECUTE statement;
  END LOOP;
  UPDATE rem.sql_access SET reopening = NULL;
END $$;
