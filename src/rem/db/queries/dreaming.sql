-- name: try_lock_owner
-- One dream of an owner at a time, on this connection until it closes.
SELECT pg_try_advisory_lock(7236963, hashtext($1 || ' ' || coalesce($2, '')))

-- name: lock_owner
SELECT pg_advisory_lock(7236963, hashtext($1 || ' ' || coalesce($2, '')))

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
SELECT rem.rem_dream_detect_edits($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: notice_of_subject
-- What the owner changed of what a dream said of a subject, and of some other rows.
SELECT rem.rem_dream_detect_edits($1, e.type, e.id) FROM (
  SELECT e.type, e.id FROM unnest($3::text[], $4::uuid[]) AS e (type, id)
  UNION
  SELECT s.entity_type, s.entity_id FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $5 AND s.subject_type = $6 AND s.subject_id = $7
    AND s.state = 'live'
  ORDER BY 1, 2) e

-- name: notice_among
-- The same of what some statements say.
SELECT rem.rem_dream_detect_edits($1, e.type, e.id) FROM (
  SELECT e.type, e.id FROM unnest($3::text[], $4::uuid[]) AS e (type, id)
  UNION
  SELECT s.entity_type, s.entity_id FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.id = ANY ($5::uuid[]) AND s.state = 'live'
  ORDER BY 1, 2) e

-- name: live_of_subject
SELECT s.id, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.confidence, s.valid_from, s.valid_to,
       ARRAY(SELECT x.source_id FROM rem.statement_sources x
             WHERE x.tenant_id = s.tenant_id AND x.statement_id = s.id) AS source_ids
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.subject_type = $4 AND s.subject_id = $5
  AND s.state = 'live'
ORDER BY s.stated_at, s.id

-- name: live_among
-- Those of some statements that stand.
SELECT s.id, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.confidence, s.valid_from, s.valid_to,
       ARRAY(SELECT x.source_id FROM rem.statement_sources x
             WHERE x.tenant_id = s.tenant_id AND x.statement_id = s.id) AS source_ids
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.id = ANY ($3::uuid[]) AND s.state = 'live'
ORDER BY s.stated_at, s.id

-- name: refused_by_sources
-- Of which claims the owner took back a row that was made from mostly the same sources.
WITH asked AS (SELECT a.number, a.id, count(*) OVER (PARTITION BY a.number) AS sources
               FROM unnest($4::integer[], $5::uuid[]) AS a (number, id))
SELECT DISTINCT a.number FROM asked a
JOIN rem.statement_sources x ON x.tenant_id = $1 AND x.source_id = a.id
JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id)
WHERE s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.kind = 'row' AND s.state = 'refused'
GROUP BY a.number, s.tenant_id, s.id
HAVING count(*) * 2 >= least(min(a.sources), (
  SELECT count(*) FROM rem.statement_sources y WHERE y.tenant_id = s.tenant_id AND y.statement_id = s.id))

-- name: refused_names
-- The names under which the owner took back a row.
SELECT DISTINCT s.name FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.kind = 'row' AND s.state = 'refused'
  AND s.name = ANY ($4::text[])

-- name: refused_parts
-- Which edges, whatever their types, and which fields the owner took back.
SELECT a.number FROM unnest($3::integer[], $4::text[], $5::uuid[], $6::text[], $7::text[]) AS a (number, type, id, kind, name)
WHERE EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_type = a.type AND s.entity_id = a.id AND s.kind = a.kind AND s.state = 'refused' AND s.dream = $2
    AND (s.name = a.name
         OR (a.kind = 'edge' AND substr(s.name, strpos(s.name, ' ') + 1) = substr(a.name, strpos(a.name, ' ') + 1))))

-- name: keys_of
SELECT l.label, rem.rem_key(l.label) AS key FROM unnest($1::text[]) AS l (label)

-- name: holders_of_keys
-- Who has keys of the owner's own: live rows, deleted ones, and what a dream has named so.
SELECT r.key, r.id, r.origin, r.deleted_at IS NOT NULL AS is_deleted FROM rem.{table} r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.key = ANY ($3::text[])

-- name: named_entities
-- The rows that statements of other subjects speak for under some names.
SELECT DISTINCT ON (s.name) s.name, s.entity_id FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.kind = 'row' AND s.state = 'live'
  AND s.name = ANY ($4::text[]) AND s.entity_type = $5
ORDER BY s.name, s.stated_at

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
UPDATE rem.statements s SET state = 'ended', ended_at = clock_timestamp(), ended_by = $4,
  valid_to = CASE WHEN e.at IS NULL THEN s.valid_to ELSE greatest(e.at, s.valid_from) END
FROM unnest($2::uuid[], $3::timestamptz[]) AS e (id, at)
WHERE s.tenant_id = $1 AND s.id = e.id

-- name: state
INSERT INTO rem.statements (tenant_id, user_id, run_id, dream, subject_type, subject_id, id, kind, entity_type, entity_id, name,
                            value, source_keys, confidence, valid_from, valid_to, state, ended_at, ended_by)
SELECT $1, $2, $3::uuid, $4, $5, $6::uuid, n.id, n.kind, n.entity_type, n.entity_id, n.name, n.value, n.source_keys, n.confidence, n.valid_from,
       n.valid_to, n.state, CASE n.state WHEN 'ended' THEN clock_timestamp() END, CASE n.state WHEN 'ended' THEN $3::uuid END
FROM jsonb_to_recordset($7) AS n (id uuid, kind text, entity_type text, entity_id uuid, name text, value jsonb, source_keys text[],
  confidence double precision, valid_from timestamptz, valid_to timestamptz, state text)

-- name: state_sources
INSERT INTO rem.statement_sources (tenant_id, statement_id, source_type, source_id)
SELECT $1, n.statement_id, n.type, n.id FROM unnest($2::uuid[], $3::text[], $4::uuid[]) AS n (statement_id, type, id)
ON CONFLICT DO NOTHING

-- name: project
SELECT rem.rem_dream_project($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: project_edges
-- The same of rows of which only edges are said otherwise.
SELECT rem.rem_dream_project_edges($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: mark_seen
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_at, seen_index)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_at = excluded.seen_at, seen_index = excluded.seen_index
WHERE (p.seen_at, p.seen_index) IS DISTINCT FROM (excluded.seen_at, excluded.seen_index)

-- name: mark_session_seen
-- Up to a message, and the messages from $7 to $8 as they are now. Whoever erases the session waits, and takes the mark along.
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_index)
SELECT s.tenant_id, $2, $3, $4, s.id, $6 FROM rem.sessions s WHERE s.tenant_id = $1 AND s.id = $5 FOR KEY SHARE
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE
SET seen_index = excluded.seen_index, again = p.again - int4multirange(int4range($7::integer, $8::integer, '[]'))
WHERE p.seen_index IS DISTINCT FROM excluded.seen_index OR p.again && int4range($7::integer, $8::integer, '[]')

-- name: forget_subject
DELETE FROM rem.dream_progress p WHERE p.tenant_id = $1 AND p.dream = $2 AND p.source_id = $3

-- name: look_at_stretch_again
UPDATE rem.dream_progress p SET again = p.again + int4multirange(int4range($4::integer, $5::integer, '[]'))
WHERE p.tenant_id = $1 AND p.dream = $2 AND p.source_id = $3

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
-- Conversations with messages that a dream has not seen or is to look at again, the oldest first: their id, the last message
-- that it saw, the last one that there is, and from where to where it is to look again.
SELECT s.id, s.key, coalesce(p.seen_index, -1) AS seen_index, last.message_index AS last_index,
       ARRAY(SELECT ARRAY[lower(r), upper(r) - 1] FROM unnest(p.again) AS r ORDER BY r) AS again
FROM rem.sessions s
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (s.tenant_id, s.id, $3)
CROSS JOIN LATERAL (
  SELECT m.message_index FROM rem.messages m
  WHERE (m.tenant_id, m.user_id, m.session_id) = (s.tenant_id, s.user_id, s.id) AND m.deleted_at IS NULL
  ORDER BY m.message_index DESC LIMIT 1) last
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.deleted_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now())
  AND (last.message_index > coalesce(p.seen_index, -1) OR NOT isempty(p.again))
ORDER BY s.created_at, s.id LIMIT $4

-- name: new_rows
-- The owner's own rows of a type that a dream has not seen in this version, the oldest first.
SELECT to_json(r.*) FROM rem.{table} r
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (r.tenant_id, r.id, $3)
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now()) AND p.seen_at IS DISTINCT FROM r.updated_at
ORDER BY r.created_at, r.id LIMIT $4

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
-- What was said of the rows that answer to a key, the newest valid first; with a time, what was believed then. What speaks
-- for a row that is not there, because it is not enough, is only evidence.
SELECT s.id, s.run_id, s.dream, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.source_keys, s.confidence,
       s.valid_from, s.valid_to, s.state, s.stated_at, s.ended_at,
       coalesce(rem.rem_record(s.entity_type, s.tenant_id, s.entity_id) ->> 'key',
                CASE s.kind WHEN 'row' THEN s.name ELSE s.entity_id::text END) AS key,
       s.state = 'live' AND NOT rem.rem_is_live(s.tenant_id, s.entity_type, s.entity_id) AS is_evidence
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.state <> 'refused'
  AND ($3::uuid[] IS NULL OR s.entity_id = ANY ($3))
  AND CASE WHEN $4::timestamptz IS NULL THEN true
      ELSE coalesce(s.valid_from, s.stated_at) <= $4 AND coalesce(s.valid_to, s.ended_at, 'infinity') > $4 END
ORDER BY (s.state = 'live') DESC, coalesce(s.valid_from, s.stated_at) DESC, s.stated_at DESC, s.id LIMIT $5

-- name: has_statement
-- Whether a row is said by a dream. What else is said of one, such as whom it mentions, does not make it the dream's.
SELECT EXISTS (
  SELECT FROM rem.statements s WHERE s.tenant_id = $1 AND s.entity_id = $2 AND s.kind = 'row' AND s.state = 'live')

