-- What the dream of affinities reads, always of one owner and what is shared with it.

-- name: new_subjects
-- The owner's own rows that the dream has not seen in this version, the oldest first.
SELECT r.id FROM rem.{table} r
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (r.tenant_id, r.id, 'affinity')
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now()) AND p.seen_at IS DISTINCT FROM r.updated_at
ORDER BY r.created_at, r.key LIMIT $3

-- name: pointing_at
-- Rows whose affinities were found when one was as it is no more.
SELECT DISTINCT s.subject_type, s.subject_id FROM rem.statement_sources x
JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id)
WHERE x.tenant_id = $1 AND x.source_id = $3 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'affinity' AND s.state = 'live'
  AND s.subject_id <> $3
ORDER BY s.subject_type, s.subject_id LIMIT $4

-- name: model
-- By what the passages are embedded, and how many the owners have of the types.
SELECT e.id, e.dimension, (SELECT coalesce(sum(c.passages), 0) FROM rem.rem_owner_passage_counts($1, $2, $3) c)::bigint
FROM rem.embedding_models e WHERE e.is_current

-- name: middle
-- What the memories of a scope have in common, by a sample, and how many are in it.
SELECT avg(s.embedding)::halfvec::text, count(*) FROM (
  SELECT p.embedding FROM rem.passages p
  WHERE p.tenant_id = $1 AND p.owner = ANY ($2) AND p.entity_type = ANY ($3) AND p.model_id = $4
  ORDER BY p.id DESC LIMIT $5) s

-- name: nearest
-- The rows nearest in meaning, by the passages that are most alike. Every passage is looked at, unless `cast` and `model` are
-- those of the model's index. All that one person talks about is alike to a model: the distinction is the likeness without
-- what all have in common.
SELECT near.entity_type, near.entity_id, max(near.similarity) AS similarity,
  max(1 - ((near.embedding - $9::halfvec) <=> (own.embedding - $9::halfvec))) AS distinction FROM (
  SELECT p.embedding FROM rem.passages p
  WHERE p.tenant_id = $1 AND p.entity_id = $4 AND p.entity_type = $5 AND p.model_id = $6
  ORDER BY p.starts, p.id LIMIT $7) own
CROSS JOIN LATERAL (
  SELECT o.entity_type, o.entity_id, o.embedding, 1 - (o.embedding <=> own.embedding) AS similarity FROM rem.passages o
  WHERE o.model_id = {model} AND o.tenant_id = $1 AND o.owner = ANY ($2) AND o.entity_type = ANY ($3) AND o.entity_id <> $4
    AND (o.expires_at IS NULL OR o.expires_at > now())
  ORDER BY o.embedding{cast} <=> own.embedding{cast} LIMIT $8) near
GROUP BY near.entity_type, near.entity_id ORDER BY similarity DESC, near.entity_id LIMIT $8

-- name: scan_on
SET LOCAL hnsw.iterative_scan = 'relaxed_order'

-- name: things
-- Rows as they are compared: their texts, and what they are a part of. What is known to belong together by that needs no
-- edge that says so.
SELECT 'resources' AS type, r.id, r.key, left(r.content, $5) AS text, md5(r.content) AS digest,
       array_remove(ARRAY[r.metadata ->> 'file_id', nullif(r.uri, ''), r.id::text], NULL) AS belongs_to,
       r.metadata ? 'file_id' AS is_part
FROM rem.resources r
WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL) AND r.id = ANY ($4::uuid[]) AND 'resources' = ANY ($3::text[])
  AND r.deleted_at IS NULL
UNION ALL
SELECT 'moments', m.id, m.key, left(m.summary, $5), md5(m.summary),
       array_remove(m.source_session_id::text || m.source_resource_ids::text[], NULL), false
FROM rem.moments m
WHERE m.tenant_id = $1 AND (m.user_id = $2 OR m.user_id IS NULL) AND m.id = ANY ($4::uuid[]) AND 'moments' = ANY ($3::text[])
  AND m.deleted_at IS NULL
UNION ALL
SELECT 'ontologies', o.id, o.key, left(o.content, $5), md5(o.content),
       array_remove(ARRAY[o.file_id::text, nullif(o.uri, ''), o.id::text], NULL), false
FROM rem.ontologies o
WHERE o.tenant_id = $1 AND (o.user_id = $2 OR o.user_id IS NULL) AND o.id = ANY ($4::uuid[]) AND 'ontologies' = ANY ($3::text[])
  AND o.deleted_at IS NULL

-- name: already_from
-- Which rows have an affinity to one already.
SELECT DISTINCT s.entity_id FROM rem.statement_sources x
JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id)
WHERE x.tenant_id = $1 AND x.source_id = $3 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'affinity' AND s.kind = 'edge'
  AND s.state = 'live' AND s.entity_id = ANY ($4::uuid[]) AND s.entity_id <> $3
