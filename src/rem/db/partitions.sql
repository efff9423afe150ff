-- name: partition_count
-- Return the number of partitions of each partitioned table of REM, 0 if no table is partitioned.
SELECT coalesce(max(c.partitions), 0) FROM (
  SELECT count(*) AS partitions FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
  WHERE p.relkind = 'p' AND p.relnamespace = to_regnamespace('rem') GROUP BY i.inhparent) c

-- name: plain_tables
-- Return those of the named tables ($1) and of the tables of custom types that exist and have no partitions yet.
SELECT c.relname::text FROM pg_class c
WHERE c.relnamespace = 'rem'::regnamespace AND c.relkind = 'r'
  AND (c.relname = ANY ($1::text[]) OR c.relname IN (SELECT t.name FROM rem.entity_types t WHERE NOT t.is_builtin))
ORDER BY c.relname

-- name: has_rows
SELECT EXISTS (SELECT FROM {table})

-- name: lock_tables
LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE

-- name: relation_count
-- Return the number of tables and indexes that one partition of each of these tables adds.
SELECT (count(*) + sum((SELECT count(*) FROM pg_index x WHERE x.indrelid = c.oid))
        + count(*) FILTER (WHERE c.reltoastrelid <> 0) * 2)::bigint
FROM pg_class c WHERE c.oid = ANY ($1::regclass[])

-- name: lock_limits
-- Return how many locks one transaction can hold while no other holds any, and by how many processes the setting is multiplied.
SELECT p.processes * current_setting('max_locks_per_transaction')::bigint AS max_locks, p.processes FROM (
  SELECT sum(current_setting(name)::bigint)::bigint AS processes
  FROM unnest('{max_connections,max_prepared_transactions,max_worker_processes,max_wal_senders,autovacuum_max_workers}'::text[]) AS name) p

-- name: create_schema
-- IF NOT EXISTS would need the right to create one even where an administrator has made it.
DO $$ BEGIN
  IF to_regnamespace('rem_partitions') IS NULL THEN
    CREATE SCHEMA rem_partitions;
  END IF;
END $$

-- name: foreign_keys
-- Return two statements for each foreign key from or to these tables: one that drops it, and one that creates it again.
SELECT format('ALTER TABLE rem.%I DROP CONSTRAINT %I', c.relname, k.conname) AS drop,
       format('ALTER TABLE rem.%I ADD CONSTRAINT %I %s', c.relname, k.conname, pg_get_constraintdef(k.oid)) AS create
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'f' AND k.conparentid = 0 AND (k.conrelid = ANY ($1::regclass[]) OR k.confrelid = ANY ($1::regclass[]))
ORDER BY c.relname, k.conname

-- name: table_statements
-- Return the statements that replace a table without rows by a partitioned one with the same columns, constraints, indexes, triggers,
-- rights and comment. The new table is created in another schema, so that the sequences of its columns get the names of the old ones.
SELECT ARRAY[
    format('CREATE TABLE rem_partitions.%I (LIKE rem.%1$I INCLUDING ALL EXCLUDING INDEXES) PARTITION BY HASH (tenant_id)', c.relname),
    format('DROP TABLE rem.%I', c.relname),
    format('ALTER TABLE rem_partitions.%I SET SCHEMA rem', c.relname)]
  || ARRAY(
    SELECT CASE WHEN k.oid IS NULL THEN pg_get_indexdef(x.indexrelid)
                ELSE format('ALTER TABLE rem.%I ADD CONSTRAINT %I %s', c.relname, k.conname, pg_get_constraintdef(k.oid)) END
    FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
    LEFT JOIN pg_constraint k ON k.conindid = x.indexrelid AND k.conrelid = c.oid AND k.contype IN ('p', 'u')
    WHERE x.indrelid = c.oid ORDER BY i.relname)
  || ARRAY(
    SELECT format('CREATE %s TABLE rem_partitions.%I PARTITION OF rem.%I FOR VALUES WITH (MODULUS %s, REMAINDER %s) %s',
                  -- The partitioned table itself has no rows, and cannot be UNLOGGED.
                  CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED' ELSE '' END, c.relname || '_' || n, c.relname, $2::integer, n,
                  'WITH (' || array_to_string(c.reloptions, ', ') || ')')
    FROM generate_series(0, $2::integer - 1) AS n)
  || ARRAY(
    SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal ORDER BY t.tgname)
  || ARRAY(
    SELECT format('GRANT %s ON rem.%I TO %s %s', a.privilege_type, c.relname,
                  CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
                  CASE WHEN a.is_grantable THEN 'WITH GRANT OPTION' ELSE '' END)
    FROM aclexplode(c.relacl) a WHERE a.grantee <> c.relowner)
  || ARRAY(
    SELECT format('COMMENT ON TABLE rem.%I IS %L', c.relname, d.description) FROM pg_description d
    WHERE d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0) AS statements
FROM pg_class c WHERE c.oid = $1::regclass
