-- What lapses takes along what it is made of: a session its messages, a file its chunks, and either what was dreamt from
-- them. Whoever writes `expires_at`, and however.

-- A time as the models write it into JSON.
CREATE OR REPLACE FUNCTION rem_json_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE
RETURN to_char(moment AT TIME ZONE 'UTC', CASE WHEN moment = date_trunc('second', moment)
  THEN 'YYYY-MM-DD"T"HH24:MI:SS"Z"' ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' END);

-- When the first of a statement's sources lapses.
CREATE OR REPLACE FUNCTION rem_earliest_expiry(of_tenant text, of_statement uuid) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
  kind text;
  found timestamptz;
  earliest timestamptz;
BEGIN
  FOR kind IN
    SELECT DISTINCT x.source_type FROM rem.statement_sources x WHERE x.tenant_id = of_tenant AND x.statement_id = of_statement
  LOOP
    EXECUTE format('SELECT min(r.expires_at) FROM rem.statement_sources x
                    JOIN rem.%I r ON (r.tenant_id, r.id) = (x.tenant_id, x.source_id)
                    WHERE x.tenant_id = $1 AND x.statement_id = $2 AND x.source_type = $3', kind)
      INTO found USING of_tenant, of_statement, kind;
    earliest := least(earliest, found);
  END LOOP;
  RETURN earliest;
END $$;

-- Lets rows that were dreamt from some sources lapse when the first of their sources does. Called by every mirror, when a row
-- is to lapse at another time.
CREATE OR REPLACE FUNCTION rem_expire_dreams_from(of_tenant text, of_type text, of_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  said record;
  earliest timestamptz;
BEGIN
  FOR said IN
    SELECT DISTINCT s.id, s.entity_type, s.entity_id FROM rem.statement_sources x
    JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id) AND s.kind = 'row' AND s.state = 'live'
    WHERE x.tenant_id = of_tenant AND x.source_id = ANY (of_ids) AND x.source_type = of_type
    ORDER BY s.entity_id, s.id
  LOOP
    -- What its owner has changed meanwhile is not the dream's any more.
    PERFORM rem.rem_dream_detect_edits(of_tenant, said.entity_type, said.entity_id);
    earliest := rem.rem_earliest_expiry(of_tenant, said.id);
    UPDATE rem.statements s
    SET value = (s.value - 'expires_at') || CASE WHEN earliest IS NULL THEN '{}'
                ELSE jsonb_build_object('expires_at', rem.rem_json_time(earliest)) END
    WHERE s.tenant_id = of_tenant AND s.id = said.id AND s.state = 'live';
    IF FOUND THEN
      EXECUTE format('UPDATE rem.%I r SET expires_at = $3
                      WHERE r.tenant_id = $1 AND r.id = $2 AND r.origin LIKE ''dream:%%'' AND r.expires_at IS DISTINCT FROM $3',
                     said.entity_type)
        USING of_tenant, said.entity_id, rem.rem_dream_row_expiry(of_tenant, said.entity_type, said.entity_id);
    END IF;
  END LOOP;
END $$;

-- Gives a session's messages and shares its own expiry. One that was to lapse sooner still does, and what has lapsed
-- stays so.
CREATE OR REPLACE FUNCTION rem_cascade_session_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem.messages m SET expires_at = NEW.expires_at
  WHERE (m.tenant_id, m.user_id, m.session_id) = (NEW.tenant_id, NEW.user_id, NEW.id)
    AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.expires_at IS DISTINCT FROM NEW.expires_at
    AND (m.expires_at IS NULL OR m.expires_at IS NOT DISTINCT FROM OLD.expires_at OR m.expires_at > NEW.expires_at);
  UPDATE rem.shared_sessions s SET expires_at = NEW.expires_at
  WHERE (s.tenant_id, s.user_id, s.session_id) = (NEW.tenant_id, NEW.user_id, NEW.id)
    AND (s.expires_at IS NULL OR s.expires_at > now()) AND s.expires_at IS DISTINCT FROM NEW.expires_at
    AND (s.expires_at IS NULL OR s.expires_at IS NOT DISTINCT FROM OLD.expires_at OR s.expires_at > NEW.expires_at);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER cascade_expiry AFTER UPDATE OF expires_at ON sessions FOR EACH ROW
  WHEN (OLD.expires_at IS DISTINCT FROM NEW.expires_at) EXECUTE FUNCTION rem_cascade_session_expiry();
-- Messages that are being written are waited for, as when the session is deleted; later ones wait, and see the expiry.
CREATE OR REPLACE TRIGGER lock_before_expiry BEFORE UPDATE OF expires_at ON sessions FOR EACH ROW
  WHEN (OLD.expires_at IS DISTINCT FROM NEW.expires_at) EXECUTE FUNCTION rem_lock_session();

-- What is said in a session that lapses lapses with it. After the statement, because then its foreign keys were checked:
-- who changes the expiry was waited for. By its name after `mirror_insert`, because it changes what that has mirrored.
CREATE OR REPLACE FUNCTION rem_inherit_session_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  told record;
  at timestamptz;
BEGIN
  -- One session after the other, each by its index whatever the statistics say: hardly any lapses.
  FOR told IN
    SELECT n.tenant_id, n.session_id FROM new_rows n GROUP BY n.tenant_id, n.session_id
  LOOP
    SELECT s.expires_at INTO at FROM rem.sessions s WHERE s.tenant_id = told.tenant_id AND s.id = told.session_id;
    CONTINUE WHEN at IS NULL;
    UPDATE rem.messages m SET expires_at = at
    WHERE m.tenant_id = told.tenant_id AND (m.expires_at IS NULL OR m.expires_at > at)
      AND m.id = ANY (ARRAY(SELECT n.id FROM new_rows n WHERE (n.tenant_id, n.session_id) = (told.tenant_id, told.session_id)
                            AND (n.expires_at IS NULL OR n.expires_at > at)));
  END LOOP;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER take_expiry AFTER INSERT ON messages REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_inherit_session_expiry();

-- The same for files and what was made of them.
CREATE OR REPLACE FUNCTION rem_cascade_file_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem.resources r SET expires_at = NEW.expires_at
  WHERE r.tenant_id = NEW.tenant_id AND (r.user_id = NEW.user_id OR (r.user_id IS NULL AND NEW.user_id IS NULL))
    AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = NEW.id::text
    AND (r.expires_at IS NULL OR r.expires_at > now()) AND r.expires_at IS DISTINCT FROM NEW.expires_at
    AND (r.expires_at IS NULL OR r.expires_at IS NOT DISTINCT FROM OLD.expires_at OR r.expires_at > NEW.expires_at);
  UPDATE rem.ontologies o SET expires_at = NEW.expires_at
  WHERE o.tenant_id = NEW.tenant_id AND o.file_id = NEW.id AND o.user_id IS NOT DISTINCT FROM NEW.user_id AND o.origin = 'ingest'
    AND (o.expires_at IS NULL OR o.expires_at > now()) AND o.expires_at IS DISTINCT FROM NEW.expires_at
    AND (o.expires_at IS NULL OR o.expires_at IS NOT DISTINCT FROM OLD.expires_at OR o.expires_at > NEW.expires_at);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER cascade_expiry AFTER UPDATE OF expires_at ON files FOR EACH ROW
  WHEN (OLD.expires_at IS DISTINCT FROM NEW.expires_at) EXECUTE FUNCTION rem_cascade_file_expiry();

-- New chunks of a file that lapses. The metadata is whatever somebody wrote: only what is a UUID can be a file.
CREATE OR REPLACE FUNCTION rem_inherit_file_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  made record;
  at timestamptz;
BEGIN
  FOR made IN
    SELECT n.tenant_id, n.user_id, n.metadata ->> 'file_id' AS file_id FROM new_rows n
    WHERE n.metadata ? 'file_id' AND n.metadata ->> 'file_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    GROUP BY 1, 2, 3
  LOOP
    SELECT f.expires_at INTO at FROM rem.files f
    WHERE f.tenant_id = made.tenant_id AND f.id = made.file_id::uuid AND f.user_id IS NOT DISTINCT FROM made.user_id;
    CONTINUE WHEN at IS NULL;
    UPDATE rem.resources r SET expires_at = at
    WHERE r.tenant_id = made.tenant_id AND (r.expires_at IS NULL OR r.expires_at > at)
      AND r.id = ANY (ARRAY(SELECT n.id FROM new_rows n WHERE n.tenant_id = made.tenant_id
                            AND n.user_id IS NOT DISTINCT FROM made.user_id AND n.metadata ->> 'file_id' = made.file_id));
  END LOOP;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER take_expiry AFTER INSERT ON resources REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_inherit_file_expiry();

-- Throws away what the planner has sampled of REM's tables, texts among it, and samples them anew. Not only anew: of a table
-- or an index without rows ANALYZE would keep what it had. Before PostgreSQL 18 only a superuser can throw a sample away.
CREATE OR REPLACE FUNCTION rem_reset_planner_stats() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  place record;
BEGIN
  -- Always in the same order, so that nobody who does the same is waited for in a circle.
  FOR place IN
    SELECT n.nspname AS schema, c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('rem', 'rem_jobs') AND c.relkind IN ('r', 'p') ORDER BY 1, 2
  LOOP
    -- Whoever samples it just now is waited for.
    EXECUTE format('LOCK TABLE %I.%I IN SHARE UPDATE EXCLUSIVE MODE', place.schema, place.name);
    IF current_setting('server_version_num')::integer >= 180000 THEN
      PERFORM pg_clear_attribute_stats(s.schemaname, s.tablename, s.attname, s.inherited) FROM pg_stats s
      WHERE s.schemaname = place.schema AND (s.tablename = place.name OR s.tablename IN (
        SELECT i.indexname FROM pg_indexes i WHERE i.schemaname = place.schema AND i.tablename = place.name));
    ELSIF current_setting('is_superuser')::boolean THEN
      DELETE FROM pg_statistic s
      WHERE s.starelid = format('%I.%I', place.schema, place.name)::regclass
        OR s.starelid IN (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = format('%I.%I', place.schema, place.name)::regclass);
    END IF;
    EXECUTE format('ANALYZE %I.%I', place.schema, place.name);
  END LOOP;
END $$;
