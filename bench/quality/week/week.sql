-- Move what was said in a week to its days, and read what was derived from it.

-- name: move_messages
-- Move the messages of a session so that the first one is from the given time.
UPDATE rem.messages m SET created_at = m.created_at - s.lag, updated_at = m.updated_at - s.lag
FROM (SELECT min(f.created_at) - $4::timestamptz AS lag FROM rem.messages f
      WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.session_id = $3::uuid) s
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3::uuid

-- name: move_passages
-- Give the passages of a session the times of their messages. Messages never change their time, so the indexer would not.
UPDATE rem.passages p SET happened_at = m.created_at FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3::uuid
  AND (p.tenant_id, p.entity_id, p.entity_type) = (m.tenant_id, m.id, 'messages')

-- name: move_session
-- Move a session to the given time.
UPDATE rem.sessions s SET created_at = $4::timestamptz, updated_at = s.updated_at - (s.created_at - $4::timestamptz)
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = $3::uuid

-- name: derived_rows
-- Return the derived moments and entities of a user, and whether all messages behind them have one of the texts $3.
SELECT d.entity_type, coalesce(m.summary, o.name) AS label, coalesce(m.summary, concat_ws(E'\n', o.name, o.content)) AS body,
       coalesce(bool_and(g.content = ANY ($3::text[])) FILTER (WHERE g.id IS NOT NULL), false) AS has_only_questions
FROM rem.statements d
LEFT JOIN rem.moments m ON d.entity_type = 'moments' AND (m.tenant_id, m.id) = (d.tenant_id, d.entity_id)
LEFT JOIN rem.ontologies o ON d.entity_type = 'ontologies' AND (o.tenant_id, o.id) = (d.tenant_id, d.entity_id)
LEFT JOIN rem.statement_sources s ON (s.tenant_id, s.statement_id) = (d.tenant_id, d.id)
LEFT JOIN rem.messages g ON s.source_type = 'messages' AND (g.tenant_id, g.id) = (s.tenant_id, s.source_id)
WHERE d.tenant_id = $1 AND d.user_id = $2 AND d.kind = 'row' AND d.state = 'live'
  AND coalesce(m.id, o.id) IS NOT NULL AND coalesce(m.deleted_at, o.deleted_at) IS NULL
GROUP BY d.entity_type, d.entity_id, m.summary, o.name, o.content
ORDER BY label

-- name: topics
-- Return the topics of a user's moments and profile.
SELECT DISTINCT t.topic FROM (
  SELECT unnest(m.topic_tags) FROM rem.moments m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.deleted_at IS NULL
  UNION ALL
  SELECT unnest(u.interests || u.preferred_topics) FROM rem.users u
  WHERE u.tenant_id = $1 AND u.user_id = $2 AND u.deleted_at IS NULL
) t (topic)

-- name: message_kinds
-- Return the texts of a user's messages and the kinds with which they were stored.
SELECT DISTINCT m.content, m.kind FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.role = 'user' AND m.deleted_at IS NULL
ORDER BY m.content
