-- Queries of changes that wait for the user's confirmation, always for one owner.

-- name: searchable_tables
-- Return the tables whose rows hold texts of the user, each with the SQL expression of the text.
SELECT t.name, t.search_expression FROM rem.entity_types t
WHERE t.search_expression <> '''''' AND t.name NOT IN ('sessions', 'users', 'schemas')
ORDER BY t.name

-- name: word_count
-- Return how many words of a topic are left without stop words.
SELECT numnode(plainto_tsquery($1::regconfig, $2))

-- name: rows_about
-- Return the owner's rows of a table whose text has all words of a topic, newest first, and their total number. Commands are no
-- memories. A long text is searched in parts of 50,000 characters that overlap: a tsvector holds at most 1 MB.
SELECT t.id, t.key, t.updated_at, t.happened_at, t.text, t.role, t.origin, t.is_chunk, t.is_question, count(*) OVER () AS total FROM (
  SELECT r.id, r.key, r.updated_at, d.record ->> 'role' AS role, d.record ->> 'origin' AS origin,
         (d.record -> 'metadata') ? 'file_id' AS is_chunk, d.record ->> 'kind' = 'question' AS is_question,
         coalesce((d.record ->> 'timestamp')::timestamptz, (d.record ->> 'starts_timestamp')::timestamptz, r.created_at) AS happened_at,
         CASE WHEN r.key LIKE 'session-%' THEN '' ELSE replace(r.key, '-', ' ') || ' ' END AS title, {text} AS text
  FROM {table} r CROSS JOIN LATERAL (SELECT to_jsonb(r.*) AS record) d
  WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
    AND coalesce(d.record ->> 'role', 'user') IN ('user', 'assistant') AND (d.record ->> 'kind') IS DISTINCT FROM 'command'
    -- Only the user's statements, and what was derived from them ($6).
    AND (NOT $6 OR (coalesce(d.record ->> 'role', 'user') = 'user' AND (d.record ->> 'kind') IS DISTINCT FROM 'question'))) t
WHERE CASE WHEN length(t.text) <= 50000 THEN to_tsvector($3::regconfig, t.title || t.text) @@ plainto_tsquery($3::regconfig, $4)
      ELSE EXISTS (
        SELECT FROM generate_series(1, length(t.text), 40000) AS p (starts)
        WHERE to_tsvector($3::regconfig, t.title || substr(t.text, p.starts, 50000)) @@ plainto_tsquery($3::regconfig, $4)) END
ORDER BY t.happened_at DESC, t.id LIMIT $5

-- name: repetitions
-- Return the owner's questions and REM's answers, notes and reasoning that repeat one of some texts ($4): they have most of its words,
-- or one of its codes and long numbers.
WITH texts AS MATERIALIZED (
  SELECT array_length(w.words, 1) AS total, w.words,
         ARRAY(SELECT u.word FROM unnest(w.words) AS u (word) WHERE (u.word ~ '[a-z]' AND u.word ~ '\d') OR u.word ~ '\d{5}') AS codes
  FROM unnest($4::text[]) AS t (text)
  CROSS JOIN LATERAL (SELECT tsvector_to_array(to_tsvector($3::regconfig, t.text)) AS words) w
  WHERE array_length(w.words, 1) > 0)
SELECT m.id FROM rem.messages m
CROSS JOIN LATERAL (SELECT tsvector_to_array(to_tsvector($3::regconfig, left(m.content, 50000))) AS words) w
WHERE m.tenant_id = $1 AND m.user_id = $2 AND (m.role IN ('assistant', 'tool') OR (m.role = 'user' AND m.kind = 'question'))
  AND EXISTS (
    SELECT FROM texts t
    WHERE t.codes && w.words
      OR (SELECT count(*) FROM unnest(t.words) AS u (word) WHERE u.word = ANY (w.words)) >= greatest(2, ceil(0.7 * t.total)))

-- name: encrypted_rows
-- Return the owner's rows of a table whose text is encrypted, in the form of `rows_about`, newest first. Their words are compared later.
SELECT r.id, r.key, r.updated_at, d.record ->> 'role' AS role, d.record ->> 'origin' AS origin,
       (d.record -> 'metadata') ? 'file_id' AS is_chunk, d.record ->> 'kind' = 'question' AS is_question,
       coalesce((d.record ->> 'timestamp')::timestamptz, (d.record ->> 'starts_timestamp')::timestamptz, r.created_at) AS happened_at,
       CASE WHEN r.key LIKE 'session-%' THEN '' ELSE replace(r.key, '-', ' ') || ' ' END AS title, {text} AS text
FROM {table} r CROSS JOIN LATERAL (SELECT to_jsonb(r.*) AS record) d
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
  AND rem.rem_is_sealed({text})
  AND coalesce(d.record ->> 'role', 'user') IN ('user', 'assistant') AND (d.record ->> 'kind') IS DISTINCT FROM 'command'
  AND (NOT $3 OR (coalesce(d.record ->> 'role', 'user') = 'user' AND (d.record ->> 'kind') IS DISTINCT FROM 'question'))
ORDER BY 8 DESC, r.id

-- name: texts_about
-- Return the places of the texts ($3) that have all words of a topic ($2).
SELECT t.place::integer FROM unnest($3::text[]) WITH ORDINALITY AS t (text, place)
WHERE to_tsvector($1::regconfig, left(t.text, 250000)) @@ plainto_tsquery($1::regconfig, $2) ORDER BY t.place

-- name: own_answers
-- Return the owner's questions and REM's answers, notes and reasoning, whose texts are encrypted.
SELECT m.id, m.content FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND (m.role IN ('assistant', 'tool') OR (m.role = 'user' AND m.kind = 'question'))
  AND rem.rem_is_sealed(m.content)

-- name: repeated_texts
-- The same as `repetitions` for given texts ($3) of messages: return the places of those that repeat one of the texts $2.
WITH texts AS MATERIALIZED (
  SELECT array_length(w.words, 1) AS total, w.words,
         ARRAY(SELECT u.word FROM unnest(w.words) AS u (word) WHERE (u.word ~ '[a-z]' AND u.word ~ '\d') OR u.word ~ '\d{5}') AS codes
  FROM unnest($2::text[]) AS t (text)
  CROSS JOIN LATERAL (SELECT tsvector_to_array(to_tsvector($1::regconfig, t.text)) AS words) w
  WHERE array_length(w.words, 1) > 0)
SELECT m.place::integer FROM unnest($3::text[]) WITH ORDINALITY AS m (content, place)
CROSS JOIN LATERAL (SELECT tsvector_to_array(to_tsvector($1::regconfig, left(m.content, 50000))) AS words) w
WHERE EXISTS (
  SELECT FROM texts t
  WHERE t.codes && w.words
    OR (SELECT count(*) FROM unnest(t.words) AS u (word) WHERE u.word = ANY (w.words)) >= greatest(2, ceil(0.7 * t.total)))

-- name: rows_by_id
-- Return some of the owner's rows of a table, in the form of `rows_about`.
SELECT r.id, r.key, r.updated_at, d.record ->> 'role' AS role, d.record ->> 'origin' AS origin,
       (d.record -> 'metadata') ? 'file_id' AS is_chunk, d.record ->> 'kind' = 'question' AS is_question,
       coalesce((d.record ->> 'timestamp')::timestamptz, (d.record ->> 'starts_timestamp')::timestamptz, r.created_at) AS happened_at,
       {text} AS text
FROM {table} r CROSS JOIN LATERAL (SELECT to_jsonb(r.*) AS record) d
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
  AND r.id = ANY ($3::uuid[])

-- name: lock_rows
-- Lock some of the owner's rows, and return their versions.
SELECT r.id, r.updated_at FROM {table} r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
  AND r.id = ANY ($3::uuid[]) ORDER BY r.id FOR UPDATE

-- name: latest_message
-- Return the user's latest message in a session.
SELECT m.id FROM rem.messages m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3::uuid AND m.role = 'user'
ORDER BY m.message_index DESC LIMIT 1

-- name: previews
-- Return what REM itself said in the turn of a session in which a request was made, and the user's command before it: they repeat the
-- texts that are to be forgotten. An answer with the code ($5) repeats them as well, wherever it stands.
SELECT m.id FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3
  AND ((m.role IN ('assistant', 'tool') AND m.created_at >= $4 AND m.message_index < coalesce((
      SELECT min(n.message_index) FROM rem.messages n
      WHERE n.tenant_id = $1 AND n.user_id = $2 AND n.session_id = $3 AND n.role = 'user' AND n.created_at > $4), 2147483647))
    OR (m.role = 'assistant' AND m.created_at >= $4 AND strpos(m.content, $5) > 0)
    OR (to_jsonb(m.*) ->> 'kind' = 'command' AND m.message_index = (
      SELECT max(c.message_index) FROM rem.messages c
      WHERE c.tenant_id = $1 AND c.user_id = $2 AND c.session_id = $3 AND c.role = 'user' AND c.created_at <= $4)))

-- name: tool_calls_of_turns
-- Return the calls of tools in the turns of some messages. Their arguments repeat the texts.
SELECT DISTINCT c.id FROM unnest($3::uuid[]) AS e (id)
JOIN rem.messages m ON (m.tenant_id, m.id) = ($1, e.id) AND m.user_id = $2
CROSS JOIN LATERAL (
  SELECT coalesce(max(u.message_index) FILTER (WHERE u.message_index <= m.message_index), -1) AS first_index,
         coalesce(min(u.message_index) FILTER (WHERE u.message_index > m.message_index), 2147483647) AS end_index
  FROM rem.messages u
  WHERE u.tenant_id = m.tenant_id AND u.user_id = m.user_id AND u.session_id = m.session_id AND u.role = 'user') t
JOIN rem.messages c ON c.tenant_id = m.tenant_id AND c.user_id = m.user_id AND c.session_id = m.session_id AND c.role = 'tool'
  AND c.message_index > t.first_index AND c.message_index < t.end_index

-- name: sessions_of_messages
SELECT DISTINCT m.session_id FROM rem.messages m WHERE m.tenant_id = $1 AND m.id = ANY ($2::uuid[])

-- name: blank_tool_gaps
-- Remove the task of the owner's gaps that were noted in some sessions ($3), or that have one of some texts ($4).
UPDATE rem.tool_gaps g SET attempted_task = '(forgotten)'
WHERE g.tenant_id = $1 AND g.user_id IS NOT DISTINCT FROM $2
  AND (g.session_id = ANY ($3::uuid[]) OR EXISTS (SELECT FROM unnest($4::text[]) AS e (text) WHERE strpos(g.attempted_task, e.text) > 0))

-- name: release_derived_rows
-- Delete the statements of derived rows ($2, $3) that have a source among the erased rows ($4), and let the dreams read their other
-- sources again. Without it, the erasure would count as a refusal of everything else that these rows say.
WITH lost AS (
  SELECT DISTINCT s.tenant_id, s.id, s.dream, s.subject_id FROM unnest($2::text[], $3::uuid[]) AS e (type, id)
  JOIN rem.statements s ON (s.tenant_id, s.entity_type, s.entity_id) = ($1, e.type, e.id) AND s.kind = 'row' AND s.state <> 'refused'
  JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (s.tenant_id, s.id) AND x.source_id = ANY ($4::uuid[])),
rescanned AS (
  DELETE FROM rem.dream_progress p USING lost l
  WHERE (p.tenant_id, p.source_id, p.dream) = (l.tenant_id, l.subject_id, l.dream))
DELETE FROM rem.statements s USING lost l WHERE (s.tenant_id, s.id) = (l.tenant_id, l.id)
