-- Return the number of live and deleted rows and the size of each entity table, over all tenants and users.
CREATE OR REPLACE FUNCTION rem_table_sizes()
RETURNS TABLE (entity_type text, live bigint, deleted bigint, size_bytes bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
  FOR entity_type IN SELECT name FROM rem.entity_types ORDER BY name LOOP
    EXECUTE format('SELECT count(*) FILTER (WHERE deleted_at IS NULL), count(deleted_at),
                    (SELECT sum(pg_total_relation_size(t)) FROM rem.rem_leaves(%1$L) t) FROM %1$s', format('rem.%I', entity_type))
      INTO live, deleted, size_bytes;
    RETURN NEXT;
  END LOOP;
END $$;

-- Compare the mirrors with the entity tables, row by row. A wrong row is missing or superfluous.
CREATE OR REPLACE FUNCTION rem_check_mirrors(OUT keys bigint, OUT edges bigint, OUT wrong_keys bigint, OUT wrong_edges bigint)
LANGUAGE plpgsql STABLE SET timezone = 'UTC' SET extra_float_digits = 1 AS $$
DECLARE
  kv_queries text := (SELECT string_agg(rem.rem_kv_query(e, format('rem.%I', e.name)), ' UNION ALL ') FROM rem.entity_types e);
  edge_queries text := (SELECT string_agg(rem.rem_edges_query(e, format('rem.%I', e.name)), ' UNION ALL ') FROM rem.entity_types e);
BEGIN
  keys := (SELECT count(*) FROM rem.kv_store WHERE tenant_id <> '');
  edges := (SELECT count(*) FROM rem.edges);
  EXECUTE format($query$
    WITH expected AS (%s), stored AS (SELECT %s FROM rem.kv_store WHERE tenant_id <> '')
    SELECT (SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE stored) missing)
         + (SELECT count(*) FROM (TABLE stored EXCEPT ALL TABLE expected) superfluous) $query$, kv_queries, rem.rem_kv_columns()) INTO wrong_keys;
  EXECUTE format($query$
    WITH expected AS (%s), stored AS (SELECT %s FROM rem.edges)
    SELECT (SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE stored) missing)
         + (SELECT count(*) FROM (TABLE stored EXCEPT ALL TABLE expected) superfluous) $query$, edge_queries, rem.rem_edge_columns()) INTO wrong_edges;
END $$;
