-- name: stretch
-- What people said in a part of a session. Without a speaker, an assistant's words are nobody's evidence.
SELECT m.id, m.key, m.message_index, m.content, m.metadata ->> 'speaker' AS speaker, m.created_at FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index BETWEEN $4 AND $5 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.content ~ '\S'
  AND (m.role = 'user' OR (m.role = 'assistant' AND m.metadata ->> 'speaker' IS NOT NULL))
  AND (m.metadata -> 'searchable') IS DISTINCT FROM 'false' AND m.model IS DISTINCT FROM 'rem:local'
ORDER BY m.message_index

-- name: standing
-- What is said of a subject by now that was made from some of its texts, however much is said of the rest of it.
SELECT s.id, s.kind FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.subject_id = $4 AND s.state = 'live'
  AND s.id IN (SELECT x.statement_id FROM rem.statement_sources x WHERE x.tenant_id = $1 AND x.source_id = ANY ($5::uuid[]))
ORDER BY s.stated_at, s.id

-- name: known
-- What answers to labels, of the types that are asked for: the owner's own and what the tenant shares.
SELECT a.label, k.entity_type, k.entity_id, k.key_rank, rem.rem_record(k.entity_type, k.tenant_id, k.entity_id) AS record
FROM unnest($3::text[]) AS a (label)
JOIN rem.kv_store k ON k.tenant_id = $1 AND k.entity_key = rem.rem_key(a.label) AND (k.user_id = $2 OR k.user_id IS NULL)
WHERE k.entity_type = ANY ($4::text[]) AND (k.expires_at IS NULL OR k.expires_at > now())
ORDER BY a.label, k.user_id NULLS LAST, k.entity_type DESC, k.key_rank, k.entity_id

-- name: taken_back
-- Which labels name something that its owner deleted or corrected; what is left of it, if it was corrected.
WITH asked AS (SELECT a.label, rem.rem_key(a.label) AS key FROM unnest($3::text[]) AS a (label))
SELECT a.label, s.entity_type, s.entity_id,
       CASE WHEN s.entity_type = 'ontologies' THEN (
         SELECT to_json(o.*) FROM rem.ontologies o
         WHERE o.tenant_id = s.tenant_id AND o.id = s.entity_id AND o.deleted_at IS NULL) END AS record
FROM asked a JOIN rem.statements s ON s.name = a.key
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $4 AND s.state = 'refused' AND s.kind = 'row'
UNION ALL
SELECT a.label, 'ontologies', o.id, NULL
FROM rem.ontologies o JOIN asked a ON a.key = o.key OR a.key = ANY (rem.rem_keys_of(o.extracted_data -> 'aliases'))
WHERE o.tenant_id = $1 AND o.user_id IS NOT DISTINCT FROM $2 AND o.deleted_at IS NOT NULL

-- name: link_sources
-- What tells elsewhere that an entity has one of these names: the sources of the oldest statement that says it by itself.
SELECT x.source_type, x.source_id, r.key, r.session_id FROM (
  SELECT s.tenant_id, s.id FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_id = $2 AND s.kind = 'row' AND s.state = 'live'
    AND NOT (s.value -> 'extracted_data') ? 'linked'
    AND rem.rem_keys_of(s.value #> '{extracted_data,aliases}') || s.name && ARRAY(SELECT rem.rem_key(n) FROM unnest($4::text[]) AS n)
    AND NOT EXISTS (SELECT FROM rem.statement_sources o
                    WHERE o.tenant_id = s.tenant_id AND o.statement_id = s.id AND o.source_id = ANY ($3::uuid[]))
  ORDER BY s.valid_from, s.id LIMIT 1) s
JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (s.tenant_id, s.id)
JOIN LATERAL (
  SELECT m.key, m.session_id FROM rem.messages m
  WHERE x.source_type = 'messages' AND (m.tenant_id, m.id) = (x.tenant_id, x.source_id)
  UNION ALL
  SELECT o.key, NULL FROM rem.resources o
  WHERE x.source_type = 'resources' AND (o.tenant_id, o.id) = (x.tenant_id, x.source_id)) r ON true
ORDER BY x.source_type, x.source_id LIMIT 5

-- name: fresh
-- What there is since tonight, and what the caller names besides.
WITH fresh AS (
  SELECT t.entity_id FROM rem.statements t
  JOIN rem.ontologies o ON (o.tenant_id, o.id) = (t.tenant_id, t.entity_id)
  JOIN rem.dream_runs d ON (d.tenant_id, d.id) = (t.tenant_id, t.run_id)
  WHERE t.tenant_id = $1 AND t.run_id = $3 AND t.kind = 'row' AND t.dream = $4 AND t.state = 'live'
    AND o.deleted_at IS NULL AND o.created_at >= d.started_at
  UNION SELECT unnest($5::uuid[]))

-- name: woken
-- Stretches of sessions of earlier nights that spoke for something that there is since tonight, or for one of these.
{fresh}
SELECT m.session_id, min(m.message_index) AS first, p.seen_index
FROM fresh
JOIN rem.statements s ON s.tenant_id = $1 AND s.entity_id = fresh.entity_id AND s.kind = 'row' AND s.state = 'live'
  AND s.run_id <> $3 AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_type = 'sessions'
JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (s.tenant_id, s.id) AND x.source_type = 'messages'
JOIN rem.messages m ON (m.tenant_id, m.id, m.session_id) = (x.tenant_id, x.source_id, s.subject_id)
JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (m.tenant_id, m.session_id, $4)
WHERE p.seen_index >= m.message_index
GROUP BY m.session_id, p.seen_index, m.message_index / $7::integer
ORDER BY m.session_id, first LIMIT $6

-- name: woken_resources
{fresh}
SELECT to_json(r.*) FROM rem.resources r WHERE r.tenant_id = $1 AND r.deleted_at IS NULL AND r.id IN (
  SELECT s.subject_id FROM fresh
  JOIN rem.statements s ON s.tenant_id = $1 AND s.entity_id = fresh.entity_id
  WHERE s.kind = 'row' AND s.state = 'live' AND s.run_id <> $3 AND s.user_id IS NOT DISTINCT FROM $2
    AND s.subject_type = 'resources')
ORDER BY r.id LIMIT $6

-- name: reopen
-- What a newer statement had ended holds again when that one is gone with its sources: the newest of what is left.
WITH lost AS (
  SELECT DISTINCT ON (s.entity_type, s.entity_id, s.value ->> 'rel_type') s.tenant_id, s.id
  FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.state = 'ended' AND s.kind = 'edge'
    AND s.valid_to IS NOT NULL AND s.value ->> 'rel_type' = ANY ($4::text[])
    AND NOT EXISTS (
      SELECT FROM rem.statements l
      WHERE l.tenant_id = s.tenant_id AND l.entity_id = s.entity_id AND l.entity_type = s.entity_type AND l.kind = 'edge'
        AND l.state IN ('live', 'refused') AND l.dream = s.dream
        AND split_part(l.name, ' ', 1) = s.value ->> 'rel_type')
  ORDER BY s.entity_type, s.entity_id, s.value ->> 'rel_type', s.valid_from DESC, s.stated_at DESC)
UPDATE rem.statements s SET state = 'live', ended_at = NULL, ended_by = NULL, valid_to = NULL
FROM lost WHERE (s.tenant_id, s.id) = (lost.tenant_id, lost.id)
RETURNING s.entity_type, s.entity_id
