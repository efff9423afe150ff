-- The words of passages have other weights, and identifiers are indexed without their separators. All rows are indexed again; their
-- vectors stay.
DO $$
DECLARE
  entity rem.entity_types;
BEGIN
  FOR entity IN SELECT * FROM rem.entity_types WHERE search_fields <> '{}' LOOP
    EXECUTE format(
      'INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
       SELECT tenant_id, coalesce(user_id, ''''), %1$L, array_agg(id ORDER BY created_at) FROM rem.%1$I
       WHERE deleted_at IS NULL GROUP BY tenant_id, user_id', entity.name);
  END LOOP;
END $$;
