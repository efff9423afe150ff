-- Queries of the moments dream, always for one owner.

-- name: messages_from
-- Messages of people in a session from an index on, each cut to $6 characters, with their kinds. Messages that are not searchable are
-- left out.
SELECT m.id, m.key, m.message_index, rem.rem_head(m.content, $6) AS content, m.metadata, m.created_at, m.kind FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index >= $4 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.content ~ '\S'
  AND (m.role = 'user' OR (m.role = 'assistant' AND jsonb_typeof(m.metadata -> 'speaker') = 'string'))
  AND (m.metadata -> 'searchable') IS DISTINCT FROM 'false' AND m.model IS DISTINCT FROM 'rem:local'
ORDER BY m.message_index LIMIT $5

-- name: messages_before
-- The same for messages up to an index, latest first.
SELECT m.id, m.key, m.message_index, rem.rem_head(m.content, $6) AS content, m.metadata, m.created_at, m.kind FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index <= $4 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.content ~ '\S'
  AND (m.role = 'user' OR (m.role = 'assistant' AND jsonb_typeof(m.metadata -> 'speaker') = 'string'))
  AND (m.metadata -> 'searchable') IS DISTINCT FROM 'false' AND m.model IS DISTINCT FROM 'rem:local'
ORDER BY m.message_index DESC LIMIT $5

-- name: message_vectors
-- Vectors of the first passage of each message.
SELECT DISTINCT ON (p.entity_id) p.entity_id, p.embedding::real[] FROM rem.passages p
JOIN rem.embedding_models e ON e.id = p.model_id AND e.is_current
WHERE p.tenant_id = $1 AND p.entity_type = 'messages' AND p.entity_id = ANY ($2::uuid[])
ORDER BY p.entity_id, p.starts

-- name: moments_of_subject
-- Live statements of the moments of a session or text.
SELECT s.id, s.entity_id, s.name, s.value, s.confidence, s.subject_type, s.subject_id FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_id = $3 AND s.dream = 'moments'
  AND s.kind = 'row' AND s.state = 'live'
ORDER BY s.valid_from, s.name

-- name: moments_of_range
-- The same for the moments of a session that begin at a message from $4 to before $5. An index finds them, however long the session is.
SELECT s.id, s.entity_id, s.name, s.value, s.confidence, s.subject_type, s.subject_id FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_id = $3 AND s.dream = 'moments'
  AND s.kind = 'row' AND s.state = 'live' AND (s.value #>> '{metadata,first_index}')::integer >= $4
  AND (s.value #>> '{metadata,first_index}')::integer < $5
ORDER BY s.valid_from, s.name

-- name: ranges_of_moments
-- First and last message of the moments of a session that begin between two messages.
SELECT (s.value #>> '{metadata,first_index}')::integer AS first_index, (s.value #>> '{metadata,last_index}')::integer AS last_index
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_id = $3 AND s.dream = 'moments'
  AND s.kind = 'row' AND s.state = 'live' AND (s.value #>> '{metadata,first_index}')::integer BETWEEN $4 AND $5

-- name: start_of_last_moment
-- First message of the last moment of a session that begins at an index or before it.
SELECT max((s.value #>> '{metadata,first_index}')::integer) FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_id = $3 AND s.dream = 'moments'
  AND s.kind = 'row' AND s.state = 'live' AND (s.value #>> '{metadata,first_index}')::integer <= $4

-- name: start_of_overlapping_moment
-- First message of the first moment of a session that spans a message. A model may join episodes over a pause; the last 50 moments
-- before the message are looked at.
SELECT min(s.first_index) FROM (
  SELECT (s.value #>> '{metadata,first_index}')::integer AS first_index, (s.value #>> '{metadata,last_index}')::integer AS last_index
  FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.subject_id = $3 AND s.dream = 'moments'
    AND s.kind = 'row' AND s.state = 'live' AND (s.value #>> '{metadata,first_index}')::integer < $4
  ORDER BY (s.value #>> '{metadata,first_index}')::integer DESC LIMIT 50) s
WHERE s.last_index >= $4

-- name: statement_of_moment
-- The live statement of a moment.
SELECT s.id, s.entity_id, s.name, s.value, s.confidence, s.subject_type, s.subject_id FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.entity_id = $3 AND s.entity_type = 'moments'
  AND s.dream = 'moments' AND s.kind = 'row' AND s.state = 'live'
ORDER BY s.stated_at DESC LIMIT 1

-- name: sources_of_statements
-- Sources of statements, each with its key and with its origin: the session of a message, the file of a chunk. `is_readable` is false
-- for an answer, a command, small talk or a quotation, and `question` is the text of a message of that kind.
SELECT x.statement_id, x.source_type, x.source_id, coalesce(m.key, k.entity_key, x.source_id::text) AS key,
       coalesce(m.session_id, f.id, x.source_id) AS origin_id,
       coalesce(m.kind IN ('statement', 'question') OR jsonb_typeof(m.metadata -> 'speaker') = 'string', true) AS is_readable,
       CASE m.kind WHEN 'question' THEN rem.rem_head(m.content, $3) END AS question
FROM rem.statement_sources x
LEFT JOIN rem.messages m ON x.source_type = 'messages' AND (m.tenant_id, m.id) = (x.tenant_id, x.source_id)
LEFT JOIN rem.resources r ON x.source_type = 'resources' AND (r.tenant_id, r.id) = (x.tenant_id, x.source_id)
LEFT JOIN rem.files f ON f.tenant_id = x.tenant_id
  AND f.id = CASE WHEN r.metadata ->> 'file_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (r.metadata ->> 'file_id')::uuid END
LEFT JOIN rem.kv_store k ON x.source_type <> 'messages' AND k.tenant_id = x.tenant_id AND k.entity_id = x.source_id
  AND k.entity_type = x.source_type AND k.key_rank = 1
WHERE x.tenant_id = $1 AND x.statement_id = ANY ($2::uuid[])
ORDER BY x.statement_id, origin_id, m.message_index, x.source_id

-- name: rescan_sources
-- Let this dream read rows again; of sessions only the messages.
WITH sessions AS (
  SELECT m.session_id, range_agg(int4range(m.message_index, m.message_index, '[]')) AS messages FROM rem.messages m
  WHERE m.tenant_id = $1 AND m.id = ANY ($2::uuid[]) GROUP BY m.session_id),
parts AS (
  UPDATE rem.dream_progress p SET again = p.again + c.messages FROM sessions c
  WHERE p.tenant_id = $1 AND p.dream = 'moments' AND p.source_id = c.session_id)
DELETE FROM rem.dream_progress p WHERE p.tenant_id = $1 AND p.dream = 'moments' AND p.source_id = ANY ($2::uuid[])

-- name: rescan_for_new_names
-- Let this dream read texts again that mention an entity which is known since this run ($3); of sessions the messages from the mention
-- to the end of its group (rem_dream_rescan_messages).
WITH named AS (
  SELECT DISTINCT s.tenant_id, s.id, s.subject_type, s.subject_id
  FROM rem.statements s
  JOIN rem.dream_runs d ON (d.tenant_id, d.id) = (s.tenant_id, s.run_id)
  JOIN rem.ontologies o ON o.tenant_id = s.tenant_id AND o.user_id IS NOT DISTINCT FROM $2 AND o.key = s.value ->> 'dst'
    AND o.deleted_at IS NULL AND o.created_at >= d.started_at
  WHERE s.tenant_id = $1 AND s.run_id = $3 AND s.dream = 'entities' AND s.kind = 'edge' AND s.state = 'live'
    AND s.value ->> 'rel_type' = 'mentions' AND s.subject_type IN ('sessions', 'resources')),
sessions AS (
  SELECT m.session_id, range_agg(int4range(m.message_index, (m.message_index / rem.rem_dream_rescan_messages() + 1) * rem.rem_dream_rescan_messages())) AS messages
  FROM named n
  JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (n.tenant_id, n.id) AND x.source_type = 'messages'
  JOIN rem.messages m ON (m.tenant_id, m.id, m.session_id) = (x.tenant_id, x.source_id, n.subject_id)
  GROUP BY m.session_id),
parts AS (
  UPDATE rem.dream_progress p SET again = p.again + c.messages * int4multirange(int4range(0, p.seen_index, '[]')) FROM sessions c
  WHERE p.tenant_id = $1 AND p.dream = 'moments' AND p.source_id = c.session_id AND p.seen_index >= 0)
DELETE FROM rem.dream_progress p USING named n
WHERE p.tenant_id = $1 AND p.user_id IS NOT DISTINCT FROM $2 AND p.dream = 'moments' AND p.source_id = n.subject_id
  AND n.subject_type = 'resources'

-- name: nearest_moments
-- The owner's moments nearest to a vector, with their cosines. `is_exact` says whether the vector is that of the whole summary and
-- nothing else: others contain a name, or more text than fits into one passage.
SELECT m.id, m.name, m.summary, n.cosine, m.origin LIKE 'dream:%' AND n.starts = 0 AND n.ends = char_length(m.summary) AS is_exact
FROM (
  SELECT p.entity_id, 1 - (p.embedding <=> $4::halfvec) AS cosine, p.starts, p.ends FROM rem.passages p
  JOIN rem.embedding_models e ON e.id = p.model_id AND e.is_current AND e.dimension = $6
  WHERE p.tenant_id = $1 AND p.owner = $3 AND p.entity_type = 'moments' AND p.entity_id <> ALL ($5::uuid[])
  ORDER BY p.embedding <=> $4::halfvec LIMIT $7) n
JOIN rem.moments m ON (m.tenant_id, m.id) = ($1, n.entity_id)
WHERE m.user_id IS NOT DISTINCT FROM $2 AND m.deleted_at IS NULL AND (m.expires_at IS NULL OR m.expires_at > now())
  -- A derived row without statement came with a dump: a dream will adopt it.
  AND (m.origin NOT LIKE 'dream:%' OR EXISTS (
    SELECT FROM rem.statements s WHERE (s.tenant_id, s.entity_id, s.kind, s.state) = (m.tenant_id, m.id, 'row', 'live')))
ORDER BY n.cosine DESC, m.id

-- name: moments_by_id
SELECT m.id, m.name, m.summary, m.origin FROM rem.moments m
WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND m.id = ANY ($3::uuid[]) AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now())
  AND (m.origin NOT LIKE 'dream:%' OR EXISTS (
    SELECT FROM rem.statements s WHERE (s.tenant_id, s.entity_id, s.kind, s.state) = (m.tenant_id, m.id, 'row', 'live')))

-- name: moment_with_summary
-- A moment of the owner with exactly this summary, whatever its name.
SELECT m.id FROM rem.moments m
WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND md5(m.summary) = md5($3) AND m.summary = $3
  AND m.id <> ALL ($4::uuid[]) AND m.deleted_at IS NULL AND (m.expires_at IS NULL OR m.expires_at > now())
  AND (m.origin NOT LIKE 'dream:%' OR EXISTS (
    SELECT FROM rem.statements s WHERE (s.tenant_id, s.entity_id, s.kind, s.state) = (m.tenant_id, m.id, 'row', 'live')))
ORDER BY m.created_at, m.id LIMIT 1

-- name: latest_moments
-- The latest moments, for the comparison by words if embeddings are off.
SELECT m.id, m.name, m.summary, m.origin FROM rem.moments m
WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now())
  AND (m.origin NOT LIKE 'dream:%' OR EXISTS (
    SELECT FROM rem.statements s WHERE (s.tenant_id, s.entity_id, s.kind, s.state) = (m.tenant_id, m.id, 'row', 'live')))
ORDER BY m.created_at DESC, m.id LIMIT $3

-- name: known_names
-- Key and names of all people ($4 = person) or organisations ($4 = organization) that the owner sees.
SELECT p.key, p.names, p.email FROM (
  SELECT u.key, ARRAY[u.name] AS names, u.email, u.created_at FROM rem.users u
  WHERE u.tenant_id = $1 AND (u.user_id = $2 OR u.user_id IS NULL) AND u.deleted_at IS NULL AND u.id::text IS DISTINCT FROM $2
    AND (u.user_id = $2 AND (u.id = $5 OR u.origin = 'dream:profiles'
                             OR u.metadata @> '{"is_profile": true}')) IS NOT TRUE
    AND $4 = 'person'
  UNION ALL
  SELECT o.key, o.name || CASE WHEN jsonb_typeof(o.extracted_data -> 'aliases') = 'array'
           THEN ARRAY(SELECT jsonb_array_elements_text(o.extracted_data -> 'aliases')) ELSE '{}' END, NULL, o.created_at
  FROM rem.ontologies o
  WHERE o.tenant_id = $1 AND (o.user_id = $2 OR o.user_id IS NULL) AND o.deleted_at IS NULL
    AND (o.extracted_data ->> 'type' = $4 OR o.extracted_data ->> 'entity_type' = $4 OR $4 = ANY (o.tags))) p
ORDER BY p.created_at, p.key LIMIT $3

-- name: new_notes
-- New and changed texts with a time that are no parts of files, and changed texts that the dream has seen before.
SELECT to_json(r.*) FROM rem.resources r
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (r.tenant_id, r.id, 'moments')
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now()) AND p.seen_at IS DISTINCT FROM r.updated_at
  AND (r.timestamp IS NOT NULL OR p.source_id IS NOT NULL) AND NOT r.metadata ? 'file_id' AND r.origin NOT LIKE 'dream:%'
ORDER BY r.created_at, r.id LIMIT $3

-- name: new_files
-- New and changed files, each with the number of files that were ingested within the pause ($4) around it, at most $5.
SELECT f.id, f.key, f.name, f.uri, f.created_at, f.updated_at, nearby.count AS nearby_count FROM rem.files f
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (f.tenant_id, f.id, 'moments')
CROSS JOIN LATERAL (
  SELECT count(*) FROM (
    SELECT FROM rem.files o WHERE o.tenant_id = f.tenant_id AND o.user_id IS NOT DISTINCT FROM f.user_id AND o.deleted_at IS NULL
      AND o.created_at BETWEEN f.created_at - $4::interval AND f.created_at + $4::interval LIMIT $5) near) nearby
WHERE f.tenant_id = $1 AND f.user_id IS NOT DISTINCT FROM $2 AND f.deleted_at IS NULL AND f.processing_status = 'completed'
  AND (f.expires_at IS NULL OR f.expires_at > now()) AND p.seen_at IS DISTINCT FROM f.updated_at
ORDER BY f.created_at, f.id LIMIT $3

-- name: first_parts_of_file
-- The first chunks of a file, each cut to $5 characters.
SELECT r.id, r.key, rem.rem_head(r.content, $5) AS content, r.timestamp, r.metadata FROM rem.resources r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.metadata ->> 'file_id' = $3 AND r.metadata ? 'file_id'
  AND r.deleted_at IS NULL
ORDER BY r.ordinal, r.key LIMIT $4

-- name: unlinked_moments
-- The owner's moments that have not been linked in their current version, earliest first.
SELECT m.id, m.key, m.starts_timestamp, m.origin, m.source_session_id, m.source_resource_ids FROM rem.moments m
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (m.tenant_id, m.id, 'moments')
WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND m.deleted_at IS NULL AND m.starts_timestamp IS NOT NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND p.seen_at IS DISTINCT FROM m.updated_at
ORDER BY m.starts_timestamp, m.key LIMIT $3

-- name: previous_moment
SELECT m.id, m.key FROM rem.moments m
WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.starts_timestamp <= $3 AND (m.starts_timestamp, m.key) < ($3, $4)
ORDER BY m.starts_timestamp DESC, m.key DESC LIMIT 1

-- name: next_moment
SELECT m.id, m.key, m.starts_timestamp, m.origin, m.source_session_id, m.source_resource_ids FROM rem.moments m
WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.starts_timestamp >= $3 AND (m.starts_timestamp, m.key) > ($3, $4)
ORDER BY m.starts_timestamp, m.key LIMIT 1

-- name: texts_by_id
SELECT r.id, r.key FROM rem.resources r
WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL) AND r.id = ANY ($3::uuid[]) AND r.deleted_at IS NULL
ORDER BY r.key
