-- name: user_rows
-- Return the rows of `users` that may stand for their owner: those whose key or id is the user id, the row that the dream made
-- (with the id $3, or in another database, from which it was loaded), and those with an e-mail address, from which the
-- user id may be made.
SELECT u.id, u.name, u.email, u.origin, u.deleted_at IS NOT NULL AS is_deleted,
       u.key = rem.rem_key($2) OR u.id::text = lower($2) OR u.id = $3 OR u.origin = 'dream:profiles'
         OR u.metadata @> '{"is_profile": true}' AS is_named
FROM rem.users u
WHERE u.tenant_id = $1 AND u.user_id = $2 AND (u.expires_at IS NULL OR u.expires_at > now())
  AND (u.key = rem.rem_key($2) OR u.id::text = lower($2) OR u.id = $3 OR u.origin = 'dream:profiles'
       OR u.metadata @> '{"is_profile": true}' OR u.email IS NOT NULL OR strpos(u.name, '@') > 0)
ORDER BY u.created_at, u.id

-- name: other_rows_named
-- Return the owner's other rows with a name, also deleted ones.
SELECT u.id FROM rem.users u WHERE u.tenant_id = $1 AND u.user_id = $2 AND u.key = rem.rem_key($3) AND u.id <> $4

-- name: user_record
SELECT to_json(u.*) FROM rem.users u
WHERE u.tenant_id = $1 AND u.user_id = $2 AND u.id = $3 AND u.deleted_at IS NULL

-- name: has_key
-- Return whether a user id is valid as a key.
SELECT octet_length(rem.rem_key($1)) BETWEEN 1 AND 1024

-- name: moments
-- Return the latest moments of an owner, newest first.
SELECT m.id, m.key, m.starts_timestamp AS starts_at, coalesce(m.ends_timestamp, m.starts_timestamp) AS ends_at, m.topic_tags,
       m.present_persons, m.summary
FROM rem.moments m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.starts_timestamp IS NOT NULL AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now())
ORDER BY m.starts_timestamp DESC, m.id LIMIT $3

-- name: messages_by_week
-- Count an owner's messages by session and week (from Monday, UTC): of the latest $3 messages those of the last $4 days.
WITH latest AS (
  SELECT m.session_id, m.created_at FROM rem.messages m
  WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.deleted_at IS NULL AND m.role = 'user'
    AND m.metadata -> 'is_eval' IS DISTINCT FROM 'true' AND (m.expires_at IS NULL OR m.expires_at > now())
  ORDER BY m.created_at DESC LIMIT $3)
SELECT s.id, s.key, date_trunc('week', l.created_at AT TIME ZONE 'UTC')::date AS week, count(*)::integer AS messages,
       max(l.created_at) AS last_at
FROM latest l JOIN rem.sessions s ON (s.tenant_id, s.id) = ($1, l.session_id) AND s.deleted_at IS NULL
WHERE l.created_at > (SELECT max(created_at) FROM latest) - make_interval(days => $4)
GROUP BY s.id, s.key, week
ORDER BY max(l.created_at) DESC, s.id, week DESC

-- name: own_messages
-- Return short messages and remembered statements that may contain self-statements or preferences, oldest first: from the latest $3,
-- and from the sources of the profile, $5. A message with a speaker may be another person's.
WITH own AS NOT MATERIALIZED (
  SELECT r.id, r.key, r.content, coalesce(r.timestamp, r.created_at) AS created_at, 0 AS message_index, r.metadata, NULL::text AS kind,
         'resources' AS table FROM rem.resources r
  WHERE r.tenant_id = $1 AND r.user_id = $2 AND r.deleted_at IS NULL AND r.origin = 'tool:remember'
    AND (r.expires_at IS NULL OR r.expires_at > now())
  UNION ALL
  SELECT m.id, m.key, m.content, m.created_at, m.message_index, m.metadata, m.kind, 'messages' FROM rem.messages m
  WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.deleted_at IS NULL AND m.role = 'user'
    AND m.metadata -> 'is_eval' IS DISTINCT FROM 'true' AND (m.expires_at IS NULL OR m.expires_at > now())
    AND (m.metadata -> 'searchable') IS DISTINCT FROM 'false'),
latest AS MATERIALIZED (SELECT * FROM own o ORDER BY o.created_at DESC LIMIT $3)
SELECT t.id, t.key, t.content, t.created_at, t.kind, t.table, t.metadata ->> 'speaker' IS NULL AS is_owners, t.is_latest FROM (
  SELECT l.*, true AS is_latest FROM latest l
  UNION ALL
  SELECT o.*, false FROM own o WHERE o.id = ANY ($5::uuid[]) AND NOT EXISTS (SELECT FROM latest l WHERE l.id = o.id)) t
WHERE rem.rem_is_sealed(t.content) OR char_length(t.content) <= $4
  AND t.content ~* ('\m(prefer|always|never|don[''’]?t|do not|from now on|bevorzuge|immer|nie|niemals|'
    'live|living|based|work|working|study|studying|have|vegetarian|vegan|pescatarian|learning|play|speak|hobby|hobbies|'
    'wohnen?|leben?|arbeite|studiere|haben?|vegetarier|vegetarierin|veganer|veganerin|lerne|spiele|spreche|hobbys|'
    'moved|started|i[''’]m|i am|ich bin|wir sind|gezogen|umgezogen|called|named|heißt|heißen|name|name[''’]s|call me|heiße|'
    'nenn|appelle|je suis|mon nom|llamo|nombre|soy)\M')
ORDER BY t.created_at, t.message_index, t.id

-- name: mentions
-- Return the knowledge entries that the given sessions and moments mention, with the ids of those that mention each.
SELECT o.id, o.key, o.name, o.extracted_data, o.tags, array_agg(DISTINCT e.src_id) AS mentioned_by
FROM rem.edges e
CROSS JOIN LATERAL (
  SELECT o.id, o.key, o.name, o.extracted_data, o.tags FROM rem.ontologies o
  WHERE o.tenant_id = $1 AND (o.user_id = $2 OR o.user_id IS NULL) AND o.key = e.dst_key AND o.deleted_at IS NULL
    AND (o.expires_at IS NULL OR o.expires_at > now())
  ORDER BY o.user_id NULLS LAST LIMIT 1) o
WHERE e.tenant_id = $1 AND e.user_id = $2 AND e.src_id = ANY ($3::uuid[]) AND e.src_type IN ('sessions', 'moments')
  AND e.rel_type = 'mentions'
GROUP BY o.id, o.key, o.name, o.extracted_data, o.tags
ORDER BY count(DISTINCT e.src_id) DESC, o.key LIMIT $4

-- name: live_statements
-- Return the live statements of the dream about a row, with their sources.
SELECT s.id, s.entity_id, s.kind, s.name, s.value, s.valid_from, s.subject_type, s.subject_id, s.source_keys,
       ARRAY(SELECT x.source_type FROM rem.statement_sources x
             WHERE x.tenant_id = s.tenant_id AND x.statement_id = s.id ORDER BY x.source_id) AS source_types,
       ARRAY(SELECT x.source_id FROM rem.statement_sources x
             WHERE x.tenant_id = s.tenant_id AND x.statement_id = s.id ORDER BY x.source_id) AS source_ids
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.dream = 'profiles' AND s.entity_type = 'users' AND s.entity_id = $3
  AND s.state = 'live'
ORDER BY s.kind, s.name, s.stated_at

-- name: refused_fields
-- Return the fields of a row that its owner corrected.
SELECT DISTINCT s.name FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.dream = 'profiles' AND s.entity_type = 'users' AND s.entity_id = $3
  AND s.kind = 'field' AND s.state = 'refused'

-- name: progress
-- Return the digest of the last run, and whether all sources of the row's statements still exist.
SELECT p.seen_index,
       EXISTS (SELECT FROM rem.dream_progress r WHERE (r.tenant_id, r.source_id, r.dream) = ($1, $4, 'profiles')) AS is_complete
FROM rem.dream_progress p
WHERE p.tenant_id = $1 AND p.user_id = $2 AND p.source_id = $3 AND p.dream = 'profiles'

-- name: keys
-- Return the keys of some rows.
SELECT 'moments' AS type, m.id, m.key FROM rem.moments m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.id = ANY ($3::uuid[])
UNION ALL
SELECT 'sessions', s.id, s.key FROM rem.sessions s WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = ANY ($3::uuid[])
UNION ALL
SELECT 'messages', m.id, m.key FROM rem.messages m WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.id = ANY ($3::uuid[])
UNION ALL
SELECT 'resources', r.id, r.key FROM rem.resources r WHERE r.tenant_id = $1 AND r.user_id = $2 AND r.id = ANY ($3::uuid[])
UNION ALL
SELECT 'users', u.id, u.key FROM rem.users u WHERE u.tenant_id = $1 AND u.user_id = $2 AND u.id = ANY ($3::uuid[])
UNION ALL
SELECT 'ontologies', o.id, o.key FROM rem.ontologies o
WHERE o.tenant_id = $1 AND (o.user_id = $2 OR o.user_id IS NULL) AND o.id = ANY ($3::uuid[])

-- name: adopt_row
-- Make a dreamt row the owner's own, because the owner has written into it.
WITH owned AS (
  UPDATE rem.users u SET origin = 'user', metadata = u.metadata || '{"is_profile": true}'
  WHERE u.tenant_id = $1 AND u.user_id = $2 AND u.id = $3 RETURNING u.id)
UPDATE rem.statements s SET state = 'refused', value = '{}', ended_at = clock_timestamp()
FROM owned WHERE s.tenant_id = $1 AND s.entity_type = 'users' AND s.entity_id = owned.id AND s.kind = 'row' AND s.state = 'live'
