-- Partitions of the large tables (rem/db/partitions.py). Statements name the whole table; these functions are for the rest.

-- Return the tables that hold the rows of a table, or the indexes that hold the entries of an index: itself, or its partitions.
CREATE OR REPLACE FUNCTION rem_leaves(relation regclass) RETURNS SETOF regclass LANGUAGE sql STABLE AS $$
  SELECT t.relid FROM pg_partition_tree(relation) t WHERE t.isleaf
  UNION ALL SELECT relation WHERE NOT EXISTS (SELECT FROM pg_partition_tree(relation))
$$;

-- Give each index of a partition the name of the whole index with the number of the partition. A violated key reports this name.
CREATE OR REPLACE FUNCTION rem_name_partition_indexes() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  leaf record;
BEGIN
  FOR leaf IN
    SELECT n.* FROM (
      SELECT i.oid::regclass AS index, i.relname AS name, left(w.relname, 58) || substring(t.relname FROM '_\d+$') AS wanted
      FROM pg_class w JOIN pg_inherits h ON h.inhparent = w.oid JOIN pg_class i ON i.oid = h.inhrelid
      JOIN pg_index x ON x.indexrelid = i.oid JOIN pg_class t ON t.oid = x.indrelid
      WHERE w.relkind = 'I' AND w.relnamespace = 'rem'::regnamespace) n
    WHERE n.name <> n.wanted
  LOOP
    EXECUTE format('ALTER INDEX %s RENAME TO %I', leaf.index, leaf.wanted);
  END LOOP;
END $$;

-- The functions below prepare and finish a copy of the memory by PostgreSQL's logical replication, into a database with another number
-- of partitions (docs/database.md, "Divide a database that is in use").

-- Return the tables that are copied. The others belong to the new database itself, or are filled at the end.
CREATE OR REPLACE FUNCTION rem_copied_tables() RETURNS SETOF regclass LANGUAGE sql STABLE AS $$
  SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname IN ('rem', 'rem_auth', 'rem_jobs') AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
    AND c.relname <> ALL ('{migrations,installed_functions,sql_access,kv_store,term_count_deltas,passage_total_deltas}')
  ORDER BY n.nspname, c.relname
$$;

-- In the old database: publish the memory as `rem_copy`.
CREATE OR REPLACE FUNCTION rem_publish_copy() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  without_key regclass;
BEGIN
  IF current_setting('wal_level') <> 'logical' THEN
    RAISE EXCEPTION 'set wal_level = logical and restart the server: logical replication needs it';
  END IF;
  FOR without_key IN
    SELECT t FROM rem.rem_copied_tables() t WHERE NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = t AND x.indisprimary)
  LOOP
    -- Otherwise PostgreSQL would refuse to update its rows as long as it is published.
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', without_key);
  END LOOP;
  EXECUTE format('CREATE PUBLICATION rem_copy FOR TABLE %s WITH (publish_via_partition_root = true)',
                 (SELECT string_agg(t::text, ', ') FROM rem.rem_copied_tables() t));
END $$;

-- In the new database, before the subscription: remove what the migrations stored, because the copy brings it.
CREATE OR REPLACE FUNCTION rem_receive_copy() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  copied_table regclass;
  has_rows boolean;
BEGIN
  DELETE FROM rem.entity_types;
  DELETE FROM rem.installation;
  FOR copied_table IN SELECT t FROM rem.rem_copied_tables() t LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', copied_table) INTO has_rows;
    IF has_rows THEN
      RAISE EXCEPTION 'the table % has rows: copy into a new database', copied_table;
    END IF;
  END LOOP;
END $$;

-- In the new database, when everything is copied: let the sequences go on after the copied rows, and fill kv_store.
CREATE OR REPLACE FUNCTION rem_finish_copy() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  numbered record;
BEGIN
  FOR numbered IN
    SELECT t.t AS name, a.attname, pg_get_serial_sequence(t.t::text, a.attname) AS sequence
    FROM rem.rem_copied_tables() t JOIN pg_attribute a ON a.attrelid = t.t AND a.attnum > 0 AND NOT a.attisdropped
    WHERE pg_get_serial_sequence(t.t::text, a.attname) IS NOT NULL
  LOOP
    EXECUTE format('SELECT setval(%L, coalesce(max(%I), 0) + 1, false) FROM %s', numbered.sequence, numbered.attname, numbered.name);
  END LOOP;
  RETURN rem.rem_rebuild_kv_store();
END $$;
