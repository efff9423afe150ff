-- name: searchable_types
-- How the rows of each type are searched.
SELECT name, search_fields, title_field FROM rem.entity_types WHERE search_fields <> '{}'

-- name: take_from_queue
-- The oldest portion of the queue that nobody else works on, of everyone or of one scope.
-- MATERIALIZED: as a part of a join the planner might choose anew for every row of the queue, and delete them all.
WITH taken AS MATERIALIZED (
  SELECT o.tenant_id, o.id FROM rem.search_queue o
  WHERE o.id <> ALL ($3::bigint[]) AND ($1::text IS NULL OR (o.tenant_id = $1 AND o.owner = ANY ($2::text[])))
  ORDER BY o.id LIMIT 1 FOR UPDATE SKIP LOCKED)
DELETE FROM rem.search_queue q USING taken
WHERE (q.tenant_id, q.id) = (taken.tenant_id, taken.id)
RETURNING q.tenant_id, q.owner, q.entity_type, q.entity_ids

-- name: split
INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
SELECT $1, $2, $3, array_agg(i.id ORDER BY i.place) FROM unnest($4::uuid[]) WITH ORDINALITY AS i (id, place)
GROUP BY (i.place - 1) / $5::integer ORDER BY min(i.place)

-- name: put_back
INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
SELECT r.tenant_id, coalesce(r.user_id, ''), $3, array_agg(r.id) FROM {table} r
WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.deleted_at IS NULL
GROUP BY r.tenant_id, r.user_id
RETURNING id

-- name: ids_within
SELECT s.id FROM (
  SELECT r.id, sum({size}) OVER sequence AS so_far, row_number() OVER sequence AS place
  FROM {table} r WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.deleted_at IS NULL
  WINDOW sequence AS (ORDER BY array_position($2::uuid[], r.id))) s
WHERE s.so_far <= $3 OR s.place = 1

-- name: read_rows
-- Rows with their texts. Who is just writing one of them will queue it again, and must not wait for us nor we for them.
SELECT r.id, r.user_id, r.expires_at, {happened_at} AS happened_at, r.metadata ->> 'language' AS language, {title} AS title,
       r.metadata ->> 'speaker' AS speaker, {role} AS role, {is_searched} AS is_searched, {is_title_meant} AS is_title_meant,
       {group_id} AS group_id, {position} AS position, ARRAY[{bodies}]::text[] AS bodies, {before} AS before
FROM {table} r WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.deleted_at IS NULL {lock}

-- name: store_passages
SELECT rem.rem_store_passages($1, $2, $3, $4)

-- name: waiting
-- What is not indexed yet, of everyone or of one scope: rows without passages, passages without embedding.
SELECT (SELECT coalesce(sum(cardinality(q.entity_ids)), 0) FROM rem.search_queue q
        WHERE $1::text IS NULL OR (q.tenant_id = $1 AND q.owner = ANY ($2::text[])))::bigint AS rows,
       (SELECT count(*) FROM rem.passages p WHERE p.embedding IS NULL
          AND ($1::text IS NULL OR (p.tenant_id = $1 AND p.owner = ANY ($2::text[])))) AS passages

-- name: without_embedding
SELECT p.tenant_id, p.owner, p.id, p.entity_type, p.entity_id, p.field, p.starts, p.ends FROM rem.passages p
WHERE p.embedding IS NULL AND p.id <> ALL ($3::bigint[])
  AND ($1::text IS NULL OR (p.tenant_id = $1 AND p.owner = ANY ($2::text[])))
-- In the order of their own index: while many wait the planner would rather look at every passage, and go on doing so.
ORDER BY p.tenant_id, p.owner, p.id LIMIT $4

-- name: of_other_model
SELECT p.tenant_id, p.owner, p.id, p.entity_type, p.entity_id, p.field, p.starts, p.ends FROM rem.passages p
WHERE p.model_id <> $1 AND p.id > $2
ORDER BY p.id LIMIT $3

-- name: store_embeddings
UPDATE rem.passages p SET embedding = given.embedding::halfvec, model_id = $4
FROM unnest($1::text[], $2::bigint[], $3::text[]) AS given (tenant_id, id, embedding)
WHERE (p.tenant_id, p.id) = (given.tenant_id, given.id)

-- name: current_model
SELECT id, name, dimension FROM rem.embedding_models WHERE is_current

-- name: record_model
INSERT INTO rem.embedding_models (name, dimension, is_current) VALUES ($1, $2, true)
ON CONFLICT (name, dimension) DO UPDATE SET is_current = true RETURNING id

-- name: retire_models
UPDATE rem.embedding_models SET is_current = false WHERE is_current AND (name, dimension) <> ($1, $2)

-- name: index_model
SELECT rem.rem_index_passages($1, $2)

-- name: count_of_other_models
SELECT count(*) FROM rem.passages WHERE model_id <> $1

-- name: lock_models
LOCK TABLE rem.embedding_models IN SHARE ROW EXCLUSIVE MODE

-- name: said_before
-- What was said before a message, the nearest first; of what is too long only so much that this can be seen.
SELECT array_agg(left(b.content, 1001) ORDER BY b.message_index DESC) FROM (
  SELECT m.content, m.message_index FROM rem.messages m
  WHERE (m.tenant_id, m.user_id, m.session_id) = (r.tenant_id, r.user_id, r.session_id)
    AND m.message_index < r.message_index AND m.deleted_at IS NULL AND m.content <> '' AND m.role <> 'tool'
  ORDER BY m.message_index DESC LIMIT 3) b

-- name: fold_statistics
SELECT rem.rem_fold_statistics(), gin_clean_pending_list('rem.kv_store_summary_trigrams')

-- name: refresh_mean
SELECT rem.rem_refresh_embedding_mean($1, $2, $3)

-- name: languages
SELECT cfgname FROM pg_ts_config WHERE pg_ts_config_is_visible(oid)

-- name: try_to_lead
SELECT pg_try_advisory_lock(hashtextextended('rem.keep_indexed', 0))

-- name: count_passages
SELECT count(*), count(embedding) FROM rem.passages

-- name: count_forgotten
SELECT rem.rem_count_unindexed_rows()
