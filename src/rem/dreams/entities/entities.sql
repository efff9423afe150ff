-- name: messages_of_stretch
-- Return the messages of people in a part of a session. An assistant's message counts only if it has a speaker.
SELECT m.id, m.key, m.message_index, m.content, m.metadata ->> 'speaker' AS speaker, m.created_at, m.kind FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index BETWEEN $4 AND $5 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.content ~ '\S'
  AND (m.role = 'user' OR (m.role = 'assistant' AND m.metadata ->> 'speaker' IS NOT NULL))
  AND (m.metadata -> 'searchable') IS DISTINCT FROM 'false' AND m.model IS DISTINCT FROM 'rem:local'
ORDER BY m.message_index

-- name: live_statements
-- Return the live statements about a subject that are based on some of its texts. Those that only add content to a row are no evidence.
SELECT s.id, s.kind, s.name, NOT (s.kind = 'row' AND s.confidence = 0 AND NOT (s.value -> 'extracted_data') ? 'uses') AS is_evidence
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.subject_id = $4 AND s.state = 'live'
  AND s.id IN (SELECT x.statement_id FROM rem.statement_sources x WHERE x.tenant_id = $1 AND x.source_id = ANY ($5::uuid[]))
  -- The first source is the text itself. Further sources only confirm the name of the entity.
  AND s.source_keys[1] = ANY ($6::text[])
ORDER BY s.stated_at, s.id

-- name: known_entities
-- Return the rows of the given types that have one of the labels as a name: the owner's rows and the tenant's shared rows.
SELECT a.label, k.entity_type, k.entity_id, k.key_rank, rem.rem_record(k.entity_type, k.tenant_id, k.entity_id) AS record
FROM unnest($3::text[]) AS a (label)
JOIN rem.kv_store k ON k.tenant_id = $1 AND k.entity_key = rem.rem_key(a.label) AND (k.user_id = $2 OR k.user_id IS NULL)
WHERE k.entity_type = ANY ($4::text[]) AND (k.expires_at IS NULL OR k.expires_at > now())
ORDER BY a.label, k.user_id NULLS LAST, k.entity_type DESC, k.key_rank, k.entity_id

-- name: refused_labels
-- Return the labels of entities that the owner deleted or corrected, with the corrected row if there is one.
WITH labels AS (SELECT a.label, rem.rem_key(a.label) AS key FROM unnest($3::text[]) AS a (label))
SELECT a.label, s.entity_type, s.entity_id,
       CASE WHEN s.entity_type = 'ontologies' THEN (
         SELECT to_json(o.*) FROM rem.ontologies o
         WHERE o.tenant_id = s.tenant_id AND o.id = s.entity_id AND o.deleted_at IS NULL) END AS record
FROM labels a JOIN rem.statements s ON s.name = a.key
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $4 AND s.state = 'refused' AND s.kind = 'row'
UNION ALL
SELECT a.label, 'ontologies', o.id, NULL
FROM rem.ontologies o JOIN labels a ON a.key = o.key OR a.key = ANY (rem.rem_keys_of(o.extracted_data -> 'aliases'))
WHERE o.tenant_id = $1 AND o.user_id IS NOT DISTINCT FROM $2 AND o.deleted_at IS NOT NULL

-- name: link_sources
-- Return sources in other texts than $3 which show that an entity has one of the names $4: those of the oldest statement that shows it
-- without the help of another one.
SELECT x.source_type, x.source_id, r.key FROM (
  SELECT s.tenant_id, s.id FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_id = $2 AND s.kind = 'row' AND s.state = 'live'
    AND NOT (s.value -> 'extracted_data') ? 'linked'
    AND rem.rem_keys_of(s.value #> '{extracted_data,aliases}') || s.name && ARRAY(SELECT rem.rem_key(n) FROM unnest($4::text[]) AS n)
    AND NOT EXISTS (SELECT FROM rem.statement_sources o
                    WHERE o.tenant_id = s.tenant_id AND o.statement_id = s.id AND o.source_id = ANY ($3::uuid[]))
  ORDER BY s.valid_from, s.id LIMIT 1) s
JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (s.tenant_id, s.id)
JOIN LATERAL (
  SELECT m.key FROM rem.messages m
  WHERE x.source_type = 'messages' AND (m.tenant_id, m.id) = (x.tenant_id, x.source_id)
  UNION ALL
  SELECT o.key FROM rem.resources o
  WHERE x.source_type = 'resources' AND (o.tenant_id, o.id) = (x.tenant_id, x.source_id)) r ON true
ORDER BY x.source_type, x.source_id LIMIT 5

-- name: new_entities
-- The entities that this run has made, and the ones in $5. Those of a failed run count too, because it has not linked them.
WITH new_entities AS (
  SELECT t.entity_id FROM rem.dream_runs d
  JOIN rem.statements t ON (t.tenant_id, t.run_id) = (d.tenant_id, d.id)
  JOIN rem.ontologies o ON (o.tenant_id, o.id) = (t.tenant_id, t.entity_id)
  WHERE d.tenant_id = $1 AND d.user_id IS NOT DISTINCT FROM $2 AND t.kind = 'row' AND t.dream = $4 AND t.state = 'live'
    AND o.deleted_at IS NULL AND o.created_at >= d.started_at
    AND (d.id = $3 OR (d.state = 'failed' AND NOT EXISTS (
      SELECT FROM rem.dream_runs l
      WHERE l.tenant_id = $1 AND l.user_id IS NOT DISTINCT FROM $2 AND l.state = 'done' AND l.started_at > d.started_at)))
  UNION SELECT unnest($5::uuid[]))

-- name: stretches_with_evidence
-- Return the stretches of sessions, read in earlier runs, that are evidence for one of the new entities.
{new_entities}
SELECT m.session_id, min(m.message_index) AS first, p.seen_index
FROM new_entities
CROSS JOIN LATERAL (
  SELECT s.tenant_id, s.id, s.subject_id FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_id = new_entities.entity_id AND s.kind = 'row' AND s.state = 'live'
    AND s.run_id <> $3 AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_type = 'sessions'
  OFFSET 0) s  -- OFFSET makes the planner look up the few new entities one by one, instead of scanning all statements
JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (s.tenant_id, s.id) AND x.source_type = 'messages'
JOIN rem.messages m ON (m.tenant_id, m.id, m.session_id) = (x.tenant_id, x.source_id, s.subject_id)
JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (m.tenant_id, m.session_id, $4)
WHERE p.seen_index >= m.message_index
GROUP BY m.session_id, p.seen_index, m.message_index / $7::integer
ORDER BY m.session_id, first LIMIT $6

-- name: resources_with_evidence
{new_entities}
SELECT to_json(r.*) FROM rem.resources r WHERE r.tenant_id = $1 AND r.deleted_at IS NULL AND r.id IN (
  SELECT s.subject_id FROM new_entities
  CROSS JOIN LATERAL (
    SELECT s.subject_id FROM rem.statements s
    WHERE s.tenant_id = $1 AND s.entity_id = new_entities.entity_id AND s.kind = 'row' AND s.state = 'live' AND s.run_id <> $3
      AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_type = 'resources'
    OFFSET 0) s)
ORDER BY r.id LIMIT $6

-- name: passages_with_name
-- The newest passages of earlier runs that contain the words of a name of a new entity.
{new_entities},
names AS MATERIALIZED (
  SELECT DISTINCT n.label, w.postings
  FROM new_entities JOIN rem.ontologies o ON (o.tenant_id, o.id) = ($1, new_entities.entity_id)
  CROSS JOIN LATERAL (SELECT o.name UNION SELECT jsonb_array_elements_text(o.extracted_data -> 'aliases')) AS n (label)
  CROSS JOIN (
    SELECT t.language FROM rem.passage_totals t WHERE t.tenant_id = $1 AND t.owner IS NULL
    UNION SELECT t.language FROM rem.passage_total_deltas t WHERE t.tenant_id = $1 AND t.owner IS NULL) g
  CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT rem.rem_posting($1, coalesce($2, ''), t.term) FROM rem.rem_terms(g.language, n.label) t) AS postings) w
  WHERE w.postings <> '{}'),
matches AS MATERIALIZED (
  SELECT a.label, p.entity_type, p.entity_id FROM names a CROSS JOIN LATERAL (
    SELECT p.entity_type, p.entity_id FROM rem.passages p
    WHERE rem.rem_postings(p.tenant_id, p.owner, p.terms) @> a.postings
      -- Written so that no index applies: a bitmap of all passages of the owner would cost more than it saves.
      AND p.owner || '' = coalesce($2, '') AND p.tenant_id || '' = $1 AND p.entity_type || '' IN ('messages', 'resources', 'moments')
    ORDER BY p.id + 0 DESC LIMIT $6) p)

-- name: stretches_with_name
{passages_with_name}
SELECT m.session_id, min(m.message_index) AS first, m.seen_index
FROM matches f
-- OFFSET makes the planner look up messages one by one. Before the first ANALYZE, scanning all messages each time looks cheap to it.
CROSS JOIN LATERAL (
  SELECT m.session_id, m.message_index, m.created_at, p.seen_index FROM rem.messages m
  JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (m.tenant_id, m.session_id, $4) AND p.seen_index >= m.message_index
  WHERE m.tenant_id = $1 AND m.id = f.entity_id AND m.deleted_at IS NULL AND (rem.rem_is_sealed(m.content) OR strpos(lower(m.content), lower(f.label)) > 0)
    AND (m.role = 'user' OR m.metadata ->> 'speaker' IS NOT NULL) OFFSET 0) m
WHERE f.entity_type = 'messages'
GROUP BY m.session_id, m.seen_index, m.message_index / $7::integer
ORDER BY max(m.created_at) DESC, m.session_id, first LIMIT $6

-- name: documents_with_name
{passages_with_name}
SELECT f.entity_type, rem.rem_record(f.entity_type, $1, f.entity_id) AS record
FROM (SELECT DISTINCT f.entity_type, f.entity_id FROM matches f WHERE f.entity_type <> 'messages') f
JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = ($1, f.entity_id, $4)
ORDER BY f.entity_id LIMIT $6

-- name: reopen_relations
-- Make the newest ended statement of an exclusive relation live again, if no live statement of that relation is left.
WITH reopened AS (
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
FROM reopened WHERE (s.tenant_id, s.id) = (reopened.tenant_id, reopened.id)
RETURNING s.entity_type, s.entity_id
