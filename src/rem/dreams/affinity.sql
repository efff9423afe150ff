-- Queries of the affinity dream, always for one owner and the rows that are shared with it.

-- name: new_rows
-- The owner's rows that the dream has not seen in their current version, oldest first.
SELECT r.id FROM rem.{table} r
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (r.tenant_id, r.id, 'affinity')
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now()) AND p.seen_at IS DISTINCT FROM r.updated_at
ORDER BY r.created_at, r.key LIMIT $3

-- name: rows_with_edge_to
-- Rows with an edge to a row that has changed since.
SELECT DISTINCT s.subject_type, s.subject_id FROM rem.statement_sources x
JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id)
WHERE x.tenant_id = $1 AND x.source_id = $3 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'affinity' AND s.state = 'live'
  AND s.subject_id <> $3
ORDER BY s.subject_type, s.subject_id LIMIT $4

-- name: embedding_model
-- The current embedding model, and the number of passages that the owners have in some tables.
SELECT e.id, e.dimension, (SELECT coalesce(sum(c.passages), 0) FROM rem.rem_owner_passage_counts($1, $2, $3) c)::bigint AS passages
FROM rem.embedding_models e WHERE e.is_current

-- name: mean_vector
-- The mean of a sample of the owner's vectors, and the size of the sample.
SELECT avg(s.embedding)::halfvec::text AS mean, count(*) FROM (
  SELECT p.embedding FROM rem.passages p
  WHERE p.tenant_id = $1 AND p.owner = ANY ($2) AND p.entity_type = ANY ($3) AND p.model_id = $4
  ORDER BY p.id DESC LIMIT $5) s

-- name: nearest_rows
-- The rows nearest in meaning, by their most similar passages. Every passage is compared, unless `cast` and `model` are those of the
-- model's index. To a model, all texts of one person are similar: the centred cosine is the cosine without the mean ($9) that all
-- have in common.
SELECT near.entity_type, near.entity_id, max(near.cosine) AS cosine,
  max(1 - ((near.embedding - $9::halfvec) <=> (own.embedding - $9::halfvec))) AS centred_cosine FROM (
  SELECT p.embedding FROM rem.passages p
  WHERE p.tenant_id = $1 AND p.entity_id = $4 AND p.entity_type = $5 AND p.model_id = $6
  ORDER BY p.starts, p.id LIMIT $7) own
CROSS JOIN LATERAL (
  SELECT o.entity_type, o.entity_id, o.embedding, 1 - (o.embedding <=> own.embedding) AS cosine FROM rem.passages o
  WHERE o.model_id = {model} AND o.tenant_id = $1 AND o.owner = ANY ($2) AND o.entity_type = ANY ($3) AND o.entity_id <> $4
    AND (o.expires_at IS NULL OR o.expires_at > now())
  ORDER BY o.embedding{cast} <=> own.embedding{cast} LIMIT $8) near
GROUP BY near.entity_type, near.entity_id ORDER BY cosine DESC, near.entity_id LIMIT $8

-- name: use_iterative_scan
-- Let the index go on until enough rows pass the filter.
SET LOCAL hnsw.iterative_scan = 'relaxed_order'

-- name: compared_rows
-- Rows with the text that is compared, and with their origins: rows of the same origin need no edge.
SELECT 'resources' AS type, r.id, r.key, rem.rem_head(r.content, $5) AS text, rem.rem_text_digest(r.content) AS digest,
       array_remove(ARRAY[r.metadata ->> 'file_id', nullif(r.uri, ''), r.id::text], NULL) AS origins,
       r.metadata ? 'file_id' AS is_chunk
FROM rem.resources r
WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL) AND r.id = ANY ($4::uuid[]) AND 'resources' = ANY ($3::text[])
  AND r.deleted_at IS NULL
UNION ALL
SELECT 'moments', m.id, m.key, rem.rem_head(m.summary, $5), md5(m.summary),
       array_remove(m.source_session_id::text || m.source_resource_ids::text[], NULL), false
FROM rem.moments m
WHERE m.tenant_id = $1 AND (m.user_id = $2 OR m.user_id IS NULL) AND m.id = ANY ($4::uuid[]) AND 'moments' = ANY ($3::text[])
  AND m.deleted_at IS NULL
UNION ALL
SELECT 'ontologies', o.id, o.key, rem.rem_head(o.content, $5), md5(o.content),
       array_remove(ARRAY[o.file_id::text, nullif(o.uri, ''), o.id::text], NULL), false
FROM rem.ontologies o
WHERE o.tenant_id = $1 AND (o.user_id = $2 OR o.user_id IS NULL) AND o.id = ANY ($4::uuid[]) AND 'ontologies' = ANY ($3::text[])
  AND o.deleted_at IS NULL

-- name: linked_rows
-- Those of some rows that have an edge to a row.
SELECT DISTINCT s.entity_id FROM rem.statement_sources x
JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id)
WHERE x.tenant_id = $1 AND x.source_id = $3 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'affinity' AND s.kind = 'edge'
  AND s.state = 'live' AND s.entity_id = ANY ($4::uuid[]) AND s.entity_id <> $3
