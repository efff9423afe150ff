-- name: expire
-- Set the expiry of one row that is neither deleted nor expired.
UPDATE {table} r SET expires_at = $4
WHERE r.tenant_id = $1 AND {owner} AND r.id = $3 AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
RETURNING r.id

-- name: adopt_expiring_row
-- Make a dreamt row the owner's own, because the owner set an expiry on it: no dream changes it or makes it again.
WITH refused AS (
  UPDATE rem.statements s SET state = 'refused', value = '{}', ended_at = clock_timestamp()
  WHERE s.tenant_id = $1 AND s.entity_type = $2 AND s.entity_id = $3 AND s.kind = 'row' AND s.state = 'live')
UPDATE {table} r SET origin = 'user' WHERE r.tenant_id = $1 AND r.id = $3 AND r.origin LIKE 'dream:%'

-- name: expired
-- Return a page of expired rows of all owners, after the row ($1, $2).
SELECT r.tenant_id, r.id FROM {table} r
WHERE r.expires_at <= now() AND (r.tenant_id, r.id) > ($1, $2)
ORDER BY r.tenant_id, r.id LIMIT $3

-- name: lock_expired
-- Lock those of the rows that are still expired, and that no other transaction writes.
SELECT r.tenant_id, r.id FROM {table} r
JOIN unnest($1::text[], $2::uuid[]) AS d (tenant_id, id) ON (r.tenant_id, r.id) = (d.tenant_id, d.id)
WHERE r.expires_at <= now()
ORDER BY r.tenant_id, r.id FOR UPDATE OF r SKIP LOCKED

-- name: delete_statements_of_expired
-- Delete the statements of rows that expire with a source, without a refusal, and let dreams read their sources again. A row
-- whose owner set the expiry is refused when it is erased.
WITH stated AS (
  SELECT s.tenant_id, s.id, s.dream, s.subject_id, s.entity_id, s.state,
         coalesce(rem.rem_earliest_expiry(s.tenant_id, s.id) <= now(), false) AS has_expired
  FROM unnest($2::text[], $3::uuid[]) AS d (tenant_id, id)
  JOIN rem.statements s ON (s.tenant_id, s.entity_id, s.entity_type) = (d.tenant_id, d.id, $1)
  WHERE s.kind = 'row' AND s.state <> 'refused'),
expired AS (
  SELECT s.tenant_id, s.id, s.dream, s.subject_id FROM stated s
  WHERE NOT EXISTS (
    SELECT FROM stated o
    WHERE (o.tenant_id, o.entity_id, o.state) = (s.tenant_id, s.entity_id, 'live') AND NOT o.has_expired)),
rescanned AS (
  DELETE FROM rem.dream_progress p USING (
    SELECT l.tenant_id, l.dream, l.subject_id AS id FROM expired l
    UNION
    SELECT l.tenant_id, l.dream, x.source_id FROM expired l
    JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (l.tenant_id, l.id)) a
  WHERE (p.tenant_id, p.source_id, p.dream) = (a.tenant_id, a.id, a.dream))
DELETE FROM rem.statements s USING expired l WHERE (s.tenant_id, s.id) = (l.tenant_id, l.id)

-- name: erase_rows
DELETE FROM {table} r USING unnest($1::text[], $2::uuid[]) AS d (tenant_id, id)
WHERE (r.tenant_id, r.id) = (d.tenant_id, d.id)

-- name: tables
-- Return all tables of REM's schemas with their columns.
SELECT n.nspname::text AS schema, c.relname::text AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname IN ('rem', 'rem_jobs', 'rem_auth') AND c.relkind IN ('r', 'p') AND NOT c.relispartition
GROUP BY n.nspname, c.relname ORDER BY n.nspname, c.relname

-- name: references
-- Return the foreign keys of these tables.
SELECT ns.nspname::text AS child_schema, c.relname::text AS child, ps.nspname::text AS parent_schema, p.relname::text AS parent,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS x (number, position)
             JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = x.number ORDER BY x.position) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS x (number, position)
             JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = x.number ORDER BY x.position) AS parent_columns
FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace ns ON ns.oid = c.relnamespace
JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace ps ON ps.oid = p.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0 AND ns.nspname IN ('rem', 'rem_jobs', 'rem_auth')
ORDER BY ns.nspname, c.relname, k.conname

-- name: count_owned
SELECT count(*) FROM {table} t WHERE {condition}

-- name: erase_owned
DELETE FROM {table} t WHERE {condition}

-- name: lock_statistics
-- Take the lock of rem_fold_statistics, and wait for it.
SELECT pg_advisory_xact_lock(hashtextextended('rem.fold_statistics', 0))

-- name: stop_indexing
-- Let no indexer work on the rows of an owner until the connection is closed, and wait for those that do.
SELECT pg_advisory_lock(hashtextextended('rem.index:' || $1::text || '/' || coalesce($2::text, ''), 0))

-- name: fold_statistics
SELECT rem.rem_fold_statistics()

-- name: reset_planner_stats
SELECT rem.rem_reset_planner_stats()

-- name: session_ids
SELECT s.id FROM rem.sessions s WHERE s.tenant_id = $1 AND s.user_id = $2

-- name: unlink_clones
-- Remove from clones of the sessions $3 what leads to them. A clone belongs to another user, and stays.
UPDATE rem.sessions s SET metadata = s.metadata - 'cloned_from'
WHERE s.tenant_id = $1 AND s.user_id IS DISTINCT FROM $2 AND s.metadata ? 'cloned_from'
  AND s.metadata ->> 'cloned_from' = ANY ($3::text[])

-- name: emails
SELECT DISTINCT u.email FROM rem.users u WHERE u.tenant_id = $1 AND u.user_id = $2 AND u.email IS NOT NULL

-- name: count_mentions
-- Count the rows of other owners that contain one of the lower-case texts $3.
SELECT count(*) FROM {table} t
WHERE t.tenant_id = $1 AND t.user_id IS DISTINCT FROM $2
  AND EXISTS (SELECT FROM unnest($3::text[]) AS n (name) WHERE strpos(lower(to_json(t.*)::text), n.name) > 0)

-- name: find_rows_named
-- Return the owner's own rows whose key or alias is one of the labels $3. A text with such a heading is only a mention.
SELECT DISTINCT k.entity_type, k.entity_id FROM unnest($3::text[]) AS names (label)
CROSS JOIN LATERAL rem.rem_resolve_label($1, $2, names.label, NULL) k
WHERE k.is_own = ($2::text IS NOT NULL) AND k.key_rank < rem.rem_weak_key_rank()

-- name: find_shared_rows
-- Return the tenant's shared rows whose key or alias is the label $2.
SELECT DISTINCT k.entity_type, k.entity_key FROM rem.rem_resolve_label($1, NULL, $2, NULL) k ORDER BY 1, 2

-- name: find_rows_by_key
-- Return the owner's rows with one of the keys, including deleted and expired rows.
SELECT r.id FROM {table} r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2
  AND r.key = ANY (ARRAY(SELECT rem.rem_key(names.label) FROM unnest($3::text[]) AS names (label)))

-- name: record
SELECT to_json(r.*) FROM {table} r WHERE r.tenant_id = $1 AND r.id = $2

-- name: own_rows
-- Return all rows of an owner in a table, including deleted ones.
SELECT to_json(r.*) FROM {table} r WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 ORDER BY r.created_at, r.id

-- name: own_statements
SELECT s.id, s.dream, s.kind, s.entity_type, s.entity_id, s.subject_id, s.name, s.value, s.state, s.source_keys
FROM rem.statements s WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 ORDER BY s.stated_at, s.id

-- name: own_summaries
SELECT s.session_id, s.summary FROM rem.session_summaries s WHERE s.tenant_id = $1 AND s.user_id = $2 ORDER BY s.session_id

-- name: count_messages
SELECT count(*) FROM rem.messages m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3

-- name: count_chunks
SELECT count(*) FROM rem.resources r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = $3::uuid::text

-- name: erase_own
-- Erase some of the owner's rows, and return their ids. The digests of files and of their parts stay, so that `rem ingest` does not bring
-- them back.
WITH gone AS (
  DELETE FROM {table} r
  WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.id = ANY ($3::uuid[]) RETURNING r.id, to_jsonb(r.*) AS record),
digests AS (
  SELECT rem.rem_forgotten_digest(g.record) AS digest FROM gone g
  UNION
  -- The parts of an erased file, which a trigger erases.
  SELECT rem.rem_forgotten_digest(to_jsonb(p.*)) FROM gone g
  JOIN rem.resources p ON p.tenant_id = $1 AND p.user_id IS NOT DISTINCT FROM $2 AND p.metadata ? 'file_id'
    AND p.metadata ->> 'file_id' = g.id::text
  WHERE g.record ? 'processing_status'),
noted AS (
  INSERT INTO rem.forgotten_texts (tenant_id, user_id, digest)
  SELECT $1, $2, d.digest FROM digests d WHERE d.digest IS NOT NULL ON CONFLICT DO NOTHING)
SELECT g.id FROM gone g

-- name: count_parts
-- Return the number of parts of each file, also deleted ones.
SELECT f.id, (SELECT count(*) FROM rem.resources r
              WHERE r.tenant_id = f.tenant_id AND r.user_id IS NOT DISTINCT FROM f.user_id AND r.metadata ? 'file_id'
                AND r.metadata ->> 'file_id' = f.id::text) AS parts
FROM rem.files f WHERE f.tenant_id = $1 AND f.user_id IS NOT DISTINCT FROM $2 AND f.id = ANY ($3::uuid[])

-- name: change_row
UPDATE {table} r SET {assignments} FROM jsonb_populate_record(NULL::{table}, $3) p WHERE r.tenant_id = $1 AND r.id = $2

-- name: replace_statement_value
UPDATE rem.statements s SET value = $3, source_keys = $4 WHERE s.tenant_id = $1 AND s.id = $2 AND s.state = 'live'

-- name: delete_statement
DELETE FROM rem.statements s WHERE s.tenant_id = $1 AND s.id = $2

-- name: anonymize_refusal
-- Remove the words from the record that the owner deleted or edited a moment, and return true if there is one. The record stays,
-- because it keeps dreams from making the moment again from its other sources.
UPDATE rem.statements s SET name = s.entity_id::text, source_keys = '{}', value = '{}'
WHERE s.tenant_id = $1 AND s.id = $2 AND s.state = 'refused' AND s.kind = 'row' AND s.dream = 'moments'
RETURNING true

-- name: rescan_subject
-- Let a dream read a subject again.
DELETE FROM rem.dream_progress p WHERE p.tenant_id = $1 AND p.source_id = $2 AND p.dream = $3

-- name: delete_summaries
DELETE FROM rem.session_summaries s WHERE s.tenant_id = $1 AND s.session_id = ANY ($2::uuid[])

-- name: errors_of_runs
SELECT r.id, r.error FROM rem.dream_runs r WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.error IS NOT NULL

-- name: clear_run_errors
UPDATE rem.dream_runs r SET error = NULL WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[])

-- name: keys
SELECT DISTINCT rem.rem_key(n.name) AS key FROM unnest($1::text[]) AS n (name)

-- name: refuse_names
-- Store refusals of the keys $3, in the form that the ledger reads (`refused_name`). They contain only the key. The refusals of one
-- removal share a subject, which `names_refused_together` uses.
WITH missing AS (
  SELECT k.key FROM unnest($3::text[]) AS k (key)
  WHERE EXISTS (
    SELECT FROM unnest($3::text[]) AS n (key)
    WHERE NOT EXISTS (
      SELECT FROM rem.statements s
      WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'entities' AND s.kind = 'row'
        AND s.state = 'refused' AND s.name = n.key))),
run AS (
  INSERT INTO rem.dream_runs (tenant_id, id, user_id, dreams, state, ended_at)
  SELECT $1, $4, $2, '{forget}', 'done', clock_timestamp() WHERE EXISTS (SELECT FROM missing) RETURNING id)
INSERT INTO rem.statements (tenant_id, user_id, run_id, dream, subject_type, subject_id, kind, entity_type, entity_id, name,
                            value, state, ended_at)
SELECT $1, $2, run.id, 'entities', 'ontologies', $4, 'row', 'ontologies', gen_random_uuid(), m.key, '{}', 'refused',
       clock_timestamp()
FROM missing m CROSS JOIN run

-- name: names_refused_together
-- Return all keys that were refused together with one of these names.
SELECT DISTINCT other.name FROM rem.statements s
JOIN rem.dream_runs r ON (r.tenant_id, r.id) = (s.tenant_id, s.run_id) AND r.dreams = '{forget}'
JOIN rem.statements other ON (other.tenant_id, other.run_id, other.subject_id) = (s.tenant_id, s.run_id, s.subject_id)
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'entities' AND s.kind = 'row'
  AND s.state = 'refused' AND other.state = 'refused'
  AND s.name = ANY (ARRAY(SELECT rem.rem_key(n.name) FROM unnest($3::text[]) AS n (name)))
ORDER BY other.name

-- name: count_traces
-- Count the rows of a derived table that refer to one of the ids $2.
SELECT count(*) FROM {table} t WHERE t.tenant_id = $1 AND t.{column} = ANY ($2::uuid[])
