-- How much each entity table holds, over all tenants and users: for operators.
CREATE OR REPLACE FUNCTION rem_table_sizes()
RETURNS TABLE (entity_type text, live bigint, deleted bigint, size_bytes bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
  FOR entity_type IN SELECT name FROM rem.entity_types ORDER BY name LOOP
    EXECUTE format('SELECT count(*) FILTER (WHERE deleted_at IS NULL), count(deleted_at),
                    pg_total_relation_size(%1$L::regclass) FROM %1$s', format('rem.%I', entity_type))
      INTO live, deleted, size_bytes;
    RETURN NEXT;
  END LOOP;
END $$;
