-- Queries of the ledger and of dream runs, always for one owner. A dream marks each subject that it has read in dream_progress.

-- name: try_lock_owner
-- Lock the owner for dreaming until this connection closes. Return false if another connection holds the lock.
SELECT pg_try_advisory_lock(7236963, hashtext($1 || ' ' || coalesce($2, '')))

-- name: lock_owner
-- Wait for the same lock.
SELECT pg_advisory_lock(7236963, hashtext($1 || ' ' || coalesce($2, '')))

-- name: begin_run
INSERT INTO rem.dream_runs (tenant_id, user_id, dreams, model) VALUES ($1, $2, $3, $4) RETURNING id

-- name: end_run
UPDATE rem.dream_runs SET state = $3, counts = $4, error = $5, ended_at = clock_timestamp()
WHERE tenant_id = $1 AND id = $2

-- name: fail_abandoned_runs
-- Only the holder of the owner's lock dreams for it: a run that is still `running` was killed.
UPDATE rem.dream_runs SET state = 'failed', error = 'The process ended before the run did.', ended_at = clock_timestamp()
WHERE tenant_id = $1 AND user_id IS NOT DISTINCT FROM $2 AND state = 'running' AND id <> $3

-- name: delete_empty_run
-- Delete a run without statements.
DELETE FROM rem.dream_runs r WHERE r.tenant_id = $1 AND r.id = $2
  AND NOT EXISTS (SELECT FROM rem.statements s WHERE s.tenant_id = r.tenant_id AND (s.run_id = r.id OR s.ended_by = r.id))

-- name: runs
SELECT r.id, r.user_id, r.dreams, r.model, r.state, r.counts, r.error, r.started_at, r.ended_at
FROM rem.dream_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2
ORDER BY r.started_at DESC LIMIT $3

-- name: run
SELECT r.id, r.user_id, r.dreams, r.model, r.state, r.counts, r.error, r.started_at, r.ended_at
FROM rem.dream_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.id = $3

-- name: lock_subject
-- Before anything else: whoever deletes a session locks it before its messages.
SELECT FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $2 AND r.deleted_at IS NULL FOR NO KEY UPDATE

-- name: lock_sources
-- Lock the sources that still exist. Whoever deletes one waits until the statement is stored, and deletes it along.
SELECT r.id, r.expires_at FROM rem.{table} r
WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL) AND r.id = ANY ($3::uuid[])
  AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
ORDER BY r.id FOR SHARE

-- name: detect_edits
-- Mark statements as refused whose rows, edges or fields the owner has changed.
SELECT rem.rem_dream_detect_edits($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: detect_edits_of_statements
-- The same for the rows that some statements are about, and for some other rows.
SELECT rem.rem_dream_detect_edits($1, e.type, e.id) FROM (
  SELECT e.type, e.id FROM unnest($3::text[], $4::uuid[]) AS e (type, id)
  UNION
  SELECT s.entity_type, s.entity_id FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.id = ANY ($5::uuid[]) AND s.state = 'live'
  ORDER BY 1, 2) e

-- name: statement_ids_of_subject
-- Live statements of a dream about a subject; $5 is the type of the subject, or NULL.
SELECT s.id FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.subject_id = $4 AND s.state = 'live'
  AND ($5::text IS NULL OR s.subject_type = $5)

-- name: live_statements
-- Those of some statements that are live, oldest first.
SELECT s.id, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.confidence, s.valid_from, s.valid_to,
       ARRAY(SELECT x.source_id FROM rem.statement_sources x
             WHERE x.tenant_id = s.tenant_id AND x.statement_id = s.id) AS source_ids
FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.id = ANY ($3::uuid[]) AND s.state = 'live'
ORDER BY s.stated_at, s.id

-- name: refused_by_sources
-- Numbers of the claims whose owner refused a row with mostly the same sources.
WITH claims AS (SELECT c.number, c.source_id, count(*) OVER (PARTITION BY c.number) AS sources
                FROM unnest($4::integer[], $5::uuid[]) AS c (number, source_id))
SELECT DISTINCT c.number FROM claims c
JOIN rem.statement_sources x ON x.tenant_id = $1 AND x.source_id = c.source_id
JOIN rem.statements s ON (s.tenant_id, s.id) = (x.tenant_id, x.statement_id)
WHERE s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.kind = 'row' AND s.state = 'refused'
GROUP BY c.number, s.tenant_id, s.id
HAVING count(*) * 2 >= least(min(c.sources), (
  SELECT count(*) FROM rem.statement_sources y WHERE y.tenant_id = s.tenant_id AND y.statement_id = s.id))

-- name: refused_names
-- Names under which the owner refused a row.
SELECT DISTINCT s.name FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = $3 AND s.kind = 'row' AND s.state = 'refused'
  AND s.name = ANY ($4::text[])

-- name: refused_parts
-- Numbers of the edges, whatever their relation, and of the fields that the owner refused.
SELECT c.number FROM unnest($3::integer[], $4::text[], $5::uuid[], $6::text[], $7::text[]) AS c (number, type, id, kind, name)
WHERE EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_type = c.type AND s.entity_id = c.id AND s.kind = c.kind AND s.state = 'refused' AND s.dream = $2
    AND (s.name = c.name
         OR (c.kind = 'edge' AND substr(s.name, strpos(s.name, ' ') + 1) = substr(c.name, strpos(c.name, ' ') + 1))))

-- name: keys_of_labels
SELECT l.label, rem.rem_key(l.label) AS key FROM unnest($1::text[]) AS l (label)

-- name: rows_with_keys
-- The owner's rows with some keys: live ones, deleted ones, and those that a dream wrote.
SELECT r.key, r.id, r.origin, r.deleted_at IS NOT NULL AS is_deleted FROM rem.{table} r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.key = ANY ($3::text[])

-- name: named_rows
-- Rows that live statements about any subject are about, by name.
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
-- Whether the same edge about a subject was stored before and has ended, and a newer one is live. Otherwise it may be true again.
SELECT EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.dream = $2 AND s.subject_id = $3 AND s.kind = 'edge' AND s.state = 'ended' AND s.entity_type = $4
    AND s.entity_id = $5 AND s.name = $6 AND s.value = $7 AND s.valid_from IS NOT DISTINCT FROM $8)
AND EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_type = $4 AND s.entity_id = $5 AND s.kind = 'edge' AND s.state = 'live'
    AND s.value ->> 'rel_type' = $9 AND s.valid_from > $8)

-- name: end_statements
-- End statements, each with the time at which it stopped being true, if that is known.
UPDATE rem.statements s SET state = 'ended', ended_at = clock_timestamp(), ended_by = $4,
  valid_to = CASE WHEN e.at IS NULL THEN s.valid_to ELSE greatest(e.at, s.valid_from) END
FROM unnest($2::uuid[], $3::timestamptz[]) AS e (id, at)
WHERE s.tenant_id = $1 AND s.id = e.id

-- name: insert_statements
INSERT INTO rem.statements (tenant_id, user_id, run_id, dream, subject_type, subject_id, id, kind, entity_type, entity_id, name,
                            value, source_keys, confidence, valid_from, valid_to, state, ended_at, ended_by)
SELECT $1, $2, $3::uuid, $4, $5, $6::uuid, n.id, n.kind, n.entity_type, n.entity_id, n.name, n.value, n.source_keys, n.confidence, n.valid_from,
       n.valid_to, n.state, CASE n.state WHEN 'ended' THEN clock_timestamp() END, CASE n.state WHEN 'ended' THEN $3::uuid END
FROM jsonb_to_recordset($7) AS n (id uuid, kind text, entity_type text, entity_id uuid, name text, value jsonb, source_keys text[],
  confidence double precision, valid_from timestamptz, valid_to timestamptz, state text)

-- name: insert_sources
INSERT INTO rem.statement_sources (tenant_id, statement_id, source_type, source_id)
SELECT $1, n.statement_id, n.type, n.id FROM unnest($2::uuid[], $3::text[], $4::uuid[]) AS n (statement_id, type, id)
ON CONFLICT DO NOTHING

-- name: project
-- Write the live statements about rows into the rows.
SELECT rem.rem_dream_project($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: project_edges
-- The same for rows of which only edges have changed.
SELECT rem.rem_dream_project_edges($1, e.type, e.id) FROM unnest($2::text[], $3::uuid[]) AS e (type, id)

-- name: project_row
-- The same for one row without its fields and edges; $4 are the columns that deleted statements had filled.
SELECT rem.rem_dream_project_row($1, $2, $3, $4)

-- name: set_field
-- Write the latest live statement about a field into its row.
SELECT rem.rem_dream_set_field($1, $2, $3, $4, (
  SELECT s.value FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.entity_type = $2 AND s.entity_id = $3 AND s.kind = 'field' AND s.name = $4 AND s.state = 'live'
  ORDER BY s.stated_at DESC LIMIT 1))

-- name: mark_seen
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_at, seen_index)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_at = excluded.seen_at, seen_index = excluded.seen_index
WHERE (p.seen_at, p.seen_index) IS DISTINCT FROM (excluded.seen_at, excluded.seen_index)

-- name: mark_session_seen
-- Mark a session as seen up to message $6, and the messages from $7 to $8 as read again. Whoever erases the session waits, and
-- deletes the mark along.
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_index)
SELECT s.tenant_id, $2, $3, $4, s.id, $6 FROM rem.sessions s WHERE s.tenant_id = $1 AND s.id = $5 FOR KEY SHARE
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE
SET seen_index = excluded.seen_index, again = p.again - int4multirange(int4range($7::integer, $8::integer, '[]'))
WHERE p.seen_index IS DISTINCT FROM excluded.seen_index OR p.again && int4range($7::integer, $8::integer, '[]')

-- name: mark_version_seen
-- Mark a row as seen in the version $6 or, without one, in the stored version, which may have the dream's own edges. A mark on
-- the stored version stays: the dream's own edges have moved it there.
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_at)
SELECT r.tenant_id, $2, $3, $4, r.id, coalesce($6, r.updated_at) FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $5 FOR KEY SHARE
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_at = excluded.seen_at
WHERE p.seen_at IS DISTINCT FROM (SELECT r.updated_at FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $5)

-- name: forget_progress_of_subject
DELETE FROM rem.dream_progress p WHERE p.tenant_id = $1 AND p.dream = $2 AND p.source_id = $3

-- name: forget_progress
DELETE FROM rem.dream_progress p
WHERE p.tenant_id = $1 AND p.user_id IS NOT DISTINCT FROM $2 AND p.dream = ANY ($3::text[])

-- name: forget_outdated_progress
-- Forget the progress of those dreams ($3) that read the owner's messages by other rules ($5) than now, and remember the rules under the
-- id $4. An owner for whom nothing was derived yet has no progress to forget.
WITH current AS (
  SELECT p.dream FROM rem.dream_progress p
  WHERE p.tenant_id = $1 AND p.source_id = $4::uuid AND p.dream = ANY ($3::text[]) AND p.seen_index = $5::integer),
outdated AS (SELECT d.name FROM unnest($3::text[]) AS d (name) WHERE d.name NOT IN (SELECT c.dream FROM current c)),
forgotten AS (
  DELETE FROM rem.dream_progress p USING outdated o
  WHERE p.tenant_id = $1 AND p.user_id IS NOT DISTINCT FROM $2 AND p.dream = o.name AND p.source_id <> $4)
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_index)
SELECT $1, $2, o.name, 'sessions', $4, $5 FROM outdated o
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_index = excluded.seen_index

-- name: rescan_range
-- Let a dream read the messages from $4 to $5 of a session again.
UPDATE rem.dream_progress p SET again = p.again + int4multirange(int4range($4::integer, $5::integer, '[]'))
WHERE p.tenant_id = $1 AND p.dream = $2 AND p.source_id = $3

-- name: pending_sessions
-- Sessions with messages that a dream has not read or has to read again, oldest first.
SELECT s.id, s.key, coalesce(p.seen_index, -1) AS seen_index, last.message_index AS last_index,
       ARRAY(SELECT ARRAY[lower(r), upper(r) - 1] FROM unnest(p.again) AS r ORDER BY r) AS rescan_ranges
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
-- The owner's rows of a type that a dream has not seen in their current version, oldest first.
SELECT to_json(r.*) FROM rem.{table} r
LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (r.tenant_id, r.id, $3)
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now()) AND p.seen_at IS DISTINCT FROM r.updated_at
ORDER BY r.created_at, r.id LIMIT $4

-- name: owners
-- All users with memories, and the tenants with shared ones; not anonymous users.
SELECT DISTINCT o.tenant_id, o.user_id FROM (
  SELECT s.tenant_id, s.user_id FROM rem.sessions s WHERE s.deleted_at IS NULL
  UNION SELECT r.tenant_id, r.user_id FROM rem.resources r WHERE r.deleted_at IS NULL
  UNION SELECT f.tenant_id, f.user_id FROM rem.files f WHERE f.deleted_at IS NULL
  UNION SELECT s.tenant_id, s.user_id FROM rem.statements s) o
WHERE ($1::text IS NULL OR o.tenant_id = $1) AND (o.user_id IS NULL OR o.user_id NOT LIKE 'anon:%')
ORDER BY o.tenant_id, o.user_id

-- name: undo
-- Delete the statements of a run, and reopen those that it ended unless something newer has replaced them. Return what changed.
-- An edge with an end was contradicted: only one of its type is live at a time.
WITH deleted AS (
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
          -- A named row has one statement from each subject.
          ELSE o.name = s.name AND o.subject_id = s.subject_id END)
  RETURNING s.entity_type, s.entity_id, s.kind, s.name, s.dream, s.subject_type, s.subject_id),
-- A text may have changed since, so dreams read it again. The messages of a session do not change.
rescanned AS (
  DELETE FROM rem.dream_progress p USING reopened r
  WHERE p.tenant_id = $1 AND p.source_id = r.subject_id AND p.dream = r.dream AND r.subject_type <> 'sessions')
SELECT entity_type, entity_id, kind, name, filled, true AS is_deleted FROM deleted
UNION ALL SELECT entity_type, entity_id, kind, name, '{}', false FROM reopened
-- The fields of a row before the row.
ORDER BY 3

-- name: changes_of_run
-- Statements that a run ($3) stored or ended, without links between texts, newest first. `content` is the text of the row.
SELECT s.dream, s.kind, s.entity_id, s.name, s.value, coalesce(s.valid_from, s.stated_at) AS at, s.state = 'ended' AS is_ended,
       coalesce((w.record ->> 'created_at')::timestamptz >= d.started_at, false) AS is_new, w.record ->> 'deleted_at' IS NOT NULL OR w.record IS NULL AS is_gone,
       coalesce(w.record ->> 'name', s.name) AS row_name,
       coalesce(nullif(w.record ->> 'content', ''), w.record ->> 'summary', s.value ->> 'summary', '') AS content
FROM rem.statements s
JOIN rem.dream_runs d ON (d.tenant_id, d.id) = ($1, $3)
CROSS JOIN LATERAL (SELECT rem.rem_record(s.entity_type, s.tenant_id, s.entity_id) AS record) w
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2
  AND (s.run_id = $3 AND s.state = 'live' OR s.ended_by = $3 AND s.run_id <> $3 AND s.state = 'ended')
  AND (s.kind = 'row' AND s.entity_type <> 'users' OR s.kind = 'field' AND s.entity_type = 'users'
       OR s.kind = 'edge' AND s.dream = 'entities' AND s.value ->> 'rel_type' <> 'mentions')
ORDER BY coalesce(s.valid_from, s.stated_at) DESC, s.stated_at DESC, s.id LIMIT $4

-- name: entities_of_run
-- Rows that statements which a run stored or ended are about.
SELECT DISTINCT s.entity_type, s.entity_id FROM rem.statements s
WHERE s.tenant_id = $1 AND (s.run_id = $2 OR s.ended_by = $2) AND s.state <> 'refused'

-- name: mark_undone
UPDATE rem.dream_runs SET state = 'undone' WHERE tenant_id = $1 AND id = $2

-- name: statement_condition
-- Statements about some rows ($3) and edges to them (their keys are $5), or all; with a time ($4), those that were valid then.
s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.state <> 'refused'
  AND ($3::uuid[] IS NULL OR s.entity_id = ANY ($3)
       OR (s.kind = 'edge' AND rem.rem_key(s.value ->> 'dst') = ANY ($5::text[]) AND s.id IN (
         SELECT x.statement_id FROM rem.statement_sources x WHERE x.tenant_id = $1 AND x.source_id = ANY ($3))))
  AND CASE WHEN $4::timestamptz IS NULL THEN true
      ELSE coalesce(s.valid_from, s.stated_at) <= $4 AND coalesce(s.valid_to, s.ended_at, 'infinity') > $4 END

-- name: count_statements
-- Count statements, and the links that were left out.
SELECT count(*) FILTER (WHERE $6::boolean OR s.dream <> 'affinity') AS statements, count(*) FILTER (WHERE s.dream = 'affinity') AS links
FROM rem.statements s WHERE {condition}

-- name: statements_about
-- Statements, live ones first, then newest first. A live statement is only evidence if its row does not exist.
SELECT s.id, s.run_id, s.dream, s.kind, s.entity_type, s.entity_id, s.name, s.value, s.source_keys, s.confidence,
       s.valid_from, s.valid_to, s.state, s.stated_at, s.ended_at,
       coalesce(rem.rem_record(s.entity_type, s.tenant_id, s.entity_id) ->> 'key',
                CASE s.kind WHEN 'row' THEN s.name ELSE s.entity_id::text END) AS key,
       s.state = 'live' AND NOT rem.rem_is_live(s.tenant_id, s.entity_type, s.entity_id) AS is_evidence
FROM rem.statements s
WHERE {condition} AND ($6::boolean OR s.dream <> 'affinity')
ORDER BY (s.state = 'live') DESC, coalesce(s.valid_from, s.stated_at) DESC, s.stated_at DESC, s.id LIMIT $7

-- name: has_statement
-- Whether a live statement stands for a row itself, and not only for its fields and edges.
SELECT EXISTS (
  SELECT FROM rem.statements s WHERE s.tenant_id = $1 AND s.entity_id = $2 AND s.kind = 'row' AND s.state = 'live')
