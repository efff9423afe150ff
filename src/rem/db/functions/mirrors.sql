-- Keep the mirrors (kv_store, edges) and passages exact. Each entity type gets a generated statement-level trigger function:
-- its plans are static, and a bulk load costs three statements, not three per row.

-- Return the columns of the two queries below, in their order. The other columns of the mirrors are generated.
CREATE OR REPLACE FUNCTION rem_kv_columns() RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'tenant_id, user_id, entity_type, entity_key, entity_id, key_rank, content_summary, expires_at, record';

CREATE OR REPLACE FUNCTION rem_edge_columns() RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'tenant_id, src_type, src_id, ordinal, user_id, src_key, dst_key, dst_type, rel_type, weight, origin, properties';

-- Return a query that gives the kv_store rows for the rows of `source`.
CREATE OR REPLACE FUNCTION rem_kv_query(entity rem.entity_types, source text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format($query$
      SELECT r.tenant_id, r.user_id, %1$L AS entity_type, k.entity_key, r.id AS entity_id, k.key_rank,
             CASE WHEN %2$s LIKE 'rem1:%%' THEN '' ELSE left(coalesce(%2$s, ''), 200) END AS content_summary, r.expires_at, %5$s AS record
      FROM %3$s r CROSS JOIN LATERAL (%4$s) k WHERE r.deleted_at IS NULL $query$,
    entity.name, entity.summary_expression, source,
    CASE WHEN cardinality(entity.key_expressions) = 1
        AND num_nonnulls(entity.alias_expression, entity.exact_key_expression, entity.weak_key_expression) = 0
      THEN format('SELECT %s AS entity_key, 1::smallint AS key_rank', entity.key_expressions[1])
      ELSE format('SELECT entity_key, min(key_rank)::smallint AS key_rank FROM (
                     SELECT entity_key, least(key_rank, %3$s - 1) AS key_rank
                     FROM unnest(ARRAY[%1$s] || %2$s) WITH ORDINALITY AS names (entity_key, key_rank)
                     UNION ALL SELECT entity_key, %3$s FROM unnest(%4$s) AS exact_keys (entity_key)
                     UNION ALL SELECT entity_key, %5$s FROM unnest(%6$s) AS weak_keys (entity_key)) AS keys
                   WHERE entity_key <> '''' GROUP BY entity_key',
                  array_to_string(entity.key_expressions, ', '), coalesce(entity.alias_expression, '''{}''::text[]'),
                  rem.rem_exact_key_rank(), coalesce(entity.exact_key_expression, '''{}''::text[]'),
                  rem.rem_weak_key_rank(), coalesce(entity.weak_key_expression, '''{}''::text[]'))
    END,
    CASE WHEN entity.is_cached
      -- Check the long column first: a large row must not be converted to JSON in vain.
      THEN format('CASE WHEN k.key_rank < %2$s AND coalesce(octet_length(%1$s), 0) <= 1500 THEN
                     (SELECT small.record FROM (SELECT to_json(r.*)::text AS record OFFSET 0) small
                      WHERE octet_length(small.record) <= 2000) END', entity.summary_expression, rem.rem_exact_key_rank())
      ELSE 'NULL::text'
    END)
$$;

-- Return a query that gives the edges rows for the rows of `source`. It skips an element that is not an edge: the models
-- validate edges, and a hand-written UPDATE must not block a table.
CREATE OR REPLACE FUNCTION rem_edges_query(entity rem.entity_types, source text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format($query$
      SELECT r.tenant_id, %1$L AS src_type, r.id AS src_id, e.ordinal::integer AS ordinal, r.user_id, r.key AS src_key,
             rem.rem_key(e.edge ->> 'dst') AS dst_key, e.edge #>> '{properties,dst_entity_type}' AS dst_type,
             coalesce(e.edge ->> 'rel_type', 'related_to') AS rel_type,
             CASE WHEN jsonb_typeof(e.edge -> 'weight') = 'number' THEN (e.edge ->> 'weight')::double precision ELSE 1 END
               AS weight,
             coalesce(e.edge ->> 'origin', 'user') AS origin, coalesce(e.edge -> 'properties', '{}') AS properties
      FROM %2$s r CROSS JOIN LATERAL jsonb_array_elements(r.graph_edges) WITH ORDINALITY AS e (edge, ordinal)
      WHERE r.deleted_at IS NULL AND r.graph_edges <> '[]' AND rem.rem_key(e.edge ->> 'dst') <> '' $query$,
    entity.name, source)
$$;

-- Create the trigger function of an entity type, and its triggers.
CREATE OR REPLACE FUNCTION rem_make_mirror(entity rem.entity_types) RETURNS void LANGUAGE plpgsql AS $make$
BEGIN
  EXECUTE format($ddl$
    CREATE OR REPLACE FUNCTION rem.%1$I() RETURNS trigger LANGUAGE plpgsql
    -- The JSON of a row contains times in the zone of the session; it must not depend on the writer.
    SET timezone = 'UTC' SET extra_float_digits = 1 AS $mirror$
    BEGIN
      IF TG_OP = 'INSERT' THEN
        IF NOT EXISTS (SELECT FROM new_rows) THEN RETURN NULL; END IF;
        INSERT INTO rem.kv_store (%2$s) %4$s;
        INSERT INTO rem.edges (%3$s) %5$s;
        %9$s;
      ELSIF TG_OP = 'DELETE' THEN
        DELETE FROM rem.kv_store k USING old_rows o WHERE (k.tenant_id, k.entity_id, k.entity_type) = (o.tenant_id, o.id, %8$L);
        DELETE FROM rem.edges e USING old_rows o WHERE (e.tenant_id, e.src_id, e.src_type) = (o.tenant_id, o.id, %8$L);
        %10$s;
        PERFORM rem.rem_retract(%8$L, array_agg(o.tenant_id), array_agg(o.id), true) FROM old_rows o;
      ELSIF EXISTS (SELECT FROM new_rows) THEN
        -- Rewrite only changed rows: touching a session must not rewrite its kv_store rows.
        DELETE FROM rem.kv_store k USING (%6$s EXCEPT %4$s) o
          WHERE (k.tenant_id, k.entity_id, k.entity_type, k.entity_key) = (o.tenant_id, o.entity_id, o.entity_type, o.entity_key);
        INSERT INTO rem.kv_store (%2$s) %4$s EXCEPT %6$s;
        DELETE FROM rem.edges e USING (%7$s EXCEPT %5$s) o
          WHERE (e.tenant_id, e.src_id, e.src_type, e.ordinal) = (o.tenant_id, o.src_id, o.src_type, o.ordinal);
        INSERT INTO rem.edges (%3$s) %5$s EXCEPT %7$s;
        -- The index stays if texts are only encrypted with another key.
        IF current_setting('rem.reseals', true) IS DISTINCT FROM 'on' THEN
          %11$s;
        END IF;
        IF EXISTS (SELECT FROM new_rows n WHERE n.deleted_at IS NOT NULL) THEN
          PERFORM rem.rem_retract(%8$L, array_agg(n.tenant_id), array_agg(n.id), false)
          FROM new_rows n JOIN old_rows o ON (o.tenant_id, o.id) = (n.tenant_id, n.id)
          WHERE n.deleted_at IS NOT NULL AND o.deleted_at IS NULL;
        END IF;
        IF EXISTS (SELECT FROM new_rows n WHERE n.expires_at IS NOT NULL)
            OR EXISTS (SELECT FROM old_rows o WHERE o.expires_at IS NOT NULL) THEN
          PERFORM rem.rem_expire_dreams_from(n.tenant_id, %8$L, array_agg(n.id))
          FROM new_rows n JOIN old_rows o ON (o.tenant_id, o.id) = (n.tenant_id, n.id)
          WHERE n.expires_at IS DISTINCT FROM o.expires_at GROUP BY n.tenant_id;
        END IF;
      END IF;
      RETURN NULL;
    END $mirror$ $ddl$,
    'rem_mirror_' || entity.name, rem.rem_kv_columns(), rem.rem_edge_columns(),
    rem.rem_kv_query(entity, 'new_rows'), rem.rem_edges_query(entity, 'new_rows'),
    rem.rem_kv_query(entity, 'old_rows'), rem.rem_edges_query(entity, 'old_rows'), entity.name,
    rem.rem_passages_on_insert(entity), rem.rem_passages_on_delete(entity), rem.rem_passages_on_update(entity));
  EXECUTE format($ddl$
    CREATE OR REPLACE TRIGGER mirror_insert AFTER INSERT ON rem.%1$I REFERENCING NEW TABLE AS new_rows
      FOR EACH STATEMENT EXECUTE FUNCTION rem.%2$I();
    CREATE OR REPLACE TRIGGER mirror_update AFTER UPDATE ON rem.%1$I REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
      FOR EACH STATEMENT EXECUTE FUNCTION rem.%2$I();
    CREATE OR REPLACE TRIGGER mirror_delete AFTER DELETE ON rem.%1$I REFERENCING OLD TABLE AS old_rows
      FOR EACH STATEMENT EXECUTE FUNCTION rem.%2$I();
    CREATE OR REPLACE TRIGGER mirror_truncate AFTER TRUNCATE ON rem.%1$I
      FOR EACH STATEMENT EXECUTE FUNCTION rem.rem_mirror_truncate();
    $ddl$, entity.name, 'rem_mirror_' || entity.name);
END $make$;

-- Remove the mirror rows of a truncated table.
CREATE OR REPLACE FUNCTION rem_mirror_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rem.kv_store WHERE entity_type = TG_TABLE_NAME;
  DELETE FROM rem.edges WHERE src_type = TG_TABLE_NAME;
  DELETE FROM rem.passages WHERE entity_type = TG_TABLE_NAME;
  RETURN NULL;
END $$;

-- Create rem_record, which returns the row of any entity as JSON. It has one branch per type, so every plan is cached.
CREATE OR REPLACE FUNCTION rem_make_record_function() RETURNS void LANGUAGE plpgsql AS $make$
DECLARE
  branches text;
BEGIN
  SELECT string_agg(format(
      'WHEN %1$L THEN RETURN (SELECT to_json(r.*) FROM rem.%1$I r WHERE r.tenant_id = of_tenant AND r.id = of_id);', name),
      E'\n' ORDER BY name)
    INTO branches FROM rem.entity_types;
  EXECUTE format($ddl$
    CREATE OR REPLACE FUNCTION rem.rem_record(of_type text, of_tenant text, of_id uuid) RETURNS json
    LANGUAGE plpgsql STABLE AS $record$
    BEGIN
      CASE of_type %s
      ELSE RETURN NULL; END CASE;
    END $record$ $ddl$, coalesce(branches, $$WHEN '' THEN RETURN NULL;$$));
END $make$;

-- Create rem_record_bytes, which returns about how many bytes the record of any entity has. Texts are not read for it: the row tells their
-- length. Values of other types are counted as they are stored, and compressed ones as text.
CREATE OR REPLACE FUNCTION rem_make_record_bytes_function() RETURNS void LANGUAGE plpgsql AS $make$
DECLARE
  branches text;
BEGIN
  SELECT string_agg(format('WHEN %1$L THEN RETURN (SELECT %2$s FROM rem.%1$I r WHERE r.tenant_id = of_tenant AND r.id = of_id);',
                           entity.name, sizes.expression), E'\n' ORDER BY entity.name)
    INTO branches FROM rem.entity_types entity
    CROSS JOIN LATERAL (
      SELECT string_agg(format(CASE
          WHEN a.atttypid = 'text'::regtype THEN 'coalesce(octet_length(r.%1$I), 0)'
          -- The numbers of a vector take more bytes as text.
          WHEN t.typname IN ('vector', 'halfvec') THEN 'coalesce(pg_column_size(r.%1$I) * 5, 0)'
          ELSE 'coalesce(CASE WHEN pg_column_compression(r.%1$I) IS NULL THEN pg_column_size(r.%1$I) ELSE octet_length(r.%1$I::text) END, 0)'
        END, a.attname), ' + ' ORDER BY a.attnum) AS expression
      FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
      WHERE a.attrelid = format('rem.%I', entity.name)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attlen = -1) sizes;
  EXECUTE format($ddl$
    CREATE OR REPLACE FUNCTION rem.rem_record_bytes(of_type text, of_tenant text, of_id uuid) RETURNS bigint
    LANGUAGE plpgsql STABLE AS $bytes$
    BEGIN
      CASE of_type %s
      ELSE RETURN NULL; END CASE;
    END $bytes$ $ddl$, coalesce(branches, $$WHEN '' THEN RETURN NULL;$$));
END $make$;

-- Create all generated functions and policies again: after a migration, and when an entity type was added.
CREATE OR REPLACE FUNCTION rem_refresh_entity_types() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM rem.rem_make_mirror(entity) FROM rem.entity_types entity;
  PERFORM rem.rem_make_record_function();
  PERFORM rem.rem_make_record_bytes_function();
  PERFORM rem.rem_sql_protect();
  PERFORM rem.rem_name_partition_indexes();
END $$;

-- Drop all generated functions and their triggers.
CREATE OR REPLACE FUNCTION rem_drop_mirrors() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  entity_name text;
BEGIN
  FOR entity_name IN SELECT name FROM rem.entity_types LOOP
    EXECUTE format('DROP FUNCTION IF EXISTS rem.%I() CASCADE', 'rem_mirror_' || entity_name);
  END LOOP;
  DROP FUNCTION IF EXISTS rem.rem_record(text, text, uuid);
  DROP FUNCTION IF EXISTS rem.rem_record_bytes(text, text, uuid);
  DROP FUNCTION IF EXISTS rem.rem_mirror_truncate() CASCADE;
END $$;

-- Return true if kv_store has its marker row, which no lookup can find. A crash empties the table, marker included.
CREATE OR REPLACE FUNCTION rem_kv_store_is_complete() RETURNS boolean LANGUAGE sql STABLE
RETURN EXISTS (SELECT FROM rem.kv_store WHERE tenant_id = '' AND entity_key = '');

-- Rebuild kv_store from the entity tables, and return the number of keys. Readers and writers wait, because no result is
-- better than a wrong one.
CREATE OR REPLACE FUNCTION rem_rebuild_kv_store() RETURNS bigint LANGUAGE plpgsql SET timezone = 'UTC' SET extra_float_digits = 1 AS $$
DECLARE
  entity rem.entity_types;
BEGIN
  LOCK TABLE rem.kv_store IN ACCESS EXCLUSIVE MODE;
  -- Not TRUNCATE: an older snapshot would then see an empty table.
  DELETE FROM rem.kv_store;
  FOR entity IN SELECT * FROM rem.entity_types LOOP
    EXECUTE format('INSERT INTO rem.kv_store (%s) %s', rem.rem_kv_columns(),
                   rem.rem_kv_query(entity, format('rem.%I', entity.name)));
  END LOOP;
  INSERT INTO rem.kv_store (tenant_id, entity_type, entity_key, entity_id, key_rank, content_summary)
    VALUES ('', '', '', '00000000-0000-0000-0000-000000000000', 1, '');
  RETURN (SELECT count(*) FROM rem.kv_store WHERE tenant_id <> '');
END $$;

-- Rebuild edges from the entity tables, and return their number.
CREATE OR REPLACE FUNCTION rem_rebuild_edges() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  entity rem.entity_types;
BEGIN
  LOCK TABLE rem.edges IN ACCESS EXCLUSIVE MODE;
  DELETE FROM rem.edges;
  FOR entity IN SELECT * FROM rem.entity_types LOOP
    EXECUTE format('INSERT INTO rem.edges (%s) %s', rem.rem_edge_columns(),
                   rem.rem_edges_query(entity, format('rem.%I', entity.name)));
  END LOOP;
  RETURN (SELECT count(*) FROM rem.edges);
END $$;

-- Rebuild kv_store after a crash. Return true if this call rebuilt it, and false if another one did while this one waited.
-- Call rem_kv_store_is_complete first, in a separate transaction: two transactions that have read the table would deadlock.
CREATE OR REPLACE FUNCTION rem_fix_kv_store() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE rem.kv_store IN ACCESS EXCLUSIVE MODE;
  IF rem.rem_kv_store_is_complete() THEN
    RETURN false;
  END IF;
  PERFORM rem.rem_rebuild_kv_store();
  RETURN true;
END $$;
