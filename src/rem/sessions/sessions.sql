-- name: begin_turn
-- Store a user message, and return [state, message index, history before it].
SELECT rem.rem_begin_turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: append
-- Store messages at the end of a session, and return [state, index of the first message].
SELECT rem.rem_append_messages($1, $2, $3, $4, $5, $6, $7, $8)

-- name: seed_session
-- Create a session with messages, unless it exists, and return its state.
SELECT rem.rem_seed_session($1, $2, $3, $4, $5, $6, $7, $8)

-- name: open_session
-- Create a session without messages, unless it exists, and return its state.
SELECT rem.rem_open_session($1, $2, $3, NULL, NULL, NULL, 0, 0, true)

-- name: find_card
-- Return the cards of the newest message of a session that showed the card $4, its time, and whether it was answered.
SELECT m.metadata -> 'cards' AS cards, m.created_at, EXISTS (
    SELECT FROM rem.messages a
    WHERE a.tenant_id = m.tenant_id AND a.user_id = m.user_id AND a.session_id = m.session_id AND a.deleted_at IS NULL
      AND a.message_index > m.message_index
      AND a.metadata @> jsonb_build_object('action_submit', jsonb_build_object('card_id', $4::text))) AS is_answered
FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now())
  AND m.metadata @> jsonb_build_object('cards', jsonb_build_array(jsonb_build_object('id', $4::text)))
ORDER BY m.message_index DESC LIMIT 1

-- name: resolve_name
-- Return the id of the session with a name ($3): the user's session that has it, or else the first derived id ($4) that no other
-- user has. An anonymous caller ($2 is NULL) owns the session whose id it knows.
SELECT coalesce(
  (SELECT s.id FROM rem.sessions s
   WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.key = rem.rem_key($3) AND s.name IS NOT NULL AND s.deleted_at IS NULL
     AND (s.expires_at IS NULL OR s.expires_at > now())),
  (SELECT c.id FROM unnest($4::uuid[]) WITH ORDINALITY AS c (id, attempt)
   WHERE NOT EXISTS (SELECT FROM rem.sessions s WHERE s.tenant_id = $1 AND s.id = c.id
                       AND s.user_id <> coalesce($2, 'anon:' || c.id::text))
   ORDER BY c.attempt LIMIT 1))

-- name: full_texts
-- Return the full texts of messages, without those that have more than $5 tokens.
SELECT m.message_index, m.content, m.token_count, m.id FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index = ANY ($4::integer[])
  AND m.deleted_at IS NULL AND (m.expires_at IS NULL OR m.expires_at > now()) AND coalesce(m.token_count, 0) <= $5

-- name: session_history
-- Return the history for the next turn of a session, or nothing if the user has no such session.
SELECT rem.rem_session_history(s.tenant_id, s.user_id, s.id, 2147483647, $4, $5) FROM rem.sessions s
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = $3 AND s.deleted_at IS NULL
  AND (s.expires_at IS NULL OR s.expires_at > now())

-- name: readable_session
-- Return a session that the user owns or that is shared with the user; with counted totals if $4 is true.
SELECT CASE WHEN $4 THEN rem.rem_session_with_totals(s) ELSE to_jsonb(s) END FROM rem.sessions s
WHERE s.tenant_id = $1 AND s.id = $3 AND s.deleted_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now())
  AND (s.user_id = $2 OR EXISTS (
    SELECT FROM rem.shared_sessions h
    WHERE h.tenant_id = $1 AND h.session_id = s.id AND h.user_id = s.user_id AND h.shared_with_user_id = $2
      AND h.deleted_at IS NULL AND (h.expires_at IS NULL OR h.expires_at > now())))

-- name: messages_after
-- Return up to $5 messages of a session whose index is greater than $4, in order: the first ones that fit into one result. The second
-- column is the number of messages without this limit.
WITH page AS MATERIALIZED (
  SELECT ARRAY(
    SELECT m.id FROM rem.messages m
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index > $4 AND m.deleted_at IS NULL
      AND (m.expires_at IS NULL OR m.expires_at > now())
    ORDER BY m.message_index LIMIT $5) AS ids
)
SELECT to_json(m.*) AS record, cardinality(page.ids) AS found
FROM page CROSS JOIN LATERAL unnest(page.ids[:rem.rem_count_fitting($1, '{messages}', page.ids)]) AS p (id)
JOIN rem.messages m ON m.tenant_id = $1 AND m.id = p.id
ORDER BY m.message_index

-- name: messages_before
-- Return the last $5 messages of a session whose index is less than $4, in order: the last ones that fit into one result. The second
-- column is the number of messages without this limit.
WITH page AS MATERIALIZED (
  SELECT ARRAY(
    SELECT m.id FROM rem.messages m
    WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index < $4 AND m.deleted_at IS NULL
      AND (m.expires_at IS NULL OR m.expires_at > now())
    ORDER BY m.message_index DESC LIMIT $5) AS ids
)
SELECT to_json(m.*) AS record, cardinality(page.ids) AS found
FROM page CROSS JOIN LATERAL unnest(page.ids[:rem.rem_count_fitting($1, '{messages}', page.ids)]) AS p (id)
JOIN rem.messages m ON m.tenant_id = $1 AND m.id = p.id
ORDER BY m.message_index

-- name: own_sessions
-- Return a page of the user's sessions, the most recently written first. Only the sessions of the page are counted.
-- With a text ($5), only those whose name or description has it, and those of a list ($6).
WITH page AS MATERIALIZED (
  SELECT ARRAY(
    SELECT s.id FROM rem.sessions s
    WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.deleted_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now())
      AND ($5::text IS NULL OR strpos(lower(concat_ws(' ', s.name, s.description)), lower($5)) > 0 OR s.id = ANY ($6::uuid[]))
    ORDER BY s.updated_at DESC, s.id LIMIT $3 OFFSET $4) AS ids
)
SELECT rem.rem_session_with_totals(s) FROM page CROSS JOIN LATERAL unnest(page.ids) WITH ORDINALITY AS p (id, place)
JOIN rem.sessions s ON s.tenant_id = $1 AND s.id = p.id
WHERE (SELECT rem.rem_check_rows_fit($1, '{sessions}', page.ids[:$3::integer - 1]) FROM page)
ORDER BY p.place

-- name: shared_sessions
-- Return a page of the sessions that other users share with the user, the most recently shared first.
WITH page AS MATERIALIZED (
  SELECT ARRAY(
    SELECT s.id FROM rem.shared_sessions h
    JOIN rem.sessions s ON (s.tenant_id, s.user_id, s.id) = (h.tenant_id, h.user_id, h.session_id)
    WHERE h.tenant_id = $1 AND h.shared_with_user_id = $2 AND h.deleted_at IS NULL AND s.deleted_at IS NULL
      AND (h.expires_at IS NULL OR h.expires_at > now()) AND (s.expires_at IS NULL OR s.expires_at > now())
    ORDER BY h.created_at DESC, s.id LIMIT $3 OFFSET $4) AS ids
)
SELECT rem.rem_session_with_totals(s) FROM page CROSS JOIN LATERAL unnest(page.ids) WITH ORDINALITY AS p (id, place)
JOIN rem.sessions s ON s.tenant_id = $1 AND s.id = p.id
WHERE (SELECT rem.rem_check_rows_fit($1, '{sessions}', page.ids[:$3::integer - 1]) FROM page)
ORDER BY p.place

-- name: unshare
-- Delete the shares of a session with one user ($4), or with all users if $4 is NULL.
UPDATE rem.shared_sessions h SET deleted_at = clock_timestamp()
WHERE h.tenant_id = $1 AND h.user_id = $2 AND h.session_id = $3 AND h.deleted_at IS NULL
  AND ($4::text IS NULL OR h.shared_with_user_id = $4)
RETURNING h.id

-- name: titles
-- Return a title for each readable session: its name, its description, or the start of its first user message.
SELECT s.id, coalesce(s.name, s.description, f.content, '') AS title, f.id AS message_id
FROM rem.sessions s
LEFT JOIN LATERAL (
    SELECT m.id, rem.rem_head(m.content, $4) AS content FROM rem.messages m
    WHERE m.tenant_id = s.tenant_id AND m.user_id = s.user_id AND m.session_id = s.id AND m.role = 'user' AND m.deleted_at IS NULL
      AND (m.expires_at IS NULL OR m.expires_at > now())
    ORDER BY m.message_index LIMIT 1) f ON s.name IS NULL AND s.description IS NULL
WHERE s.tenant_id = $1 AND s.id = ANY ($3::uuid[]) AND s.deleted_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now())
  AND (s.user_id = $2 OR EXISTS (
    SELECT FROM rem.shared_sessions h
    WHERE h.tenant_id = $1 AND h.session_id = s.id AND h.user_id = s.user_id AND h.shared_with_user_id = $2
      AND h.deleted_at IS NULL AND (h.expires_at IS NULL OR h.expires_at > now())))

-- name: rename
-- Rename a session. An expired session with the same name loses it.
UPDATE rem.sessions s SET name = rem.rem_release_expired_name($1, $2, $4)
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = $3 AND s.deleted_at IS NULL
  AND (s.expires_at IS NULL OR s.expires_at > now())
RETURNING to_json(s.*)

-- name: set_system_prompt
-- Set the system prompt of a session, or remove it.
UPDATE rem.sessions s SET system_prompt = $4
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = $3 AND s.deleted_at IS NULL
  AND (s.expires_at IS NULL OR s.expires_at > now())
RETURNING to_json(s.*)

-- name: delete_messages
-- Delete the messages of a session from index $4 on. The caller must have locked the session.
UPDATE rem.messages m SET deleted_at = clock_timestamp()
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.deleted_at IS NULL AND m.message_index >= $4

-- name: reset_totals
-- Set the totals of a session to 0, which locks it until the end of the transaction.
UPDATE rem.sessions s SET message_count = 0, total_tokens = 0
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = $3 AND s.deleted_at IS NULL
RETURNING s.id

-- name: start_over
-- Leave the stored messages of a session out of its history. Its summary ends there as well, and is empty.
WITH changed AS (
  UPDATE rem.sessions s
  SET settings = s.settings
    || jsonb_build_object('history_start', rem.rem_next_message_index(s.tenant_id, s.user_id, s.id))
  WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = $3 AND s.deleted_at IS NULL
  RETURNING s.tenant_id, s.user_id, s.id, (s.settings ->> 'history_start')::integer AS history_start
), summarized AS (
  INSERT INTO rem.session_summaries AS m (tenant_id, user_id, session_id, last_index)
  SELECT c.tenant_id, c.user_id, c.id, c.history_start - 1 FROM changed c
  ON CONFLICT (tenant_id, session_id) DO UPDATE
  SET last_index = excluded.last_index, summary = '', token_count = 0, kept = '{}', claimed_until = NULL
)
SELECT c.history_start FROM changed c

-- name: flag_message
-- Mark a message as important, or remove the mark.
UPDATE rem.messages m SET metadata = CASE WHEN $5 THEN m.metadata || '{"important": true}' ELSE m.metadata - 'important' END
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index = $4 AND m.deleted_at IS NULL
  AND (m.expires_at IS NULL OR m.expires_at > now())
RETURNING to_json(m.*)

-- name: erase_sessions
-- Erase all sessions of a tenant with their messages, and return their ids.
DELETE FROM rem.sessions s WHERE s.tenant_id = $1 RETURNING s.id

-- name: delete_idle
-- Delete up to $4 of the user's sessions that nobody has written to for $3 days. SKIP LOCKED keeps a session that is being
-- written to.
UPDATE rem.sessions s SET deleted_at = clock_timestamp()
WHERE s.tenant_id = $1 AND s.deleted_at IS NULL AND s.id IN (
  SELECT i.id FROM rem.sessions i
  WHERE i.tenant_id = $1 AND i.user_id = $2 AND i.deleted_at IS NULL AND i.updated_at < now() - make_interval(days => $3)
    AND (i.expires_at IS NULL OR i.expires_at > now())
  ORDER BY i.updated_at LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING s.id

-- name: idle_sessions
-- Return the sessions that `delete_idle` would delete, the longest idle first.
SELECT rem.rem_session_with_totals(p) FROM (
  SELECT s::rem.sessions AS p FROM rem.sessions s
  WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.deleted_at IS NULL AND s.updated_at < now() - make_interval(days => $3)
    AND (s.expires_at IS NULL OR s.expires_at > now())
  ORDER BY s.updated_at, s.id LIMIT $4 OFFSET $5) page

-- name: owners_of_idle_sessions
-- Return the owners of all sessions that nobody has written to for $1 days.
SELECT DISTINCT s.tenant_id, s.user_id FROM rem.sessions s
WHERE s.deleted_at IS NULL AND s.updated_at < now() - make_interval(days => $1)

-- name: copy_messages
-- Copy the messages of a session ($4, $5) up to index $6 into another session of the user ($3).
INSERT INTO rem.messages (tenant_id, user_id, session_id, message_index, role, content, tool_calls, tool_call_id, tool_name,
                          model, token_count, kind, metadata, tags, created_at, updated_at)
SELECT $1, $2, $3, (row_number() OVER (ORDER BY m.message_index) - 1)::integer, m.role, m.content, m.tool_calls,
       m.tool_call_id, m.tool_name, m.model, m.token_count, m.kind, m.metadata, m.tags, m.created_at, m.updated_at
FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $4 AND m.session_id = $5 AND m.deleted_at IS NULL AND m.message_index <= $6
  AND (m.expires_at IS NULL OR m.expires_at > now())

-- name: messages_to_copy
-- Return the messages of a session ($2, $3) up to index $4, in order.
SELECT to_json(m.*) FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.deleted_at IS NULL AND m.message_index <= $4
  AND (m.expires_at IS NULL OR m.expires_at > now()) ORDER BY m.message_index

-- name: insert_copies
-- Insert copies of messages ($4) into a session of the user.
INSERT INTO rem.messages (tenant_id, user_id, session_id, id, message_index, role, content, tool_calls, tool_call_id, tool_name,
                          model, token_count, kind, metadata, tags, created_at, updated_at)
SELECT $1, $2, $3, m.id, m.message_index, m.role, m.content, m.tool_calls, m.tool_call_id, m.tool_name, m.model, m.token_count, m.kind,
       m.metadata, m.tags, m.created_at, m.updated_at
FROM jsonb_populate_recordset(NULL::rem.messages, $4) m

-- name: update_totals
-- Set the totals of a session to those of its messages, and return the session.
UPDATE rem.sessions s SET (message_count, total_tokens) = (
  SELECT count(*), coalesce(sum(m.token_count), 0) FROM rem.messages m
  WHERE m.tenant_id = s.tenant_id AND m.user_id = s.user_id AND m.session_id = s.id AND m.deleted_at IS NULL)
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.id = $3
RETURNING to_json(s.*)

-- name: claim_summary
-- Claim the job of updating a summary for $5 seconds, if it is due.
SELECT rem.rem_claim_summary($1, $2, $3, $4, make_interval(secs => $5))

-- name: messages_to_summarize
-- Return the next messages to summarize; texts of more than 4,000 characters without their middle. A message that expires
-- before its session is not summarized.
SELECT (to_jsonb(m.*) || jsonb_build_object('content', CASE WHEN octet_length(m.content) > 4000 AND char_length(m.content) > 4000 AND NOT rem.rem_is_sealed(m.content)
         THEN left(m.content, 2000) || E'\n...\n' || right(m.content, 2000) ELSE m.content END))
FROM rem.messages m
WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index > $4 AND m.message_index <= $5
  AND m.deleted_at IS NULL AND (m.expires_at IS NULL OR m.expires_at = (
    SELECT s.expires_at FROM rem.sessions s WHERE s.tenant_id = $1 AND s.id = $3 AND s.expires_at > now()))
ORDER BY m.message_index LIMIT $6

-- name: store_summary
-- Store a summary, unless another one was stored since ($4), or the $9 messages that it covers have changed.
UPDATE rem.session_summaries s
SET summary = $6, last_index = $5, token_count = $7, kept = $8, updated_at = clock_timestamp(),
    claimed_until = CASE WHEN $10 THEN clock_timestamp() + make_interval(secs => $11) END
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3 AND s.last_index = $4 AND $9 = (
  SELECT count(*) FROM rem.messages m
  WHERE m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_index > $4 AND m.message_index <= $5
    AND m.deleted_at IS NULL AND (m.expires_at IS NULL OR m.expires_at = (
      SELECT t.expires_at FROM rem.sessions t WHERE t.tenant_id = $1 AND t.id = $3 AND t.expires_at > now())))
RETURNING s.last_index

-- name: release_summary
-- End the claim on a summary.
UPDATE rem.session_summaries s SET claimed_until = NULL WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3

-- name: summary
-- Return the summary of a session that has not expired.
SELECT nullif(s.summary, ''), s.session_id FROM rem.session_summaries s
JOIN rem.sessions t ON (t.tenant_id, t.id) = (s.tenant_id, s.session_id) AND (t.expires_at IS NULL OR t.expires_at > now())
WHERE s.tenant_id = $1 AND s.user_id = $2 AND s.session_id = $3

-- name: release_expired_name
-- Take a name from an expired session that is not swept yet.
SELECT rem.rem_release_expired_name($1, $2, $3)

-- name: is_foreign_id
-- Return true if a session with this id belongs to another user.
SELECT EXISTS (SELECT FROM rem.sessions s WHERE s.tenant_id = $1 AND s.user_id <> $2 AND s.id = $3)

-- name: lock_statements
-- Statements of one owner are stored one after another: two at a time would not see that they are the same, or would
-- take the same name.
SELECT pg_advisory_xact_lock(7236964, hashtext($1 || ' ' || coalesce($2, '')))
