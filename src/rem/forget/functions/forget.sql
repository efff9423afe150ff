-- Pass an expiry on: from a session to its messages, from a file to its chunks, and from all of them to the rows that dreams
-- derived from them. Triggers do it, so it works for every way to write `expires_at`.

-- Format a time as the Python models write it into JSON.
CREATE OR REPLACE FUNCTION rem_json_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE
RETURN to_char(moment AT TIME ZONE 'UTC', CASE WHEN moment = date_trunc('second', moment)
  THEN 'YYYY-MM-DD"T"HH24:MI:SS"Z"' ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' END);

-- Return the earliest expiry of a statement's sources; NULL if none expires.
CREATE OR REPLACE FUNCTION rem_earliest_expiry(of_tenant text, of_statement uuid) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
  source_table text;
  table_earliest timestamptz;
  earliest timestamptz;
BEGIN
  FOR source_table IN
    SELECT DISTINCT x.source_type FROM rem.statement_sources x WHERE x.tenant_id = of_tenant AND x.statement_id = of_statement
  LOOP
    EXECUTE format('SELECT min(r.expires_at) FROM rem.statement_sources x
                    JOIN rem.%I r ON (r.tenant_id, r.id) = (x.tenant_id, x.source_id)
                    WHERE x.tenant_id = $1 AND x.statement_id = $2 AND x.source_type = $3', source_table)
      INTO table_earliest USING of_tenant, of_statement, source_table;
    earliest := least(earliest, table_earliest);
  END LOOP;
  RETURN earliest;
END $$;

-- Set the expiry of rows that dreams derived from the given sources to the earliest expiry of their sources. Every mirror trigger
-- calls it when the expiry of a row changes.
CREATE OR REPLACE FUNCTION rem_expire_dreams_from(of_tenant text, of_type text, of_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  statement record;
  earliest timestamptz;
BEGIN
  FOR statement IN
    SELECT DISTINCT s.id, s.entity_type, s.entity_id FROM rem.statement_sources x
    JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id) AND s.kind = 'row' AND s.state = 'live'
    WHERE x.tenant_id = of_tenant AND x.source_id = ANY (of_ids) AND x.source_type = of_type
    ORDER BY s.entity_id, s.id
  LOOP
    -- First detect edits of the owner: an edited row no longer belongs to the dream.
    PERFORM rem.rem_dream_detect_edits(of_tenant, statement.entity_type, statement.entity_id);
    earliest := rem.rem_earliest_expiry(of_tenant, statement.id);
    UPDATE rem.statements s
    SET value = (s.value - 'expires_at') || CASE WHEN earliest IS NULL THEN '{}'
                ELSE jsonb_build_object('expires_at', rem.rem_json_time(earliest)) END
    WHERE s.tenant_id = of_tenant AND s.id = statement.id AND s.state = 'live';
    IF FOUND THEN
      EXECUTE format('UPDATE rem.%I r SET expires_at = $3
                      WHERE r.tenant_id = $1 AND r.id = $2 AND r.origin LIKE ''dream:%%'' AND r.expires_at IS DISTINCT FROM $3',
                     statement.entity_type)
        USING of_tenant, statement.entity_id, rem.rem_dream_row_expiry(of_tenant, statement.entity_type, statement.entity_id);
    END IF;
  END LOOP;
END $$;

-- Copy a session's expiry to its messages and shares. An earlier expiry stays, and expired rows stay expired.
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
-- Wait for messages that are being written, as when a session is deleted. Later messages wait, and then see the expiry.
CREATE OR REPLACE TRIGGER lock_before_expiry BEFORE UPDATE OF expires_at ON sessions FOR EACH ROW
  WHEN (OLD.expires_at IS DISTINCT FROM NEW.expires_at) EXECUTE FUNCTION rem_lock_session();

-- Give new messages the expiry of their session. The trigger runs after the statement, because the check of the foreign keys has then
-- waited for a concurrent change of the expiry. Its name sorts after `mirror_insert`, because it changes the mirrored rows.
CREATE OR REPLACE FUNCTION rem_inherit_session_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  changed record;
  session_expiry timestamptz;
BEGIN
  -- One session at a time, so that PostgreSQL always uses the index. Few sessions expire.
  FOR changed IN
    SELECT n.tenant_id, n.session_id FROM new_rows n GROUP BY n.tenant_id, n.session_id
  LOOP
    SELECT s.expires_at INTO session_expiry FROM rem.sessions s WHERE s.tenant_id = changed.tenant_id AND s.id = changed.session_id;
    CONTINUE WHEN session_expiry IS NULL;
    UPDATE rem.messages m SET expires_at = session_expiry
    WHERE m.tenant_id = changed.tenant_id AND (m.expires_at IS NULL OR m.expires_at > session_expiry)
      AND m.id = ANY (ARRAY(SELECT n.id FROM new_rows n WHERE (n.tenant_id, n.session_id) = (changed.tenant_id, changed.session_id)
                            AND (n.expires_at IS NULL OR n.expires_at > session_expiry)));
  END LOOP;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER take_expiry AFTER INSERT ON messages REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_inherit_session_expiry();

-- Copy a file's expiry to its chunks and to the knowledge entries read from it.
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

-- Give new chunks the expiry of their file. Users can write anything into the metadata, so only a valid UUID counts as a file id.
CREATE OR REPLACE FUNCTION rem_inherit_file_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  changed record;
  file_expiry timestamptz;
BEGIN
  FOR changed IN
    SELECT n.tenant_id, n.user_id, n.metadata ->> 'file_id' AS file_id FROM new_rows n
    WHERE n.metadata ? 'file_id' AND n.metadata ->> 'file_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    GROUP BY 1, 2, 3
  LOOP
    SELECT f.expires_at INTO file_expiry FROM rem.files f
    WHERE f.tenant_id = changed.tenant_id AND f.id = changed.file_id::uuid AND f.user_id IS NOT DISTINCT FROM changed.user_id;
    CONTINUE WHEN file_expiry IS NULL;
    UPDATE rem.resources r SET expires_at = file_expiry
    WHERE r.tenant_id = changed.tenant_id AND (r.expires_at IS NULL OR r.expires_at > file_expiry)
      AND r.id = ANY (ARRAY(SELECT n.id FROM new_rows n WHERE n.tenant_id = changed.tenant_id
                            AND n.user_id IS NOT DISTINCT FROM changed.user_id AND n.metadata ->> 'file_id' = changed.file_id));
  END LOOP;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER take_expiry AFTER INSERT ON resources REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_inherit_file_expiry();

-- Delete the planner's sample values of all REM tables, which contain texts, and collect new ones. ANALYZE alone is not enough: it
-- keeps the old values of an empty table or index. Before PostgreSQL 18, only a superuser can delete them.
CREATE OR REPLACE FUNCTION rem_reset_planner_stats() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  sampled_table record;
BEGIN
  -- A fixed order, because two sessions that do this at once must not block each other.
  FOR sampled_table IN
    SELECT n.nspname AS schema, c.relname AS name, c.relispartition AS is_partition
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('rem', 'rem_jobs', 'rem_auth', 'rem_partitions') AND c.relkind IN ('r', 'p') ORDER BY 3 DESC, 1, 2
  LOOP
    -- Wait for an ANALYZE that is running.
    EXECUTE format('LOCK TABLE %I.%I IN SHARE UPDATE EXCLUSIVE MODE', sampled_table.schema, sampled_table.name);
    IF current_setting('server_version_num')::integer >= 180000 THEN
      PERFORM pg_clear_attribute_stats(s.schemaname, s.tablename, s.attname, s.inherited) FROM pg_stats s
      WHERE s.schemaname = sampled_table.schema AND (s.tablename = sampled_table.name OR s.tablename IN (
        SELECT i.indexname FROM pg_indexes i WHERE i.schemaname = sampled_table.schema AND i.tablename = sampled_table.name));
    ELSIF current_setting('is_superuser')::boolean THEN
      DELETE FROM pg_statistic s
      WHERE s.starelid = format('%I.%I', sampled_table.schema, sampled_table.name)::regclass
        OR s.starelid IN (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = format('%I.%I', sampled_table.schema, sampled_table.name)::regclass);
    END IF;
    -- The ANALYZE of a partitioned table, which follows, covers its partitions.
    IF NOT sampled_table.is_partition THEN
      EXECUTE format('ANALYZE %I.%I', sampled_table.schema, sampled_table.name);
    END IF;
  END LOOP;
END $$;

-- Return the digest under which ingestion recognises an erased file by its address, or an erased part of a file by its text; NULL for
-- any other row. `ingest/file_store.py` computes the same digests.
CREATE OR REPLACE FUNCTION rem_forgotten_digest(record jsonb) RETURNS bytea LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN record ? 'processing_status' THEN sha256(convert_to('file ' || (record ->> 'uri'), 'UTF8'))
  WHEN record -> 'metadata' ? 'file_id' THEN sha256(convert_to(
    -- An encrypted text brings a keyed digest (rem_text_digest).
    'text ' || CASE WHEN record ->> 'content' LIKE 'rem1:%' THEN split_part(record ->> 'content', ':', 3) ELSE record ->> 'content' END, 'UTF8'))
END;
