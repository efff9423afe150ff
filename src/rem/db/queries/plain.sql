-- name: notes
-- The sources of lists and counts in plain language. All have the same columns. One note is one file, however many chunks it has. Its title
-- stands for its front matter. The first quantifier of the pattern makes all of it stop at the first line of dashes.
SELECT DISTINCT ON (user_id, coalesce(uri, id::text)) CASE WHEN metadata ->> 'file' IS NULL THEN 'resources' ELSE 'files' END AS "table",
  coalesce(metadata ->> 'file', key) AS key, user_id, coalesce("timestamp", created_at) AS happened_at, left(CASE WHEN content LIKE '---%' THEN
    concat_ws(': ', CASE WHEN content NOT LIKE '%# ' || (metadata ->> 'title') || '%' THEN metadata ->> 'title' END,
      regexp_replace(content, '^---[ \t]*?\r?\n(?:[^\n]*\n)*?---[ \t]*\r?(?:\n\s*(?=\S)|$)', '')) ELSE content END, 300) AS content
FROM resources ORDER BY user_id, coalesce(uri, id::text), ordinal

-- name: files
SELECT 'files' AS "table", key, user_id, created_at AS happened_at, name AS content FROM files

-- name: messages
SELECT 'messages' AS "table", key, user_id, created_at AS happened_at, left(content, 300) AS content FROM messages WHERE role = 'user'

-- name: sessions
SELECT 'sessions' AS "table", key, user_id, updated_at AS happened_at,
  concat_ws(': ', name, coalesce(nullif(description, ''), (
    SELECT left(m.content, 200) FROM messages m WHERE m.session_id = sessions.id AND m.role = 'user' ORDER BY m.message_index LIMIT 1)))
  || ' (' || message_count || ' messages)' AS content
FROM sessions WHERE message_count > 0

-- name: people
-- A profile of the user is no other person.
SELECT DISTINCT ON (key) "table", key, user_id, happened_at, content FROM (
  SELECT 'users' AS "table", key, user_id, created_at AS happened_at, concat_ws(': ', name, nullif(summary, ''), role) AS content
  FROM users WHERE origin <> 'dream:profiles' AND coalesce(user_id NOT IN (id::text, name), true)
  UNION ALL
  SELECT 'ontologies', key, user_id, created_at, concat_ws(': ', name, nullif(left(content, 300), '')) FROM ontologies
  WHERE 'person' IN (extracted_data ->> 'type', extracted_data ->> 'entity_type') OR 'person' = ANY (tags)) AS known
ORDER BY key, "table" DESC

-- name: about_author
-- The profile of the user, and then what the user said about himself or herself.
SELECT "table", key, date_trunc('second', happened_at) AS happened_at, content FROM (
  SELECT 0 AS place, 'users' AS "table", key, updated_at AS happened_at,
    concat_ws(': ', nullif(name, user_id), nullif(summary, '')) AS content
  FROM users WHERE user_id IS NOT NULL AND (origin = 'dream:profiles' OR user_id IN (id::text, name))
  UNION ALL
  SELECT 1, 'messages', key, created_at, left(content, 300) FROM messages
  WHERE role = 'user' AND coalesce(kind, 'statement') = 'statement' AND content ~ {pattern}) AS known
WHERE content <> '' ORDER BY place, known.happened_at DESC, key LIMIT {limit}

-- name: moments
SELECT 'moments' AS "table", key, user_id, starts_timestamp AS happened_at, summary AS content FROM moments

-- name: memories
-- Everything with a time. A derived moment repeats what was said or written.
SELECT "table", key, user_id, happened_at, content FROM ({notes}) AS notes
UNION ALL
SELECT 'messages', key, user_id, created_at, left(content, 300) FROM messages
WHERE role = 'user' AND coalesce(kind, 'statement') = 'statement'
UNION ALL
SELECT 'moments', key, user_id, starts_timestamp, summary FROM moments WHERE origin NOT LIKE 'dream:%'

-- name: long_memories
-- The same for a long time: moments stand for the messages of their sessions.
SELECT "table", key, user_id, happened_at, content FROM ({notes}) AS notes
UNION ALL
SELECT 'messages', key, user_id, created_at, left(content, 300) FROM messages
WHERE role = 'user' AND coalesce(kind, 'statement') = 'statement' AND session_id NOT IN (
  SELECT source_session_id FROM moments WHERE source_session_id IS NOT NULL)
UNION ALL
SELECT 'moments', key, user_id, starts_timestamp, summary FROM moments
WHERE source_session_id IS NOT NULL OR origin NOT LIKE 'dream:%'

-- name: count
SELECT count(*){own} AS {name}{shared} FROM ({source}) AS {name}{condition}

-- name: list
SELECT "table", key, date_trunc('second', happened_at) AS happened_at, content
FROM ({source}) AS {name}{condition} ORDER BY {name}.happened_at{direction}, key LIMIT {limit}
