-- name: try_lock_owner
-- One dream of an owner at a time, on this connection until it closes.
SELECT pg_try_advisory_lock(7236963, hashtext($1 || ' ' || coalesce($2, '')))

-- name: lock_owner
SELECT pg_advisory_lock(7236963, hashtext($1 || ' ' || coalesce($2, '')))

-- name: unlock_owner
SELECT pg_advisory_unlock(7236963, hashtext($1 || ' ' || coalesce($2, '')))

-- name: begin_run
INSERT INTO rem.dream_runs (tenant_id, user_id, dreams, model) VALUES ($1, $2, $3, $4) RETURNING id

-- name: end_run
-- Counts are those of the statements that are there: a run that was killed and one that was not tell the same way.
UPDATE rem.dream_runs SET state = $3, counts = $4, error = $5, ended_at = clock_timestamp()
WHERE tenant_id = $1 AND id = $2

-- name: fail_abandoned_runs
-- Whoever holds the owner's lock is the only one who dreams for it; what still runs was killed.
UPDATE rem.dream_runs SET state = 'failed', error = 'The process ended before the dream did.', ended_at = clock_timestamp()
WHERE tenant_id = $1 AND user_id IS NOT DISTINCT FROM $2 AND state = 'running' AND id <> $3

-- name: forget_empty_run
-- A run that said nothing and ended nothing leaves no trace.
DELETE FROM rem.dream_runs r WHERE r.tenant_id = $1 AND r.id = $2
  AND NOT EXISTS (SELECT FROM rem.statements s WHERE s.tenant_id = r.tenant_id AND (s.run_id = r.id OR s.ended_by = r.id))

-- name: runs
SELECT r.id, r.user_id, r.dreams, r.model, r.state, r.counts, r.error, r.started_at, r.ended_at
FROM rem.dream_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2
ORDER BY r.started_at DESC LIMIT $3

-- name: run
SELECT r.id, r.user_id, r.state FROM rem.dream_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.id = $3

-- name: lock_subject
-- First of all: who deletes a session locks it before its messages.
SELECT FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $2 AND r.deleted_at IS NULL FOR NO KEY UPDATE

-- name: lock_sources
-- Those that are still there; whoever wants to delete one waits until the statement stands, and takes it along.
SELECT r.id, r.expires_at FROM rem.{table} r
WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL) AND r.id = ANY ($3::uuid[])
  AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
ORDER BY r.id FOR SHARE

-- name: notice
SELECT rem.rem_dream_notice($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: live_of_subject
SELECT s.id, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.confidence, s.valid_from, s.valid_to,
       ARRAY(SELECT x.source_id FROM rem.statement_sources x
             WHERE x.tenant_id = s.tenant_id AND x.statement_id = s.id) AS source_ids
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.subject_type = $4 AND s.subject_id = $5
  AND s.state = 'live' AND s.id <> ALL ($6::uuid[]) AND ($7::uuid[] IS NULL OR s.id = ANY ($7))
ORDER BY s.stated_at, s.id

-- name: refused_by_sources
-- Whether the owner took back a row that was made from mostly the same sources.
SELECT EXISTS (
  SELECT FROM rem.statement_sources x JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id)
  WHERE x.tenant_id = $1 AND x.source_id = ANY ($4::uuid[]) AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3
    AND s.kind = 'row' AND s.state = 'refused'
  GROUP BY s.tenant_id, s.id
  HAVING count(*) * 2 >= least(cardinality($4::uuid[]), (
    SELECT count(*) FROM rem.statement_sources y WHERE y.tenant_id = s.tenant_id AND y.statement_id = s.id)))

-- name: refused_name
-- Whether the owner took back a row of this name.
SELECT EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.kind = 'row' AND s.state = 'refused'
    AND s.name = $4)

-- name: refused_part
-- Whether the owner took back this edge, whatever its type, or this field.
SELECT EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_type = $2 AND s.entity_id = $3 AND s.kind = $4 AND s.state = 'refused' AND s.dream = $5
    AND (s.name = $6 OR ($4 = 'edge' AND substr(s.name, strpos(s.name, ' ') + 1) = substr($6, strpos($6, ' ') + 1))))

-- name: key_of
SELECT rem.rem_key($1)

-- name: holders_of_key
-- Who has a key of the owner's own: live rows, deleted ones, and what a dream has named so.
SELECT r.id, r.origin, r.deleted_at IS NOT NULL AS is_deleted FROM rem.{table} r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.key = $3

-- name: named_entity
-- The row that statements of other subjects speak for under a name.
SELECT s.entity_id FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.kind = 'row' AND s.state = 'live'
  AND s.name = $4 AND s.entity_type = $5
ORDER BY s.stated_at LIMIT 1

-- name: exclusive_edges
-- Live edges of the same type that lead elsewhere.
SELECT s.id, s.valid_from FROM rem.statements s
WHERE s.tenant_id = $1 AND s.entity_type = $2 AND s.entity_id = $3 AND s.kind = 'edge' AND s.state = 'live'
  AND s.value ->> 'rel_type' = $4 AND s.name <> $5

-- name: is_on_record
-- Whether an edge that something newer has ended was said of a subject before, in the same words. It may hold again since.
SELECT EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.dream = $2 AND s.subject_id = $3 AND s.kind = 'edge' AND s.state = 'ended' AND s.entity_type = $4
    AND s.entity_id = $5 AND s.name = $6 AND s.value = $7 AND s.valid_from IS NOT DISTINCT FROM $8)
AND EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_type = $4 AND s.entity_id = $5 AND s.kind = 'edge' AND s.state = 'live'
    AND s.value ->> 'rel_type' = $9 AND s.valid_from > $8)

-- name: end_statements
UPDATE rem.statements s SET state = 'ended', ended_at = clock_timestamp(), ended_by = $3,
  valid_to = CASE WHEN $4::timestamptz IS NULL THEN s.valid_to ELSE greatest($4, s.valid_from) END
WHERE s.tenant_id = $1 AND s.id = ANY ($2::uuid[])

-- name: state
INSERT INTO rem.statements (tenant_id, id, user_id, run_id, dream, subject_type, subject_id, kind, entity_type, entity_id, name,
                            value, source_keys, confidence, valid_from, valid_to, state, ended_at, ended_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
        CASE WHEN $17 = 'ended' THEN clock_timestamp() END, CASE WHEN $17 = 'ended' THEN $4::uuid END)

-- name: state_sources
INSERT INTO rem.statement_sources (tenant_id, statement_id, source_type, source_id)
SELECT $1, $2, s.type, s.id FROM unnest($3::text[], $4::uuid[]) AS s (type, id)
ON CONFLICT DO NOTHING

-- name: project
SELECT rem.rem_dream_project($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: mark_seen
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_at, seen_index)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_at = excluded.seen_at, seen_index = excluded.seen_index
WHERE (p.seen_at, p.seen_index) IS DISTINCT FROM (excluded.seen_at, excluded.seen_index)

-- name: mark_session_seen
-- Whoever erases the session waits, and takes the mark along.
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_index)
SELECT s.tenant_id, $2, $3, $4, s.id, $6 FROM rem.sessions s WHERE s.tenant_id = $1 AND s.id = $5 FOR KEY SHARE
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_index = excluded.seen_index
WHERE p.seen_index IS DISTINCT FROM excluded.seen_index

-- name: forget_subject
DELETE FROM rem.dream_progress p WHERE p.tenant_id = $1 AND p.dream = $2 AND p.source_id = $3

-- name: mark_seen_in_version
-- The version that was read, unless the dream's own edges have brought it to the one that is stored now.
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_at)
SELECT r.tenant_id, $2, $3, $4, r.id, $6 FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $5 FOR KEY SHARE
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_at = excluded.seen_at
WHERE p.seen_at IS DISTINCT FROM (SELECT r.updated_at FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $5)

-- name: mark_seen_as_stored
-- The version that is stored now, which may have the dream's own edges.
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_at)
SELECT r.tenant_id, $2, $3, $4, r.id, r.updated_at FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $5 FOR KEY SHARE
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_at = excluded.seen_at
WHERE p.seen_at IS DISTINCT FROM excluded.seen_at

-- name: forget_progress
DELETE FROM rem.dream_progress p
WHERE p.tenant_id = $1 AND p.user_id IS NOT DISTINCT FROM $2 AND p.dream = ANY ($3::text[])

-- name: new_sessions
-- Conversations with messages that a dream has not seen, the oldest first: their id, and the last message that it saw.
SELECT s.id, s.key, coalesce(p.seen_index, -1) AS seen_index, last.message_index AS last_index
FROM rem.sessions s
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (s.tenant_id, s.id, $3)
CROSS JOIN LATERAL (
  SELECT m.message_index FROM rem.messages m
  WHERE (m.tenant_id, m.user_id, m.session_id) = (s.tenant_id, s.user_id, s.id) AND m.deleted_at IS NULL
  ORDER BY m.message_index DESC LIMIT 1) last
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.deleted_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now())
  AND last.message_index > coalesce(p.seen_index, -1)
ORDER BY s.created_at, s.id LIMIT $4

-- name: new_rows
-- The owner's own rows of a type that a dream has not seen in this version, the oldest first.
SELECT to_json(r.*) FROM rem.{table} r
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (r.tenant_id, r.id, $3)
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now()) AND p.seen_at IS DISTINCT FROM r.updated_at
ORDER BY r.created_at, r.id LIMIT $4

-- name: session_messages
-- What was said from an index on. Tools' words are not what people said, nor is what REM quoted of its memory.
SELECT m.id, m.key, m.message_index, m.role, m.content, m.metadata, m.created_at FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index >= $4 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now()) AND m.role IN ('user', 'assistant') AND m.content ~ '\S'
  AND (m.metadata -> 'searchable') IS DISTINCT FROM 'false' AND m.model IS DISTINCT FROM 'rem:local'
ORDER BY m.message_index LIMIT $5

-- name: statements_of_subject
-- What a dream says of a subject by now, for those that go on from there.
SELECT s.id, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.valid_from, s.valid_to,
       ARRAY(SELECT x.source_id FROM rem.statement_sources x
             WHERE x.tenant_id = s.tenant_id AND x.statement_id = s.id) AS source_ids
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.subject_id = $4 AND s.state = 'live'
ORDER BY s.valid_from, s.stated_at

-- name: owners
-- Everyone who has memories of their own, and the tenants that share some; not who talked without saying who they are.
SELECT DISTINCT o.tenant_id, o.user_id FROM (
  SELECT s.tenant_id, s.user_id FROM rem.sessions s WHERE s.deleted_at IS NULL
  UNION SELECT r.tenant_id, r.user_id FROM rem.resources r WHERE r.deleted_at IS NULL
  UNION SELECT f.tenant_id, f.user_id FROM rem.files f WHERE f.deleted_at IS NULL
  UNION SELECT s.tenant_id, s.user_id FROM rem.statements s) o
WHERE ($1::text IS NULL OR o.tenant_id = $1) AND (o.user_id IS NULL OR o.user_id NOT LIKE 'anon:%')
ORDER BY o.tenant_id, o.user_id

-- name: undo
-- Takes back what a run said, and lets stand again what it ended, unless something newer has taken its place; which rows
-- are touched by it. An edge with an end was contradicted: one of its kind holds at a time.
WITH taken AS (
  DELETE FROM rem.statements s WHERE s.tenant_id = $1 AND s.run_id = $2 AND s.state <> 'refused'
  RETURNING s.entity_type, s.entity_id, s.kind, s.name,
    ARRAY(SELECT jsonb_object_keys(CASE s.kind WHEN 'row' THEN s.value ELSE '{}' END)) AS filled),
reopened AS (
  UPDATE rem.statements s SET state = 'live', ended_at = NULL, ended_by = NULL, valid_to = NULL
  WHERE s.tenant_id = $1 AND s.ended_by = $2 AND s.run_id <> $2 AND s.state = 'ended' AND NOT EXISTS (
    SELECT FROM rem.statements o
    WHERE o.tenant_id = s.tenant_id AND o.entity_type = s.entity_type AND o.entity_id = s.entity_id AND o.kind = s.kind
      AND o.state = 'live' AND o.run_id <> $2
      AND CASE WHEN s.kind = 'edge' AND s.valid_to IS NOT NULL THEN o.value ->> 'rel_type' = s.value ->> 'rel_type'
          -- What several subjects speak for together has one statement from each.
          ELSE o.name = s.name AND o.subject_id = s.subject_id END)
  RETURNING s.entity_type, s.entity_id, s.kind, s.name, s.dream, s.subject_type, s.subject_id),
-- A text may have changed since; what it says now is dreamt on again. What was said in a conversation stays as it was.
again AS (
  DELETE FROM rem.dream_progress p USING reopened r
  WHERE p.tenant_id = $1 AND p.source_id = r.subject_id AND p.dream = r.dream AND r.subject_type <> 'sessions')
SELECT entity_type, entity_id, kind, name, filled, true AS is_taken FROM taken
UNION ALL SELECT entity_type, entity_id, kind, name, '{}', false FROM reopened
-- Fields before the rows that they are of.
ORDER BY 3

-- name: touched_by_run
SELECT DISTINCT s.entity_type, s.entity_id FROM rem.statements s
WHERE s.tenant_id = $1 AND (s.run_id = $2 OR s.ended_by = $2) AND s.state <> 'refused'

-- name: set_field
SELECT rem.rem_dream_set_field($1, $2, $3, $4, (
  SELECT s.value FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_type = $2 AND s.entity_id = $3 AND s.kind = 'field' AND s.name = $4 AND s.state = 'live'
  ORDER BY s.stated_at DESC LIMIT 1))

-- name: project_row
-- With the columns that the statements filled which are gone now.
SELECT rem.rem_dream_project_row($1, $2, $3, $4)

-- name: mark_undone
UPDATE rem.dream_runs SET state = 'undone' WHERE tenant_id = $1 AND id = $2

-- name: statements_about
-- What was said of the rows that answer to a key, the newest valid first; with a time, what was believed then.
SELECT s.id, s.run_id, s.dream, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.source_keys, s.confidence,
       s.valid_from, s.valid_to, s.state, s.stated_at, s.ended_at,
       coalesce(rem.rem_record(s.entity_type, s.tenant_id, s.entity_id) ->> 'key',
                CASE s.kind WHEN 'row' THEN s.name ELSE s.entity_id::text END) AS key
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.state <> 'refused'
  AND ($3::uuid[] IS NULL OR s.entity_id = ANY ($3))
  AND CASE WHEN $4::timestamptz IS NULL THEN true
      ELSE coalesce(s.valid_from, s.stated_at) <= $4 AND coalesce(s.valid_to, s.ended_at, 'infinity') > $4 END
ORDER BY (s.state = 'live') DESC, coalesce(s.valid_from, s.stated_at) DESC, s.stated_at DESC, s.id LIMIT $5

-- name: has_statement
SELECT EXISTS (SELECT FROM rem.statements s WHERE s.tenant_id = $1 AND s.entity_id = $2 AND s.state = 'live')
