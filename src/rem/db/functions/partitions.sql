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
