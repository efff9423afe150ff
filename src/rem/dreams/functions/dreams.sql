-- Keep the entity tables equal to the live statements: a derived row, field or edge is the projection of its statements, whatever
-- happens to a source or to the row.

-- Return the origin that rows and edges of a dream have.
CREATE OR REPLACE FUNCTION rem_dream_origin(dream text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'dream:' || dream;

-- Return the confidence (0 to 1) that several independent pieces of evidence give together.
CREATE OR REPLACE FUNCTION rem_combine_confidence(shares double precision[]) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
  -- The exp of less than -745 is an error: a thousand pieces of evidence leave no doubt.
  SELECT CASE WHEN doubt > -700 THEN 1 - exp(doubt) WHEN doubt <= -700 THEN 1 END
  FROM (SELECT sum(ln(greatest(1 - coalesce(share, 1), 1e-9))) AS doubt FROM unnest(shares) AS share) AS evidence);

-- Return the confidence from which on an entity gets a row.
CREATE OR REPLACE FUNCTION rem_min_entity_confidence() RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0.75;

-- Return the confidence (0 to 1) that a name is a person, from the way it is used. Three messages in two sessions give 0.8, two messages
-- 0.55. The uses together must show a human whom the owner knows personally, and a capital letter inside a sentence; a name that
-- is also something else gives 0. `uses[i]` are the uses in `sessions[i]`.
CREATE OR REPLACE FUNCTION rem_name_usage_confidence(uses jsonb[], sessions uuid[], entity_types text[]) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
  SELECT CASE WHEN 'person' <> ANY (entity_types) OR 'other' = ANY (t.traits) OR NOT t.traits @> '{human,personal,inside}' THEN 0
              WHEN t.messages >= 3 AND t.sessions >= 2 THEN 0.8
              WHEN t.messages >= 2 THEN 0.55 ELSE 0 END
  FROM (SELECT sum((u.use ->> 'messages')::integer) AS messages, count(DISTINCT u.session) AS sessions,
               ARRAY(SELECT jsonb_array_elements_text(v.use -> 'traits') FROM unnest(uses) AS v (use)) AS traits
        FROM unnest(uses, sessions) AS u (use, session) WHERE u.use IS NOT NULL) t);

-- Return whether a row of any type exists and is not deleted.
CREATE OR REPLACE FUNCTION rem_is_live(of_tenant text, of_type text, of_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  is_live boolean;
BEGIN
  EXECUTE format('SELECT EXISTS (SELECT FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 AND r.deleted_at IS NULL)', of_type)
    INTO is_live USING of_tenant, of_id;
  RETURN is_live;
END $$;

-- Return the name that a refused statement keeps. The name of a moment consists of words of its text; its sources identify it.
CREATE OR REPLACE FUNCTION rem_dream_refused_name(statement rem.statements) RETURNS text LANGUAGE sql STABLE
RETURN CASE WHEN (statement).kind = 'row' AND (statement).dream = 'moments' THEN (statement).id::text ELSE (statement).name END;

-- Mark live statements as refused whose row, edge or field the owner has changed or removed, and return how many. A refused statement
-- keeps no content, and no dream repeats it. Call this before anything is written.
CREATE OR REPLACE FUNCTION rem_dream_detect_edits(of_tenant text, of_type text, of_id uuid) RETURNS integer LANGUAGE plpgsql
SET timezone = 'UTC' AS $$
DECLARE
  stored jsonb;
  statement rem.statements;
  refused integer := 0;
BEGIN
  EXECUTE format('SELECT to_jsonb(r.*) FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 AND r.deleted_at IS NULL', of_type)
    INTO stored USING of_tenant, of_id;
  FOR statement IN
    SELECT t.* FROM (
      SELECT DISTINCT ON (s.kind, s.name) s.id FROM rem.statements s
      WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.state = 'live'
      ORDER BY s.kind, s.name, s.stated_at DESC) n
    JOIN rem.statements t ON (t.tenant_id, t.id) = (of_tenant, n.id)
  LOOP
    CONTINUE WHEN rem.rem_dream_matches_row(statement, stored);
    UPDATE rem.statements s SET state = 'refused', value = '{}', name = rem.rem_dream_refused_name(s), ended_at = clock_timestamp()
    WHERE s.tenant_id = of_tenant AND s.entity_id = of_id AND s.entity_type = of_type AND s.kind = statement.kind
      AND s.name = statement.name AND s.state = 'live';
    refused := refused + 1;
    IF statement.kind IN ('row', 'field') AND stored IS NOT NULL THEN
      -- From now on the row belongs to its owner, and outlives its sources.
      EXECUTE format('UPDATE rem.%I SET origin = ''user'' WHERE tenant_id = $1 AND id = $2 AND origin LIKE ''dream:%%''', of_type)
        USING of_tenant, of_id;
      UPDATE rem.statements s SET state = 'refused', value = '{}', name = rem.rem_dream_refused_name(s), ended_at = clock_timestamp()
      WHERE s.tenant_id = of_tenant AND s.entity_id = of_id AND s.entity_type = of_type AND s.kind = 'row' AND s.state = 'live';
    END IF;
  END LOOP;
  RETURN refused;
END $$;

-- Return whether a row still has the values that a live statement gave it.
CREATE OR REPLACE FUNCTION rem_dream_matches_row(statement rem.statements, stored jsonb) RETURNS boolean LANGUAGE plpgsql STABLE
SET timezone = 'UTC' AS $$
DECLARE
  derived jsonb;
  wanted jsonb;
BEGIN
  IF statement.kind = 'row' THEN
    derived := rem.rem_dream_build_row(statement.tenant_id, statement.entity_type, statement.entity_id);
    IF derived IS NULL OR stored IS NULL THEN
      -- Without enough evidence there is no row.
      RETURN derived IS NULL;
    END IF;
    EXECUTE format('SELECT to_jsonb(p.*) FROM jsonb_populate_record(NULL::rem.%I, $1) p', statement.entity_type) INTO wanted USING derived;
    RETURN NOT EXISTS (SELECT FROM jsonb_object_keys(statement.value) AS k (name)
                       WHERE k.name <> 'graph_edges' AND wanted -> k.name IS DISTINCT FROM stored -> k.name);
  ELSIF stored IS NULL THEN
    RETURN true;
  ELSIF statement.kind = 'edge' THEN
    RETURN EXISTS (
      SELECT FROM jsonb_array_elements(stored -> 'graph_edges') AS e (edge)
      WHERE e.edge ->> 'origin' = rem.rem_dream_origin(statement.dream) AND e.edge ->> 'rel_type' = statement.value ->> 'rel_type'
        AND rem.rem_key(e.edge ->> 'dst') = rem.rem_key(statement.value ->> 'dst'));
  ELSIF statement.name LIKE 'metadata.%' THEN
    RETURN stored #> string_to_array(statement.name, '.') IS NOT DISTINCT FROM statement.value;
  END IF;
  EXECUTE format('SELECT to_jsonb(p.*) FROM jsonb_populate_record(NULL::rem.%I, $1) p', statement.entity_type)
    INTO wanted USING jsonb_build_object(statement.name, statement.value);
  RETURN stored -> statement.name IS NOT DISTINCT FROM wanted -> statement.name;
END $$;

-- Write the live statements about an entity into its row. Dreams do not take this for a change of the row.
CREATE OR REPLACE FUNCTION rem_dream_project(of_tenant text, of_type text, of_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM rem.rem_dream_project_row(of_tenant, of_type, of_id);
  PERFORM rem.rem_dream_project_fields(of_tenant, of_type, of_id);
  PERFORM rem.rem_dream_project_edges(of_tenant, of_type, of_id);
END $$;

-- Return when a derived row expires: with the last of its statements, each of which expires with the first of its sources.
CREATE OR REPLACE FUNCTION rem_dream_row_expiry(of_tenant text, of_type text, of_id uuid) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN count(*) = count(s.value ->> 'expires_at') THEN max((s.value ->> 'expires_at')::timestamptz) END
  FROM rem.statements s
  WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live'
$$;

-- Return the content of an entity: the lines of its statements, which begin with their dates, newest first. Of more than 4000 characters
-- the newest are kept; the `mentions` edges lead to the rest.
CREATE OR REPLACE FUNCTION rem_dream_row_content(of_tenant text, of_type text, of_id uuid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT string_agg(k.line, E'\n' ORDER BY k.place) FROM (
    SELECT c.line, row_number() OVER newest AS place, sum(length(c.line) + 1) OVER newest AS length FROM (
      SELECT l.line, max(s.valid_from) AS at, min(l.number) AS number FROM rem.statements s
      CROSS JOIN LATERAL regexp_split_to_table(rem.rem_head(s.value ->> 'content', 4000), E'\n') WITH ORDINALITY AS l (line, number)
      WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live'
        AND l.line <> ''
      GROUP BY l.line) c
    WINDOW newest AS (ORDER BY left(c.line, 10) DESC, c.at DESC NULLS LAST, c.number, c.line)) k
  WHERE k.length <= 4001
$$;

-- Return the row that the live statements give, with its content, confidence and sources; NULL if there is not enough evidence.
CREATE OR REPLACE FUNCTION rem_dream_build_row(of_tenant text, of_type text, of_id uuid) RETURNS jsonb LANGUAGE plpgsql STABLE
SET timezone = 'UTC' AS $$
DECLARE
  newest rem.statements;
  evidence record;
BEGIN
  SELECT s.* INTO newest FROM rem.statements s
  WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live'
  -- A statement that is based on the use of a name alone (confidence 0) comes last.
  ORDER BY (s.confidence = 0) IS TRUE, s.stated_at DESC LIMIT 1;
  IF newest.id IS NULL THEN
    RETURN NULL;
  END IF;
  IF newest.dream <> 'entities' THEN
    RETURN newest.value || jsonb_build_object('confidence', newest.confidence, 'valid_from', newest.valid_from,
      'valid_to', newest.valid_to, 'expires_at', rem.rem_dream_row_expiry(of_tenant, of_type, of_id),
      'sources', newest.source_keys, 'run_id', newest.run_id,
      'origin', rem.rem_dream_origin(newest.dream), 'user_id', newest.user_id);
  END IF;
  -- One entity with a statement from each subject; they may be many, so they are read once.
  WITH live AS MATERIALIZED (
    SELECT s.confidence, s.valid_from, s.subject_id, s.source_keys, s.value ->> 'name' AS name,
           s.value -> 'extracted_data' AS data
    FROM rem.statements s
    WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live')
  SELECT rem.rem_combine_confidence(array_agg(s.confidence) || rem.rem_name_usage_confidence(
           array_agg(s.data -> 'uses'), array_agg(s.subject_id), array_agg(s.data ->> 'entity_type'))) AS confidence,
         min(s.valid_from) AS valid_from,
         (SELECT n.name FROM (SELECT DISTINCT t.name FROM live t) n ORDER BY length(n.name) DESC, n.name LIMIT 1) AS name,
         ARRAY(SELECT DISTINCT k FROM live t CROSS JOIN LATERAL unnest(t.source_keys) AS k ORDER BY k LIMIT 50) AS sources,
         (SELECT coalesce(jsonb_agg(a.alias ORDER BY a.alias), '[]') FROM (
            SELECT DISTINCT a.alias FROM live t
            CROSS JOIN LATERAL jsonb_array_elements_text(t.data -> 'aliases') AS a (alias)) a) AS aliases
    INTO evidence
  FROM live s;
  IF evidence.confidence < rem.rem_min_entity_confidence() THEN
    RETURN NULL;
  END IF;
  RETURN newest.value || jsonb_build_object('name', evidence.name, 'content', coalesce(rem.rem_dream_row_content(of_tenant, of_type, of_id), ''),
    'extracted_data', (newest.value -> 'extracted_data') - '{linked,uses}'::text[] || jsonb_build_object('aliases', evidence.aliases),
    'expires_at', rem.rem_dream_row_expiry(of_tenant, of_type, of_id),
    'confidence', evidence.confidence, 'valid_from', evidence.valid_from, 'sources', evidence.sources, 'run_id', newest.run_id,
    'origin', rem.rem_dream_origin(newest.dream), 'user_id', newest.user_id);
END $$;

-- Return a JSON object with the value at a path set or, for NULL, removed. An object that becomes empty is removed as well. Anything else
-- than an object was written by the owner and is returned unchanged.
CREATE OR REPLACE FUNCTION rem_jsonb_set_path(whole jsonb, path text[], value jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  part jsonb := value;
BEGIN
  IF jsonb_typeof(whole) <> 'object' OR (value IS NULL AND whole #> path IS NULL) THEN
    RETURN whole;
  ELSIF cardinality(path) > 1 THEN
    part := nullif(rem.rem_jsonb_set_path(coalesce(whole -> path[1], '{}'), path[2:], value), '{}');
  END IF;
  RETURN CASE WHEN part IS NULL THEN whole - path[1] ELSE whole || jsonb_build_object(path[1], part) END;
END $$;

-- Return metadata without the parts that dreams wrote.
CREATE OR REPLACE FUNCTION rem_metadata_without_dreams(metadata jsonb, derived text[]) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  field text;
BEGIN
  FOREACH field IN ARRAY derived LOOP
    IF field LIKE 'metadata.%' THEN
      metadata := rem.rem_jsonb_set_path(metadata, (string_to_array(field, '.'))[2:], NULL);
    END IF;
  END LOOP;
  RETURN metadata;
END $$;

-- Return whether the owner has written something into a derived row. `derived` are the columns that statements have filled. Empty values
-- do not count.
CREATE OR REPLACE FUNCTION rem_dream_has_user_content(stored jsonb, derived text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
      SELECT FROM jsonb_each(stored) AS c (name, value)
      WHERE c.name <> ALL (derived) AND c.name NOT IN (
          'id', 'tenant_id', 'user_id', 'key', 'name', 'created_at', 'updated_at', 'deleted_at', 'expires_at', 'origin', 'sources',
          'run_id', 'confidence', 'valid_from', 'valid_to', 'graph_edges')
        AND CASE c.name WHEN 'metadata' THEN rem.rem_metadata_without_dreams(c.value, derived) ELSE c.value END
            NOT IN ('null', '""', '[]', '{}', '0', 'false'))
    OR EXISTS (
      SELECT FROM jsonb_array_elements(stored -> 'graph_edges') AS e (edge) WHERE coalesce(e.edge ->> 'origin', 'user') NOT LIKE 'dream:%')
$$;

-- Delete a derived row without live statements. If its owner has written something into it, keep that and clear the rest.
CREATE OR REPLACE FUNCTION rem_dream_drop_row(of_tenant text, of_type text, of_id uuid, filled text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  stored jsonb;
  derived text[];
  emptied text;
BEGIN
  EXECUTE format('SELECT to_jsonb(r.*) FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 AND r.origin LIKE ''dream:%%''', of_type)
    INTO stored USING of_tenant, of_id;
  IF stored IS NULL THEN
    RETURN;
  END IF;
  SELECT coalesce(array_agg(DISTINCT n.name), '{}') || coalesce(filled, '{}') INTO derived FROM rem.statements s
  CROSS JOIN LATERAL (
    SELECT s.name WHERE s.kind = 'field'
    UNION ALL SELECT k FROM jsonb_object_keys(CASE s.kind WHEN 'row' THEN s.value ELSE '{}' END) AS k) n
  WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.state <> 'refused';
  IF stored ->> 'deleted_at' IS NOT NULL OR NOT rem.rem_dream_has_user_content(stored, derived) THEN
    EXECUTE format('DELETE FROM rem.%I WHERE tenant_id = $1 AND id = $2', of_type) USING of_tenant, of_id;
    RETURN;
  END IF;
  SELECT string_agg(format(', %I = DEFAULT', d.name), '') INTO emptied
  FROM (SELECT DISTINCT unnest(derived) AS name) d WHERE stored ? d.name AND d.name NOT IN ('name', 'expires_at', 'metadata');
  EXECUTE format('UPDATE rem.%I SET origin = ''user'', sources = ''{}'', run_id = NULL, confidence = NULL, valid_from = NULL, valid_to = NULL%s
                  WHERE tenant_id = $1 AND id = $2', of_type, coalesce(emptied, '')) USING of_tenant, of_id;
END $$;

-- Write the live statements about the row itself, without fields and edges. `filled` are the columns that deleted statements had filled.
CREATE OR REPLACE FUNCTION rem_dream_project_row(of_tenant text, of_type text, of_id uuid, filled text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  derived jsonb := rem.rem_dream_build_row(of_tenant, of_type, of_id);
  columns text;
BEGIN
  IF derived IS NULL THEN
    -- A row without any statement came with a dump, and waits for the dream that adopts it.
    IF filled <> '{}' OR EXISTS (
        SELECT FROM rem.statements s
        WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row') THEN
      PERFORM rem.rem_dream_drop_row(of_tenant, of_type, of_id, filled);
    END IF;
    RETURN;
  END IF;
  SELECT string_agg(quote_ident(k.name), ', ' ORDER BY k.name) INTO columns
  FROM jsonb_object_keys(derived) AS k (name) WHERE k.name NOT IN ('id', 'tenant_id', 'user_id', 'graph_edges', 'key');
  EXECUTE format($query$
    INSERT INTO rem.%1$I AS r (tenant_id, id, user_id, %2$s)
    SELECT $1, $2, p.user_id, %3$s FROM jsonb_populate_record(NULL::rem.%1$I, $3) p
    ON CONFLICT (tenant_id, id) DO UPDATE SET (%2$s) = ROW(%4$s)
    WHERE r.deleted_at IS NULL AND r.origin LIKE 'dream:%%' AND (%5$s) IS DISTINCT FROM (%4$s)
    $query$, of_type, columns, regexp_replace(columns, '(^|, )', '\1p.', 'g'),
    regexp_replace(columns, '(^|, )', '\1excluded.', 'g'), regexp_replace(columns, '(^|, )', '\1r.', 'g'))
    USING of_tenant, of_id, derived;
END $$;

-- Write the live statements about fields into the row, and clear fields whose statements have ended.
CREATE OR REPLACE FUNCTION rem_dream_project_fields(of_tenant text, of_type text, of_id uuid) RETURNS void LANGUAGE plpgsql
SET timezone = 'UTC' AS $$
DECLARE
  before timestamptz;
  stored jsonb;
  statement rem.statements;
BEGIN
  EXECUTE format('SELECT to_jsonb(r.*) FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2', of_type) INTO stored USING of_tenant, of_id;
  FOR statement IN
    SELECT t.* FROM (
      SELECT DISTINCT ON (s.name) s.id, bool_or(s.state = 'refused') OVER (PARTITION BY s.name) AS is_refused FROM rem.statements s
      WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'field'
      ORDER BY s.name, s.state = 'live' DESC, s.stated_at DESC) n
    JOIN rem.statements t ON (t.tenant_id, t.id) = (of_tenant, n.id)
    WHERE NOT n.is_refused
  LOOP
    -- Clear a field whose statement has ended, unless the owner has written something else there.
    CONTINUE WHEN statement.state <> 'live' AND NOT rem.rem_dream_matches_row(statement, stored);
    before := coalesce(before, rem.rem_row_version(of_tenant, of_type, of_id));
    PERFORM rem.rem_dream_set_field(of_tenant, of_type, of_id, statement.name, CASE statement.state WHEN 'live' THEN statement.value END);
  END LOOP;
  IF before IS NOT NULL THEN
    PERFORM rem.rem_dream_update_progress(of_tenant, of_type, of_id, before, rem.rem_row_version(of_tenant, of_type, of_id));
  END IF;
END $$;

-- Return the time of the last change of a row.
CREATE OR REPLACE FUNCTION rem_row_version(of_tenant text, of_type text, of_id uuid) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
  version timestamptz;
BEGIN
  EXECUTE format('SELECT r.updated_at FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2', of_type) INTO version USING of_tenant, of_id;
  RETURN version;
END $$;

-- Move the marks of dreams that had seen a row to its new version, after a dream has written into it.
CREATE OR REPLACE FUNCTION rem_dream_update_progress(of_tenant text, of_type text, of_id uuid, before timestamptz, written timestamptz)
RETURNS void LANGUAGE sql AS $$
  UPDATE rem.dream_progress p SET seen_at = written
  WHERE p.tenant_id = of_tenant AND p.source_id = of_id AND p.source_type = of_type AND p.seen_at = before AND written <> before
$$;

-- Set a field to a value or, for NULL, to its default. A part of the metadata (`metadata.profile.about`) is a field, too.
CREATE OR REPLACE FUNCTION rem_dream_set_field(of_tenant text, of_type text, of_id uuid, field text, value jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF field LIKE 'metadata.%' THEN
    EXECUTE format('UPDATE rem.%I SET metadata = rem.rem_jsonb_set_path(metadata, $3, $4)
                    WHERE tenant_id = $1 AND id = $2 AND metadata IS DISTINCT FROM rem.rem_jsonb_set_path(metadata, $3, $4)', of_type)
      USING of_tenant, of_id, (string_to_array(field, '.'))[2:], value;
  ELSIF value IS NULL THEN
    EXECUTE format('UPDATE rem.%1$I SET %2$I = DEFAULT WHERE tenant_id = $1 AND id = $2', of_type, field) USING of_tenant, of_id;
  ELSE
    EXECUTE format('UPDATE rem.%1$I r SET %2$I = p.%2$I FROM jsonb_populate_record(NULL::rem.%1$I, $3) p
                    WHERE r.tenant_id = $1 AND r.id = $2 AND r.%2$I IS DISTINCT FROM p.%2$I', of_type, field)
      USING of_tenant, of_id, jsonb_build_object(field, value);
  END IF;
END $$;

-- Write the live statements about edges into the row, beside the owner's own edges.
CREATE OR REPLACE FUNCTION rem_dream_project_edges(of_tenant text, of_type text, of_id uuid) RETURNS void LANGUAGE plpgsql
SET timezone = 'UTC' AS $$
DECLARE
  before record;
  derived jsonb;
  written timestamptz;
BEGIN
  -- Deleted rows as well: a restored row must not bring back edges without a statement.
  EXECUTE format('SELECT r.graph_edges, r.updated_at FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 FOR NO KEY UPDATE', of_type)
    INTO before USING of_tenant, of_id;
  IF before.updated_at IS NULL THEN
    RETURN;
  END IF;
  SELECT coalesce(jsonb_agg(e.edge ORDER BY e.place), '[]') INTO derived
  FROM jsonb_array_elements(before.graph_edges) WITH ORDINALITY AS e (edge, place)
  WHERE coalesce(e.edge ->> 'origin', 'user') NOT LIKE 'dream:%';
  SELECT derived || coalesce(jsonb_agg(s.edge ORDER BY s.name), '[]') INTO derived FROM (
    SELECT DISTINCT ON (s.name) s.name, s.value || jsonb_build_object('origin', rem.rem_dream_origin(s.dream), 'properties',
      coalesce(s.value -> 'properties', '{}') || jsonb_build_object('sources', s.source_keys, 'run_id', s.run_id,
        'created_at', s.stated_at)
      || CASE WHEN s.valid_from IS NULL THEN '{}' ELSE jsonb_build_object('valid_from', s.valid_from) END) AS edge
    FROM rem.statements s
    WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'edge' AND s.state = 'live'
    ORDER BY s.name, s.stated_at DESC) s;
  IF derived = before.graph_edges THEN
    RETURN;
  END IF;
  -- Users and pruning look at the last change of a session: a dream does not count as one.
  PERFORM set_config('rem.untouched', CASE of_type WHEN 'sessions' THEN 'on' ELSE '' END, true);
  EXECUTE format('UPDATE rem.%I SET graph_edges = $3 WHERE tenant_id = $1 AND id = $2 RETURNING updated_at', of_type)
    INTO written USING of_tenant, of_id, derived;
  PERFORM set_config('rem.untouched', '', true);
  PERFORM rem.rem_dream_update_progress(of_tenant, of_type, of_id, before.updated_at, written);
END $$;

-- Return the number of messages that the entities dream reads together. The first of them with a name is the source of its mention.
CREATE OR REPLACE FUNCTION rem_dream_rescan_messages() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 100;

-- Let the dreams that made some statements read their sources again: rows as a whole, and of sessions only the messages. The key of a
-- message contains its session and index, also after the message is gone. If an entity is gone (`is_entity_gone`), the moments
-- dream reads the messages that mention it again, because moments list the people.
CREATE OR REPLACE FUNCTION rem_dream_rescan_sources(of_tenants text[], of_statements uuid[], is_entity_gone boolean) RETURNS void LANGUAGE sql AS $$
  WITH lost AS (
    SELECT s.tenant_id, s.id, s.user_id, s.dream, s.kind, s.subject_type, s.subject_id, s.source_keys
    FROM unnest(of_tenants, of_statements) AS d (tenant_id, id) JOIN rem.statements s ON (s.tenant_id, s.id) = (d.tenant_id, d.id)),
  affected AS (
    SELECT l.*, 1 AS length FROM lost l
    UNION ALL
    SELECT l.tenant_id, l.id, l.user_id, 'moments', l.kind, l.subject_type, l.subject_id, l.source_keys, rem.rem_dream_rescan_messages() FROM lost l
    WHERE is_entity_gone AND l.dream = 'entities' AND l.kind = 'edge' AND l.subject_type IN ('sessions', 'resources')),
  sessions AS (
    SELECT s.tenant_id, s.user_id, s.dream, m.place[1]::uuid AS session_id,
           range_agg(int4range(m.place[2]::integer, (m.place[2]::integer / s.length + 1) * s.length)) AS messages
    FROM affected s CROSS JOIN LATERAL unnest(s.source_keys) AS k (key)
    CROSS JOIN LATERAL regexp_match(k.key, '^session-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-msg-(\d{1,9})$') AS m (place)
    WHERE m.place IS NOT NULL
    GROUP BY s.tenant_id, s.user_id, s.dream, m.place[1]),
  parts AS (
    UPDATE rem.dream_progress p SET again = p.again + c.messages * int4multirange(int4range(0, p.seen_index, '[]')) FROM sessions c
    WHERE (p.tenant_id, p.source_id, p.dream) = (c.tenant_id, c.session_id, c.dream) AND p.user_id = c.user_id
      AND p.source_type = 'sessions' AND p.seen_index >= 0)
  DELETE FROM rem.dream_progress p USING (
    SELECT s.tenant_id, s.dream, s.subject_id AS id FROM affected s WHERE s.subject_type <> 'sessions'
    UNION
    SELECT s.tenant_id, s.dream, x.source_id FROM affected s
    JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (s.tenant_id, s.id)
    WHERE x.source_type NOT IN ('sessions', 'messages')) a
  WHERE (p.tenant_id, p.source_id, p.dream) = (a.tenant_id, a.id, a.dream)
$$;

-- Erase a derived row that its owner deleted, because it still has words of an erased source.
CREATE OR REPLACE FUNCTION rem_dream_erase_deleted_row(of_tenant text, of_type text, of_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('DELETE FROM rem.%I WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NOT NULL AND origin LIKE ''dream:%%''', of_type)
    USING of_tenant, of_id;
END $$;

-- Take erased sources from refused statements, and return the statements that stay: what an owner deleted or changed must not come back
-- from the remaining sources. A field stays refused without any source. An edge has the name of its target, and goes with the target.
CREATE OR REPLACE FUNCTION rem_dream_keep_refusals(of_type text, of_tenants text[], of_statements uuid[], erased uuid[])
RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
  kept_tenants text[];
  kept_ids uuid[];
BEGIN
  SELECT array_agg(s.tenant_id), array_agg(s.id) INTO kept_tenants, kept_ids
  FROM unnest(of_tenants, of_statements) AS d (tenant_id, id)
  JOIN rem.statements s ON (s.tenant_id, s.id) = (d.tenant_id, d.id)
  WHERE s.state = 'refused' AND s.entity_id <> ALL (erased) AND (s.kind = 'field' OR (
    (s.kind = 'row' OR of_type = 'messages') AND EXISTS (
      SELECT FROM rem.statement_sources x
      WHERE (x.tenant_id, x.statement_id) = (s.tenant_id, s.id) AND x.source_id <> ALL (erased))));
  IF kept_ids IS NULL THEN
    RETURN '{}';
  END IF;
  DELETE FROM rem.statement_sources x USING unnest(kept_tenants, kept_ids) AS k (tenant_id, id)
  WHERE (x.tenant_id, x.statement_id) = (k.tenant_id, k.id) AND x.source_id = ANY (erased);
  UPDATE rem.statements s SET source_keys = '{}' FROM unnest(kept_tenants, kept_ids) AS k (tenant_id, id)
  WHERE (s.tenant_id, s.id) = (k.tenant_id, k.id);
  PERFORM rem.rem_dream_erase_deleted_row(r.tenant_id, r.entity_type, r.entity_id) FROM (
    SELECT DISTINCT s.tenant_id, s.entity_type, s.entity_id FROM unnest(kept_tenants, kept_ids) AS k (tenant_id, id)
    JOIN rem.statements s ON (s.tenant_id, s.id) = (k.tenant_id, k.id) AND s.kind = 'row') r;
  RETURN kept_ids;
END $$;

-- Delete the statements that are based on deleted rows, and update the rows that these are about. A deleted row may be restored, so
-- refused statements stay; if the row is erased, they are deleted as well, unless they have another source.
CREATE OR REPLACE FUNCTION rem_retract(of_type text, of_tenants text[], of_ids uuid[], is_erased boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  doomed_tenants text[];
  doomed_ids uuid[];
  kept_ids uuid[] := '{}';
  touched record;
BEGIN
  IF of_ids IS NULL THEN
    RETURN;
  END IF;
  DELETE FROM rem.dream_progress p USING unnest(of_tenants, of_ids) AS gone (tenant_id, id)
  WHERE (p.tenant_id, p.source_id, p.source_type) = (gone.tenant_id, gone.id, of_type);
  -- A derived row that is deleted while its statements are live was deleted by its owner: delete its earlier versions, too.
  WITH refused AS (
    UPDATE rem.statements s SET state = 'refused', value = '{}', name = rem.rem_dream_refused_name(s), ended_at = clock_timestamp()
    FROM unnest(of_tenants, of_ids) AS gone (tenant_id, id)
    WHERE (s.tenant_id, s.entity_id, s.entity_type) = (gone.tenant_id, gone.id, of_type) AND s.kind = 'row' AND s.state = 'live'
      -- A row that goes because too little evidence is left was not refused.
      AND rem.rem_dream_build_row(s.tenant_id, s.entity_type, s.entity_id) IS NOT NULL
    RETURNING s.tenant_id, s.entity_id)
  DELETE FROM rem.statements s USING refused r
  WHERE (s.tenant_id, s.entity_id, s.entity_type) = (r.tenant_id, r.entity_id, of_type) AND s.kind = 'row' AND s.state = 'ended';
  SELECT array_agg(d.tenant_id), array_agg(d.id) INTO doomed_tenants, doomed_ids FROM (
    SELECT x.tenant_id, x.statement_id AS id FROM unnest(of_tenants, of_ids) AS gone (tenant_id, id)
    JOIN rem.statement_sources x ON (x.tenant_id, x.source_id, x.source_type) = (gone.tenant_id, gone.id, of_type)
    UNION
    SELECT s.tenant_id, s.id FROM unnest(of_tenants, of_ids) AS gone (tenant_id, id)
    JOIN rem.statements s ON (s.tenant_id, s.entity_id, s.entity_type) = (gone.tenant_id, gone.id, of_type) AND s.kind <> 'row') d;
  IF doomed_ids IS NULL THEN
    RETURN;
  END IF;
  -- Rows that the owner has changed meanwhile belong to the owner.
  PERFORM rem.rem_dream_detect_edits(e.tenant_id, e.entity_type, e.entity_id) FROM (
    SELECT DISTINCT s.tenant_id, s.entity_type, s.entity_id FROM unnest(doomed_tenants, doomed_ids) AS d (tenant_id, id)
    JOIN rem.statements s ON (s.tenant_id, s.id) = (d.tenant_id, d.id) AND s.state = 'live') e;
  -- Dreams read the remaining sources again.
  PERFORM rem.rem_dream_rescan_sources(doomed_tenants, doomed_ids, of_type = 'ontologies');
  IF is_erased THEN
    kept_ids := rem.rem_dream_keep_refusals(of_type, doomed_tenants, doomed_ids, of_ids);
  END IF;
  FOR touched IN
    WITH gone AS (
      DELETE FROM rem.statements s USING unnest(doomed_tenants, doomed_ids) AS d (tenant_id, id)
      WHERE (s.tenant_id, s.id) = (d.tenant_id, d.id) AND (is_erased OR s.state <> 'refused') AND s.id <> ALL (kept_ids)
      RETURNING s.tenant_id, s.entity_type, s.entity_id, s.kind, CASE s.kind WHEN 'field' THEN s.name END AS field, s.state, s.value)
    SELECT g.tenant_id, g.entity_type, g.entity_id, g.kind, g.field, g.state,
           array_remove(array_agg(DISTINCT k.name), NULL) AS filled
    FROM gone g LEFT JOIN LATERAL jsonb_object_keys(CASE g.kind WHEN 'row' THEN g.value ELSE '{}' END) AS k (name) ON true
    WHERE g.state <> 'ended' GROUP BY g.tenant_id, g.entity_type, g.entity_id, g.kind, g.field, g.state
    -- The edges and fields of a row before the row.
    ORDER BY g.kind
  LOOP
    IF touched.state = 'refused' THEN
      IF touched.kind = 'row' THEN
        PERFORM rem.rem_dream_erase_deleted_row(touched.tenant_id, touched.entity_type, touched.entity_id);
      END IF;
    ELSIF touched.kind = 'row' THEN
      PERFORM rem.rem_dream_project_row(touched.tenant_id, touched.entity_type, touched.entity_id, touched.filled);
    ELSIF touched.kind = 'edge' THEN
      PERFORM rem.rem_dream_project_edges(touched.tenant_id, touched.entity_type, touched.entity_id);
    ELSE
      PERFORM rem.rem_dream_set_field(touched.tenant_id, touched.entity_type, touched.entity_id, touched.field,
        (SELECT s.value FROM rem.statements s
         WHERE s.tenant_id = touched.tenant_id AND s.entity_type = touched.entity_type AND s.entity_id = touched.entity_id
           AND s.kind = 'field' AND s.name = touched.field AND s.state = 'live' ORDER BY s.stated_at DESC LIMIT 1));
    END IF;
  END LOOP;
END $$;
