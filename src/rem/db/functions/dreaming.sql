-- What was dreamt, between the ledger (statements) and the entity tables: whatever happens to a source or to a derived row,
-- the tables say what the live statements say, and nothing else.

-- Where a dream's edges and rows come from.
CREATE OR REPLACE FUNCTION rem_dream_origin(dream text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'dream:' || dream;

-- How sure several pieces of evidence make one together.
CREATE OR REPLACE FUNCTION rem_combine_confidence(shares double precision[]) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT 1 - exp(sum(ln(greatest(1 - coalesce(share, 1), 1e-9)))) FROM unnest(shares) AS share);

-- A thing that is only named needs so much evidence until it is one.
CREATE OR REPLACE FUNCTION rem_min_entity_confidence() RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0.75;

-- What uses of a name are worth as evidence for a person. `uses` are those that each conversation tells of, `talks` which
-- conversations: three messages of two conversations are enough if they show together that it is a person, whom the owner
-- deals with, and that its capital is not that of a sentence; two are a weak piece. A name of something else is nobody's.
CREATE OR REPLACE FUNCTION rem_name_usage_confidence(uses jsonb[], talks uuid[], kinds text[]) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
  SELECT CASE WHEN 'person' <> ANY (kinds) OR 'other' = ANY (t.traits) OR NOT t.traits @> '{human,personal,inside}' THEN 0
              WHEN t.messages >= 3 AND t.talks >= 2 THEN 0.8
              WHEN t.messages >= 2 THEN 0.55 ELSE 0 END
  FROM (SELECT sum((u.use ->> 'messages')::integer) AS messages, count(DISTINCT u.talk) AS talks,
               ARRAY(SELECT jsonb_array_elements_text(v.use -> 'traits') FROM unnest(uses) AS v (use)) AS traits
        FROM unnest(uses, talks) AS u (use, talk) WHERE u.use IS NOT NULL) t);

-- Whether a row of any type is there and not deleted.
CREATE OR REPLACE FUNCTION rem_is_live(of_tenant text, of_type text, of_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  is_live boolean;
BEGIN
  EXECUTE format('SELECT EXISTS (SELECT FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 AND r.deleted_at IS NULL)', of_type)
    INTO is_live USING of_tenant, of_id;
  RETURN is_live;
END $$;

-- Marks what its owner took back: rows that were changed by hand, edges that were removed, fields that say something
-- else. Such a statement keeps no content, and the dream does not repeat it. To be called before anything is written.
CREATE OR REPLACE FUNCTION rem_dream_detect_edits(of_tenant text, of_type text, of_id uuid) RETURNS integer LANGUAGE plpgsql
SET timezone = 'UTC' AS $$
DECLARE
  stored jsonb;
  said rem.statements;
  refused integer := 0;
BEGIN
  EXECUTE format('SELECT to_jsonb(r.*) FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 AND r.deleted_at IS NULL', of_type)
    INTO stored USING of_tenant, of_id;
  FOR said IN
    SELECT t.* FROM (
      SELECT DISTINCT ON (s.kind, s.name) s.id FROM rem.statements s
      WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.state = 'live'
      ORDER BY s.kind, s.name, s.stated_at DESC) n
    JOIN rem.statements t ON (t.tenant_id, t.id) = (of_tenant, n.id)
  LOOP
    CONTINUE WHEN rem.rem_dream_matches_row(said, stored);
    UPDATE rem.statements s SET state = 'refused', value = '{}', ended_at = clock_timestamp()
    WHERE s.tenant_id = of_tenant AND s.entity_id = of_id AND s.entity_type = of_type AND s.kind = said.kind
      AND s.name = said.name AND s.state = 'live';
    refused := refused + 1;
    IF said.kind IN ('row', 'field') AND stored IS NOT NULL THEN
      -- From now on it is its owner's own, and does not go with what the rest of it was made from.
      EXECUTE format('UPDATE rem.%I SET origin = ''user'' WHERE tenant_id = $1 AND id = $2 AND origin LIKE ''dream:%%''', of_type)
        USING of_tenant, of_id;
      UPDATE rem.statements s SET state = 'refused', value = '{}', ended_at = clock_timestamp()
      WHERE s.tenant_id = of_tenant AND s.entity_id = of_id AND s.entity_type = of_type AND s.kind = 'row' AND s.state = 'live';
    END IF;
  END LOOP;
  RETURN refused;
END $$;

-- Whether a row still says what a live statement made it say.
CREATE OR REPLACE FUNCTION rem_dream_matches_row(said rem.statements, stored jsonb) RETURNS boolean LANGUAGE plpgsql STABLE
SET timezone = 'UTC' AS $$
DECLARE
  dreamt jsonb;
  wanted jsonb;
BEGIN
  IF said.kind = 'row' THEN
    dreamt := rem.rem_dream_build_row(said.tenant_id, said.entity_type, said.entity_id);
    IF dreamt IS NULL OR stored IS NULL THEN
      -- What has too little evidence has no row.
      RETURN dreamt IS NULL;
    END IF;
    EXECUTE format('SELECT to_jsonb(p.*) FROM jsonb_populate_record(NULL::rem.%I, $1) p', said.entity_type) INTO wanted USING dreamt;
    RETURN NOT EXISTS (SELECT FROM jsonb_object_keys(said.value) AS k (name)
                       WHERE k.name <> 'graph_edges' AND wanted -> k.name IS DISTINCT FROM stored -> k.name);
  ELSIF stored IS NULL THEN
    RETURN true;
  ELSIF said.kind = 'edge' THEN
    RETURN EXISTS (
      SELECT FROM jsonb_array_elements(stored -> 'graph_edges') AS e (edge)
      WHERE e.edge ->> 'origin' = rem.rem_dream_origin(said.dream) AND e.edge ->> 'rel_type' = said.value ->> 'rel_type'
        AND rem.rem_key(e.edge ->> 'dst') = rem.rem_key(said.value ->> 'dst'));
  ELSIF said.name LIKE 'metadata.%' THEN
    RETURN stored #> string_to_array(said.name, '.') IS NOT DISTINCT FROM said.value;
  END IF;
  EXECUTE format('SELECT to_jsonb(p.*) FROM jsonb_populate_record(NULL::rem.%I, $1) p', said.entity_type)
    INTO wanted USING jsonb_build_object(said.name, said.value);
  RETURN stored -> said.name IS NOT DISTINCT FROM wanted -> said.name;
END $$;

-- Lets an entity say what the live statements say of it. That it was written is no news to the dreams.
CREATE OR REPLACE FUNCTION rem_dream_project(of_tenant text, of_type text, of_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM rem.rem_dream_project_row(of_tenant, of_type, of_id);
  PERFORM rem.rem_dream_project_fields(of_tenant, of_type, of_id);
  PERFORM rem.rem_dream_project_edges(of_tenant, of_type, of_id);
END $$;

-- When a row lapses that statements speak for: when the last of them does, each with the first of its sources.
CREATE OR REPLACE FUNCTION rem_dream_row_expiry(of_tenant text, of_type text, of_id uuid) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN count(*) = count(s.value ->> 'expires_at') THEN max((s.value ->> 'expires_at')::timestamptz) END
  FROM rem.statements s
  WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live'
$$;

-- What statements say of a thing that is named in several places, in the order in which it was said. As much of the newest
-- as says who it is; where the rest is, the mentions tell.
CREATE OR REPLACE FUNCTION rem_dream_row_content(of_tenant text, of_type text, of_id uuid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT string_agg(k.content, E'\n' ORDER BY k.at NULLS FIRST, k.content) FROM (
    SELECT c.content, c.at, sum(length(c.content) + 1) OVER (ORDER BY c.at DESC NULLS LAST, c.content DESC) AS length FROM (
      SELECT left(s.value ->> 'content', 4000) AS content, min(s.valid_from) AS at FROM rem.statements s
      WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live'
        AND s.value ->> 'content' <> ''
      GROUP BY 1) c) k
  WHERE k.length <= 4001
$$;

-- What the live statements make of a row: its content, how sure it is, and by what. NULL if nothing speaks for it.
CREATE OR REPLACE FUNCTION rem_dream_build_row(of_tenant text, of_type text, of_id uuid) RETURNS jsonb LANGUAGE plpgsql STABLE
SET timezone = 'UTC' AS $$
DECLARE
  newest rem.statements;
  evidence record;
BEGIN
  SELECT s.* INTO newest FROM rem.statements s
  WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live'
  -- What only uses a name does not know what else it may be.
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
  -- The same thing, named in several places; they are read once, as there may be many.
  WITH said AS MATERIALIZED (
    SELECT s.confidence, s.valid_from, s.subject_id, s.source_keys, s.value ->> 'name' AS name,
           s.value -> 'extracted_data' AS data
    FROM rem.statements s
    WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row' AND s.state = 'live')
  SELECT rem.rem_combine_confidence(array_agg(s.confidence) || rem.rem_name_usage_confidence(
           array_agg(s.data -> 'uses'), array_agg(s.subject_id), array_agg(s.data ->> 'entity_type'))) AS confidence,
         min(s.valid_from) AS valid_from,
         (SELECT n.name FROM (SELECT DISTINCT t.name FROM said t) n ORDER BY length(n.name) DESC, n.name LIMIT 1) AS name,
         ARRAY(SELECT DISTINCT k FROM said t CROSS JOIN LATERAL unnest(t.source_keys) AS k ORDER BY k LIMIT 50) AS sources,
         (SELECT coalesce(jsonb_agg(a.alias ORDER BY a.alias), '[]') FROM (
            SELECT DISTINCT a.alias FROM said t
            CROSS JOIN LATERAL jsonb_array_elements_text(t.data -> 'aliases') AS a (alias)) a) AS aliases
    INTO evidence
  FROM said s;
  IF evidence.confidence < rem.rem_min_entity_confidence() THEN
    RETURN NULL;
  END IF;
  RETURN newest.value || jsonb_build_object('name', evidence.name, 'content', coalesce(rem.rem_dream_row_content(of_tenant, of_type, of_id), ''),
    'extracted_data', (newest.value -> 'extracted_data') - '{linked,uses}'::text[] || jsonb_build_object('aliases', evidence.aliases),
    'expires_at', rem.rem_dream_row_expiry(of_tenant, of_type, of_id),
    'confidence', evidence.confidence, 'valid_from', evidence.valid_from, 'sources', evidence.sources, 'run_id', newest.run_id,
    'origin', rem.rem_dream_origin(newest.dream), 'user_id', newest.user_id);
END $$;

-- An object with a part changed, which may lie in another part, or taken out; what is empty without it goes, too. What is no
-- object was written by its owner, and has no parts.
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

-- The metadata of a row without the parts of it that were dreamt.
CREATE OR REPLACE FUNCTION rem_metadata_without_dreams(metadata jsonb, dreamt text[]) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  field text;
BEGIN
  FOREACH field IN ARRAY dreamt LOOP
    IF field LIKE 'metadata.%' THEN
      metadata := rem.rem_jsonb_set_path(metadata, (string_to_array(field, '.'))[2:], NULL);
    END IF;
  END LOOP;
  RETURN metadata;
END $$;

-- What a row says beside what was dreamt: its owner has put something of their own into it. `dreamt` are the columns that
-- statements have filled. What is empty says nothing.
CREATE OR REPLACE FUNCTION rem_dream_has_user_content(stored jsonb, dreamt text[]) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
      SELECT FROM jsonb_each(stored) AS c (name, value)
      WHERE c.name <> ALL (dreamt) AND c.name NOT IN (
          'id', 'tenant_id', 'user_id', 'key', 'name', 'created_at', 'updated_at', 'deleted_at', 'expires_at', 'origin', 'sources',
          'run_id', 'confidence', 'valid_from', 'valid_to', 'graph_edges')
        AND CASE c.name WHEN 'metadata' THEN rem.rem_metadata_without_dreams(c.value, dreamt) ELSE c.value END
            NOT IN ('null', '""', '[]', '{}', '0', 'false'))
    OR EXISTS (
      SELECT FROM jsonb_array_elements(stored -> 'graph_edges') AS e (edge) WHERE coalesce(e.edge ->> 'origin', 'user') NOT LIKE 'dream:%')
$$;

-- A row that nothing speaks for any more goes. One that its owner has put something into stays, with that alone.
CREATE OR REPLACE FUNCTION rem_dream_drop_row(of_tenant text, of_type text, of_id uuid, filled text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  stored jsonb;
  dreamt text[];
  emptied text;
BEGIN
  EXECUTE format('SELECT to_jsonb(r.*) FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 AND r.origin LIKE ''dream:%%''', of_type)
    INTO stored USING of_tenant, of_id;
  IF stored IS NULL THEN
    RETURN;
  END IF;
  SELECT coalesce(array_agg(DISTINCT n.name), '{}') || coalesce(filled, '{}') INTO dreamt FROM rem.statements s
  CROSS JOIN LATERAL (
    SELECT s.name WHERE s.kind = 'field'
    UNION ALL SELECT k FROM jsonb_object_keys(CASE s.kind WHEN 'row' THEN s.value ELSE '{}' END) AS k) n
  WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.state <> 'refused';
  IF stored ->> 'deleted_at' IS NOT NULL OR NOT rem.rem_dream_has_user_content(stored, dreamt) THEN
    EXECUTE format('DELETE FROM rem.%I WHERE tenant_id = $1 AND id = $2', of_type) USING of_tenant, of_id;
    RETURN;
  END IF;
  SELECT string_agg(format(', %I = DEFAULT', d.name), '') INTO emptied
  FROM (SELECT DISTINCT unnest(dreamt) AS name) d WHERE stored ? d.name AND d.name NOT IN ('name', 'expires_at', 'metadata');
  EXECUTE format('UPDATE rem.%I SET origin = ''user'', sources = ''{}'', run_id = NULL, confidence = NULL, valid_from = NULL, valid_to = NULL%s
                  WHERE tenant_id = $1 AND id = $2', of_type, coalesce(emptied, '')) USING of_tenant, of_id;
END $$;

CREATE OR REPLACE FUNCTION rem_dream_project_row(of_tenant text, of_type text, of_id uuid, filled text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  dreamt jsonb := rem.rem_dream_build_row(of_tenant, of_type, of_id);
  columns text;
BEGIN
  IF dreamt IS NULL THEN
    -- A row of which no dream ever said that it is there came with a dump, and waits for the one that will.
    IF filled <> '{}' OR EXISTS (
        SELECT FROM rem.statements s
        WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'row') THEN
      PERFORM rem.rem_dream_drop_row(of_tenant, of_type, of_id, filled);
    END IF;
    RETURN;
  END IF;
  SELECT string_agg(quote_ident(k.name), ', ' ORDER BY k.name) INTO columns
  FROM jsonb_object_keys(dreamt) AS k (name) WHERE k.name NOT IN ('id', 'tenant_id', 'user_id', 'graph_edges', 'key');
  EXECUTE format($query$
    INSERT INTO rem.%1$I AS r (tenant_id, id, user_id, %2$s)
    SELECT $1, $2, p.user_id, %3$s FROM jsonb_populate_record(NULL::rem.%1$I, $3) p
    ON CONFLICT (tenant_id, id) DO UPDATE SET (%2$s) = ROW(%4$s)
    WHERE r.deleted_at IS NULL AND r.origin LIKE 'dream:%%' AND (%5$s) IS DISTINCT FROM (%4$s)
    $query$, of_type, columns, regexp_replace(columns, '(^|, )', '\1p.', 'g'),
    regexp_replace(columns, '(^|, )', '\1excluded.', 'g'), regexp_replace(columns, '(^|, )', '\1r.', 'g'))
    USING of_tenant, of_id, dreamt;
END $$;

CREATE OR REPLACE FUNCTION rem_dream_project_fields(of_tenant text, of_type text, of_id uuid) RETURNS void LANGUAGE plpgsql
SET timezone = 'UTC' AS $$
DECLARE
  before timestamptz;
  stored jsonb;
  said rem.statements;
BEGIN
  EXECUTE format('SELECT to_jsonb(r.*) FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2', of_type) INTO stored USING of_tenant, of_id;
  FOR said IN
    SELECT t.* FROM (
      SELECT DISTINCT ON (s.name) s.id, bool_or(s.state = 'refused') OVER (PARTITION BY s.name) AS is_refused FROM rem.statements s
      WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'field'
      ORDER BY s.name, s.state = 'live' DESC, s.stated_at DESC) n
    JOIN rem.statements t ON (t.tenant_id, t.id) = (of_tenant, n.id)
    WHERE NOT n.is_refused
  LOOP
    -- What a dream says no more goes; what its owner has written there since stays.
    CONTINUE WHEN said.state <> 'live' AND NOT rem.rem_dream_matches_row(said, stored);
    before := coalesce(before, rem.rem_row_version(of_tenant, of_type, of_id));
    PERFORM rem.rem_dream_set_field(of_tenant, of_type, of_id, said.name, CASE said.state WHEN 'live' THEN said.value END);
  END LOOP;
  IF before IS NOT NULL THEN
    PERFORM rem.rem_dream_update_progress(of_tenant, of_type, of_id, before, rem.rem_row_version(of_tenant, of_type, of_id));
  END IF;
END $$;

CREATE OR REPLACE FUNCTION rem_row_version(of_tenant text, of_type text, of_id uuid) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
  version timestamptz;
BEGIN
  EXECUTE format('SELECT r.updated_at FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2', of_type) INTO version USING of_tenant, of_id;
  RETURN version;
END $$;

-- Who had seen a row as it was before a dream wrote into it has seen it now.
CREATE OR REPLACE FUNCTION rem_dream_update_progress(of_tenant text, of_type text, of_id uuid, before timestamptz, written timestamptz)
RETURNS void LANGUAGE sql AS $$
  UPDATE rem.dream_progress p SET seen_at = written
  WHERE p.tenant_id = of_tenant AND p.source_id = of_id AND p.source_type = of_type AND p.seen_at = before AND written <> before
$$;

-- Gives a field a value, or takes what a dream gave it. A part of the metadata (`metadata.profile.about`) is a field, too.
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

CREATE OR REPLACE FUNCTION rem_dream_project_edges(of_tenant text, of_type text, of_id uuid) RETURNS void LANGUAGE plpgsql
SET timezone = 'UTC' AS $$
DECLARE
  before record;
  dreamt jsonb;
  written timestamptz;
BEGIN
  -- Also of a deleted row: when it is restored, it must not bring edges back that nothing speaks for.
  EXECUTE format('SELECT r.graph_edges, r.updated_at FROM rem.%I r WHERE r.tenant_id = $1 AND r.id = $2 FOR NO KEY UPDATE', of_type)
    INTO before USING of_tenant, of_id;
  IF before.updated_at IS NULL THEN
    RETURN;
  END IF;
  SELECT coalesce(jsonb_agg(e.edge ORDER BY e.place), '[]') INTO dreamt
  FROM jsonb_array_elements(before.graph_edges) WITH ORDINALITY AS e (edge, place)
  WHERE coalesce(e.edge ->> 'origin', 'user') NOT LIKE 'dream:%';
  SELECT dreamt || coalesce(jsonb_agg(s.edge ORDER BY s.name), '[]') INTO dreamt FROM (
    SELECT DISTINCT ON (s.name) s.name, s.value || jsonb_build_object('origin', rem.rem_dream_origin(s.dream), 'properties',
      coalesce(s.value -> 'properties', '{}') || jsonb_build_object('sources', s.source_keys, 'run_id', s.run_id,
        'created_at', s.stated_at)
      || CASE WHEN s.valid_from IS NULL THEN '{}' ELSE jsonb_build_object('valid_from', s.valid_from) END) AS edge
    FROM rem.statements s
    WHERE s.tenant_id = of_tenant AND s.entity_type = of_type AND s.entity_id = of_id AND s.kind = 'edge' AND s.state = 'live'
    ORDER BY s.name, s.stated_at DESC) s;
  IF dreamt = before.graph_edges THEN
    RETURN;
  END IF;
  -- When a conversation was last written to is asked by people and by pruning: a dream does not count.
  PERFORM set_config('rem.untouched', CASE of_type WHEN 'sessions' THEN 'on' ELSE '' END, true);
  EXECUTE format('UPDATE rem.%I SET graph_edges = $3 WHERE tenant_id = $1 AND id = $2 RETURNING updated_at', of_type)
    INTO written USING of_tenant, of_id, dreamt;
  PERFORM set_config('rem.untouched', '', true);
  PERFORM rem.rem_dream_update_progress(of_tenant, of_type, of_id, before.updated_at, written);
END $$;

-- So many messages of a conversation are looked at together for what they name; it is said to be named in the first of them.
CREATE OR REPLACE FUNCTION rem_dream_rescan_messages() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 100;

-- Lets what some statements were made from be news to the dreams that made them: rows as a whole, and of conversations the
-- messages. The key of a message tells where it was said, also when it is gone. Where something is named that is known no
-- more, the moments are news, too: they tell who was there.
CREATE OR REPLACE FUNCTION rem_dream_rescan_sources(of_tenants text[], of_statements uuid[], is_known_no_more boolean) RETURNS void LANGUAGE sql AS $$
  WITH lost AS (
    SELECT s.tenant_id, s.id, s.user_id, s.dream, s.kind, s.subject_type, s.subject_id, s.source_keys
    FROM unnest(of_tenants, of_statements) AS d (tenant_id, id) JOIN rem.statements s ON (s.tenant_id, s.id) = (d.tenant_id, d.id)),
  said AS (
    SELECT l.*, 1 AS length FROM lost l
    UNION ALL
    SELECT l.tenant_id, l.id, l.user_id, 'moments', l.kind, l.subject_type, l.subject_id, l.source_keys, rem.rem_dream_rescan_messages() FROM lost l
    WHERE is_known_no_more AND l.dream = 'entities' AND l.kind = 'edge' AND l.subject_type IN ('sessions', 'resources')),
  conversations AS (
    SELECT s.tenant_id, s.user_id, s.dream, m.place[1]::uuid AS session_id,
           range_agg(int4range(m.place[2]::integer, (m.place[2]::integer / s.length + 1) * s.length)) AS messages
    FROM said s CROSS JOIN LATERAL unnest(s.source_keys) AS k (key)
    CROSS JOIN LATERAL regexp_match(k.key, '^session-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-msg-(\d{1,9})$') AS m (place)
    WHERE m.place IS NOT NULL
    GROUP BY s.tenant_id, s.user_id, s.dream, m.place[1]),
  parts AS (
    UPDATE rem.dream_progress p SET again = p.again + c.messages * int4multirange(int4range(0, p.seen_index, '[]')) FROM conversations c
    WHERE (p.tenant_id, p.source_id, p.dream) = (c.tenant_id, c.session_id, c.dream) AND p.user_id = c.user_id
      AND p.source_type = 'sessions' AND p.seen_index >= 0)
  DELETE FROM rem.dream_progress p USING (
    SELECT s.tenant_id, s.dream, s.subject_id AS id FROM said s WHERE s.subject_type <> 'sessions'
    UNION
    SELECT s.tenant_id, s.dream, x.source_id FROM said s
    JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (s.tenant_id, s.id)
    WHERE x.source_type NOT IN ('sessions', 'messages')) a
  WHERE (p.tenant_id, p.source_id, p.dream) = (a.tenant_id, a.id, a.dream)
$$;

-- What is gone takes along what was dreamt from it, at once. A deleted memory may come back: then what its owner refused
-- stays refused, and the rest is dreamt again. An erased one leaves nothing.
CREATE OR REPLACE FUNCTION rem_retract(of_type text, of_tenants text[], of_ids uuid[], is_erased boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  doomed_tenants text[];
  doomed_ids uuid[];
  touched record;
BEGIN
  IF of_ids IS NULL THEN
    RETURN;
  END IF;
  DELETE FROM rem.dream_progress p USING unnest(of_tenants, of_ids) AS gone (tenant_id, id)
  WHERE (p.tenant_id, p.source_id, p.source_type) = (gone.tenant_id, gone.id, of_type);
  -- A dreamt row that goes while a statement stands for it was deleted by its owner: its earlier versions go, too.
  WITH refused AS (
    UPDATE rem.statements s SET state = 'refused', value = '{}', ended_at = clock_timestamp()
    FROM unnest(of_tenants, of_ids) AS gone (tenant_id, id)
    WHERE (s.tenant_id, s.entity_id, s.entity_type) = (gone.tenant_id, gone.id, of_type) AND s.kind = 'row' AND s.state = 'live'
      -- What goes because too little evidence is left was not refused by anyone.
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
  -- What its owner has changed meanwhile is not the dream's any more.
  PERFORM rem.rem_dream_detect_edits(e.tenant_id, e.entity_type, e.entity_id) FROM (
    SELECT DISTINCT s.tenant_id, s.entity_type, s.entity_id FROM unnest(doomed_tenants, doomed_ids) AS d (tenant_id, id)
    JOIN rem.statements s ON (s.tenant_id, s.id) = (d.tenant_id, d.id) AND s.state = 'live') e;
  -- What else they were made from is looked at again.
  PERFORM rem.rem_dream_rescan_sources(doomed_tenants, doomed_ids, of_type = 'ontologies');
  FOR touched IN
    WITH gone AS (
      DELETE FROM rem.statements s USING unnest(doomed_tenants, doomed_ids) AS d (tenant_id, id)
      WHERE (s.tenant_id, s.id) = (d.tenant_id, d.id) AND (is_erased OR s.state <> 'refused')
      RETURNING s.tenant_id, s.entity_type, s.entity_id, s.kind, CASE s.kind WHEN 'field' THEN s.name END AS field, s.state, s.value)
    SELECT g.tenant_id, g.entity_type, g.entity_id, g.kind, g.field, g.state,
           array_remove(array_agg(DISTINCT k.name), NULL) AS filled
    FROM gone g LEFT JOIN LATERAL jsonb_object_keys(CASE g.kind WHEN 'row' THEN g.value ELSE '{}' END) AS k (name) ON true
    WHERE g.state <> 'ended' GROUP BY g.tenant_id, g.entity_type, g.entity_id, g.kind, g.field, g.state
    -- Edges and fields before the rows that they are of.
    ORDER BY g.kind
  LOOP
    IF touched.state = 'refused' THEN
      -- What its owner deleted holds the words of what is erased now.
      IF touched.kind = 'row' THEN
        EXECUTE format('DELETE FROM rem.%I WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NOT NULL AND origin LIKE ''dream:%%''',
                       touched.entity_type) USING touched.tenant_id, touched.entity_id;
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
