-- name: searchable_types
-- Return the types that SEARCH covers, with their text columns and their title column.
SELECT name, search_fields, title_field FROM rem.entity_types WHERE search_fields <> '{}'

-- name: take_from_queue
-- Take an entry of the queue that no other indexer works on: the oldest of everyone, or the newest of one scope, because a search
-- that indexes only a part of a long queue must find what was just said.
-- MATERIALIZED: as a part of the join, the LIMIT might run again for every row of the queue, and all would be deleted.
-- Hold the owner's indexing lock in shared mode until the end of the transaction. `is_locked` is false while the owner forgets.
WITH taken AS MATERIALIZED (
  SELECT o.tenant_id, o.id FROM rem.search_queue o
  WHERE o.id <> ALL ($3::bigint[]) AND NOT rem.rem_is_set_aside(o.failures)
    AND ($1::text IS NULL OR (o.tenant_id = $1 AND o.owner = ANY ($2::text[])))
  ORDER BY o.id {order} LIMIT 1 FOR UPDATE SKIP LOCKED)
DELETE FROM rem.search_queue q USING taken
WHERE (q.tenant_id, q.id) = (taken.tenant_id, taken.id)
RETURNING q.tenant_id, q.id, q.owner, q.entity_type, q.entity_ids,
          pg_try_advisory_xact_lock_shared(hashtextextended('rem.index:' || q.tenant_id || '/' || q.owner, 0)) AS is_locked

-- name: split_queue_entry
INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
SELECT $1, $2, $3, array_agg(i.id ORDER BY i.place) FROM unnest($4::uuid[]) WITH ORDINALITY AS i (id, place)
GROUP BY (i.place - 1) / $5::integer ORDER BY min(i.place)

-- name: requeue
INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
SELECT r.tenant_id, coalesce(r.user_id, ''), $3, array_agg(r.id) FROM {table} r
WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.deleted_at IS NULL
GROUP BY r.tenant_id, r.user_id
RETURNING id

-- name: limit_ids_by_size
SELECT s.id FROM (
  SELECT r.id, sum({size}) OVER sequence AS so_far, row_number() OVER sequence AS place
  FROM {table} r WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.deleted_at IS NULL
  WINDOW sequence AS (ORDER BY array_position($2::uuid[], r.id))) s
WHERE s.so_far <= $3 OR s.place = 1

-- name: load_rows
-- Load rows with their texts. A row that is being written at this moment is skipped: its writer will enqueue it again.
SELECT r.id, r.user_id, r.expires_at, {happened_at} AS happened_at, {range_time} AS range_time,
       {kind} AS kind, r.metadata ->> 'language' AS language, {title} AS title,
       r.metadata ->> 'speaker' AS speaker, {role} AS role, {is_searched} AS is_searched, {has_own_title} AS has_own_title,
       {group_id} AS group_id, {position} AS position, ARRAY[{bodies}]::text[] AS bodies, {before} AS before
FROM {table} r WHERE r.tenant_id = $1 AND r.id = ANY ($2::uuid[]) AND r.deleted_at IS NULL {lock}

-- name: count_failure
-- Count a failure of an entry. Return whether the entry is set aside now, or nothing if it is gone.
UPDATE rem.search_queue q SET failures = q.failures + 1 WHERE q.tenant_id = $1 AND q.id = $2 RETURNING rem.rem_is_set_aside(q.failures)

-- name: split_failed_entry
-- Replace an entry by two with half of its rows each, so that in the end only those rows wait that cannot be indexed.
WITH failed AS (
  DELETE FROM rem.search_queue q WHERE q.tenant_id = $1 AND q.id = $2 RETURNING q.tenant_id, q.owner, q.entity_type, q.entity_ids)
INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
SELECT f.tenant_id, f.owner, f.entity_type, half.ids FROM failed f
CROSS JOIN LATERAL (VALUES (f.entity_ids[:cardinality(f.entity_ids) / 2]), (f.entity_ids[cardinality(f.entity_ids) / 2 + 1:])) half (ids)

-- name: retry_failed_rows
UPDATE rem.search_queue q SET failures = 0
WHERE q.failures > 0 AND ($1::text IS NULL OR (q.tenant_id = $1 AND q.owner = ANY ($2::text[])))

-- name: retry_failed_passages
UPDATE rem.passages p SET embedding_failures = 0
WHERE p.embedding IS NULL AND p.embedding_failures > 0 AND ($1::text IS NULL OR (p.tenant_id = $1 AND p.owner = ANY ($2::text[])))

-- name: locked_entities
-- Lock the passages of some entities. Return the entities with a passage that another transaction has locked: the indexer holds
-- locks on rows, and if it waited for others, it could wait for a writer that waits for it.
WITH locked AS MATERIALIZED (
  SELECT p.id FROM rem.passages p WHERE p.tenant_id = $1 AND p.entity_id = ANY ($2::uuid[]) AND p.entity_type = $3
  FOR UPDATE SKIP LOCKED)
SELECT DISTINCT p.entity_id FROM rem.passages p
WHERE p.tenant_id = $1 AND p.entity_id = ANY ($2::uuid[]) AND p.entity_type = $3 AND p.id NOT IN (SELECT l.id FROM locked l)

-- name: store_passages
SELECT rem.rem_store_passages($1, $2, $3, $4)

-- name: backlog
-- Count what is not indexed yet, for everyone or for one scope: rows without passages, and passages without an embedding.
-- What was set aside does not wait.
SELECT (SELECT coalesce(sum(cardinality(q.entity_ids)), 0) FROM rem.search_queue q
        WHERE NOT rem.rem_is_set_aside(q.failures) AND ($1::text IS NULL OR (q.tenant_id = $1 AND q.owner = ANY ($2::text[]))))::bigint AS rows,
       (SELECT count(*) FROM rem.passages p
        WHERE p.embedding IS NULL AND p.entity_type <> 'records' AND NOT rem.rem_is_set_aside(p.embedding_failures)
          AND ($1::text IS NULL OR (p.tenant_id = $1 AND p.owner = ANY ($2::text[])))) AS passages

-- name: passages_without_embedding
SELECT p.tenant_id, p.owner, p.id, p.entity_type, p.entity_id, p.field, p.starts, p.ends FROM rem.passages p
WHERE p.embedding IS NULL AND p.entity_type <> 'records' AND p.id <> ALL ($3::bigint[]) AND NOT rem.rem_is_set_aside(p.embedding_failures)
  AND ($1::text IS NULL OR (p.tenant_id = $1 AND p.owner = ANY ($2::text[])))
-- In the order of the partial index. Otherwise the planner scans all passages while many have no embedding, and keeps that plan.
ORDER BY p.tenant_id {order}, p.owner {order}, p.id {order} LIMIT $4

-- name: passages_of_other_models
SELECT p.tenant_id, p.owner, p.id, p.entity_type, p.entity_id, p.field, p.starts, p.ends FROM rem.passages p
WHERE p.model_id <> $1 AND p.id > $2
ORDER BY p.id LIMIT $3

-- name: store_embeddings
-- Store the vectors of passages that nobody else is writing, and return the ids of these. Others write in another order, and two that
-- waited for each other would be a deadlock.
WITH given AS MATERIALIZED (
  SELECT g.tenant_id, g.id, g.embedding FROM unnest($1::text[], $2::bigint[], $3::text[]) AS g (tenant_id, id, embedding)
), free AS MATERIALIZED (
  SELECT p.tenant_id, p.id FROM rem.passages p WHERE (p.tenant_id, p.id) IN (SELECT g.tenant_id, g.id FROM given g)
  FOR UPDATE SKIP LOCKED)
UPDATE rem.passages p SET embedding = given.embedding::halfvec, model_id = $4, embedding_failures = 0
FROM given JOIN free USING (tenant_id, id)
WHERE (p.tenant_id, p.id) = (given.tenant_id, given.id)
RETURNING p.id

-- name: count_embedding_failure
UPDATE rem.passages p SET embedding_failures = p.embedding_failures + 1
WHERE p.tenant_id = $1 AND p.id = $2 AND p.embedding IS NULL RETURNING rem.rem_is_set_aside(p.embedding_failures)

-- name: has_unembedded
SELECT EXISTS (SELECT FROM rem.passages p JOIN unnest($1::text[], $2::bigint[]) AS g (tenant_id, id) USING (tenant_id, id) WHERE p.embedding IS NULL)

-- name: count_set_aside
-- Count what nobody tries any more: rows that could not be indexed, and passages that could not be embedded.
SELECT (SELECT coalesce(sum(cardinality(q.entity_ids)), 0) FROM rem.search_queue q WHERE rem.rem_is_set_aside(q.failures))::bigint,
       (SELECT count(*) FROM rem.passages p WHERE p.embedding IS NULL AND rem.rem_is_set_aside(p.embedding_failures))

-- name: current_model
SELECT id, name, dimension FROM rem.embedding_models WHERE is_current

-- name: record_model
INSERT INTO rem.embedding_models (name, dimension, is_current) VALUES ($1, $2, true)
ON CONFLICT (name, dimension) DO UPDATE SET is_current = true RETURNING id

-- name: retire_other_models
UPDATE rem.embedding_models SET is_current = false WHERE is_current AND (name, dimension) <> ($1, $2)

-- name: create_vector_index
SELECT rem.rem_index_passages($1, $2)

-- name: count_passages_of_other_models
SELECT count(*) FROM rem.passages WHERE model_id <> $1

-- name: lock_models
LOCK TABLE rem.embedding_models IN SHARE ROW EXCLUSIVE MODE

-- name: earlier_messages
-- Return whether a language model has answered a message or one of the eight messages before it, and the texts of these eight that give
-- the message context, nearest first. A long text is cut, but stays too long to be used. Answers in which `rem:local` quotes other rows are no context.
-- Users who ask their assistant something and then tell it something rarely mean the same subject.
SELECT json_build_object(
  'has_answers', coalesce(bool_or(b.role = 'assistant' AND b.model IS DISTINCT FROM 'rem:local'), false) OR EXISTS (
    SELECT FROM rem.messages a
    WHERE (a.tenant_id, a.user_id, a.session_id, a.message_index) = (r.tenant_id, r.user_id, r.session_id, r.message_index + 1)
      AND a.role = 'assistant' AND a.model IS DISTINCT FROM 'rem:local'),
  'texts', coalesce(json_agg(json_build_array(b.id, rem.rem_head(b.content, 1001)) ORDER BY b.message_index DESC) FILTER (
    WHERE b.model IS DISTINCT FROM 'rem:local'
      AND NOT (r.role = 'user' AND b.role = 'user' AND coalesce(b.kind, 'statement') <> 'statement'
               AND b.metadata ->> 'speaker' IS NULL)), '[]'))
FROM (
  SELECT m.id, m.role, m.content, m.model, m.kind, m.metadata, m.message_index FROM rem.messages m
  WHERE (m.tenant_id, m.user_id, m.session_id) = (r.tenant_id, r.user_id, r.session_id)
    AND m.message_index < r.message_index AND m.deleted_at IS NULL AND m.content <> '' AND m.role <> 'tool'
  ORDER BY m.message_index DESC LIMIT 8) b

-- name: fold_statistics
SELECT rem.rem_fold_statistics(),
       (SELECT sum(gin_clean_pending_list(i)) FROM rem.rem_leaves('rem.kv_store_summary_trigrams') i)

-- name: refresh_embedding_mean
SELECT rem.rem_refresh_embedding_mean($1, $2, $3)

-- name: languages
SELECT cfgname FROM pg_ts_config WHERE pg_ts_config_is_visible(oid)

-- name: try_lock_worker
SELECT pg_try_advisory_lock(hashtextextended('rem.keep_indexed', 0))

-- name: count_passages
SELECT count(*), count(embedding) FROM rem.passages

-- name: count_unindexed_rows
SELECT rem.rem_count_unindexed_rows()
