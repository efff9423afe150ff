-- Sessions: a turn takes one round trip. Its cost does not depend on the length of the session.

-- Return `session_name`. If an expired session that is not swept yet has this name, remove the name from that session.
CREATE OR REPLACE FUNCTION rem_release_expired_name(of_tenant text, of_user text, session_name text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem.sessions s SET name = NULL
  WHERE s.tenant_id = of_tenant AND s.user_id = of_user AND s.key = rem.rem_key(session_name) AND s.name IS NOT NULL
    AND s.deleted_at IS NULL AND s.expires_at <= now();
  RETURN session_name;
END $$;

-- Create a session and return true, or return false if the id is taken. If another session has the name, or the name has
-- no key, the session is created without a name.
CREATE OR REPLACE FUNCTION rem_create_session(
  of_tenant text, of_user text, of_session uuid, agent text, session_name text, session_metadata jsonb, added integer,
  added_tokens bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF octet_length(rem.rem_key(session_name)) BETWEEN 1 AND 1024 THEN
    INSERT INTO rem.sessions (tenant_id, user_id, id, name, agent_schema, metadata, message_count, total_tokens)
    VALUES (of_tenant, of_user, of_session, rem.rem_release_expired_name(of_tenant, of_user, session_name), agent,
            coalesce(session_metadata, '{}'), added, added_tokens)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN true;
    END IF;
  END IF;
  INSERT INTO rem.sessions (tenant_id, user_id, id, agent_schema, metadata, message_count, total_tokens)
  VALUES (of_tenant, of_user, of_session, agent, coalesce(session_metadata, '{}'), added, added_tokens)
  ON CONFLICT DO NOTHING;  -- on any index: a concurrent creator of the same session may conflict on the key first
  IF FOUND THEN
    RETURN true;
  END IF;
  -- The key of a session without a name is its id. If another session is named like this id, retrying would loop forever.
  IF EXISTS (SELECT FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.user_id = of_user AND s.deleted_at IS NULL
               AND s.key = rem.rem_key(of_session::text) AND s.id <> of_session) THEN
    RAISE unique_violation USING MESSAGE = format('Another session is named %s', of_session),
      DETAIL = format('Key (key)=(%s) already exists.', of_session);
  END IF;
  RETURN false;
END $$;

-- Return a session with the totals of its readable messages. The stored totals may be outdated: rows written directly
-- to `messages` do not update them.
CREATE OR REPLACE FUNCTION rem_session_with_totals(s rem.sessions) RETURNS jsonb
LANGUAGE sql STABLE SET enable_seqscan = off
RETURN (SELECT to_jsonb(s) || jsonb_build_object('message_count', count(*), 'total_tokens', coalesce(sum(m.token_count), 0))
        FROM rem.messages m
        WHERE m.tenant_id = (s).tenant_id AND m.user_id = (s).user_id AND m.session_id = (s).id AND m.deleted_at IS NULL
          AND (m.expires_at IS NULL OR m.expires_at > now()));

-- Return the state of a session for a user: 'open', 'deleted', 'foreign' (it belongs to another user), or NULL (it does
-- not exist). An expired session counts as deleted.
CREATE OR REPLACE FUNCTION rem_session_state(of_tenant text, of_user text, of_session uuid) RETURNS text
LANGUAGE sql STABLE
RETURN (SELECT CASE WHEN s.user_id <> of_user THEN 'foreign'
                    WHEN s.deleted_at IS NOT NULL OR s.expires_at <= now() THEN 'deleted' ELSE 'open' END
        FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session);

-- Set the totals of a session to those of its messages plus the given additions. The caller must have locked the session.
CREATE OR REPLACE FUNCTION rem_update_session_totals(
  of_tenant text, of_user text, of_session uuid, added integer DEFAULT 0, added_tokens bigint DEFAULT 0
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem.session_counters c SET is_stale = false
  WHERE c.tenant_id = of_tenant AND c.session_id = of_session AND c.is_stale;
  UPDATE rem.sessions s SET message_count = c.messages + added, total_tokens = c.tokens + added_tokens
  FROM (SELECT count(*) AS messages, coalesce(sum(m.token_count), 0) AS tokens FROM rem.messages m
        WHERE m.tenant_id = of_tenant AND m.user_id = of_user AND m.session_id = of_session AND m.deleted_at IS NULL) c
  WHERE s.tenant_id = of_tenant AND s.id = of_session
    AND (s.message_count, s.total_tokens) IS DISTINCT FROM (c.messages + added, c.tokens + added_tokens);
END $$;

-- Add to the totals of a session. This locks the session until the end of the transaction, so that concurrent writers get
-- consecutive indexes. Return 'open', 'new' (created by this call), 'missing' (it does not exist, and `creates` is false),
-- 'deleted' or 'foreign'.
CREATE OR REPLACE FUNCTION rem_open_session(
  of_tenant text, of_user text, of_session uuid, agent text, session_name text, session_metadata jsonb, added integer,
  added_tokens bigint, creates boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  state text;
BEGIN
  LOOP
    UPDATE rem.sessions s SET message_count = s.message_count + added, total_tokens = s.total_tokens + added_tokens,
      agent_schema = coalesce(s.agent_schema, agent)
    WHERE s.tenant_id = of_tenant AND s.id = of_session AND s.user_id = of_user AND s.deleted_at IS NULL
      AND (s.expires_at IS NULL OR s.expires_at > now());
    IF FOUND THEN
      PERFORM FROM rem.session_counters c WHERE c.tenant_id = of_tenant AND c.session_id = of_session AND c.is_stale;
      IF FOUND THEN
        PERFORM rem.rem_update_session_totals(of_tenant, of_user, of_session, added, added_tokens);
      END IF;
      RETURN 'open';
    END IF;
    state := rem.rem_session_state(of_tenant, of_user, of_session);
    IF state IN ('deleted', 'foreign') THEN
      RETURN state;
    END IF;
    IF state IS NULL AND NOT creates THEN
      RETURN 'missing';
    END IF;
    -- If a concurrent call created the session first, try again.
    IF rem.rem_create_session(of_tenant, of_user, of_session, agent, session_name, session_metadata, added, added_tokens) THEN
      RETURN 'new';
    END IF;
  END LOOP;
END $$;

-- Return the index for the next message of a session. Indexes of deleted and erased messages are never used again, so a
-- key always means the same message.
CREATE OR REPLACE FUNCTION rem_next_message_index(of_tenant text, of_user text, of_session uuid) RETURNS integer
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_sort = off
RETURN greatest(
  (SELECT m.message_index + 1 FROM rem.messages m
   WHERE m.tenant_id = of_tenant AND m.user_id = of_user AND m.session_id = of_session
   ORDER BY m.message_index DESC LIMIT 1),
  (SELECT c.next_index FROM rem.session_counters c WHERE c.tenant_id = of_tenant AND c.session_id = of_session),
  0);

-- Insert messages at the end of a session. The caller must have locked the session.
CREATE OR REPLACE FUNCTION rem_insert_messages(
  of_tenant text, of_user text, of_session uuid, first_index integer, new_messages json
) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rem.messages (tenant_id, user_id, id, session_id, message_index, role, content, tool_calls, tool_call_id,
                            tool_name, model, token_count, kind, metadata, created_at, updated_at, expires_at)
  SELECT of_tenant, of_user, n.id, of_session, first_index + n.place::integer - 1, n.role, n.content, n.tool_calls,
         n.tool_call_id, n.tool_name, n.model, n.token_count, n.kind, n.metadata, t.moment, t.moment,
         (SELECT s.expires_at FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session)
  FROM ROWS FROM (json_to_recordset(new_messages) AS (
         id uuid, role text, content text, tool_calls jsonb, tool_call_id text, tool_name text, model text,
         token_count integer, kind text, metadata jsonb)) WITH ORDINALITY
         AS n (id, role, content, tool_calls, tool_call_id, tool_name, model, token_count, kind, metadata, place)
  -- Not now(): a transaction that waited for the lock started before the one it waited for.
  CROSS JOIN (SELECT clock_timestamp() AS moment) t
$$;

-- Store messages at the end of a session, and create the session if it does not exist and `creates` is true.
-- Return [state, index of the first message].
CREATE OR REPLACE FUNCTION rem_append_messages(
  of_tenant text, of_user text, of_session uuid, agent text, new_messages json, added integer, added_tokens bigint,
  creates boolean
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  state text := rem.rem_open_session(of_tenant, of_user, of_session, agent, NULL, NULL, added, added_tokens, creates);
  first_index integer;
BEGIN
  IF state IN ('open', 'new') THEN
    first_index := rem.rem_next_message_index(of_tenant, of_user, of_session);
    PERFORM rem.rem_insert_messages(of_tenant, of_user, of_session, first_index, new_messages);
  END IF;
  RETURN json_build_array(state, first_index);
END $$;

-- Create a session with messages, unless it exists. Return 'new', or the state of the existing session.
CREATE OR REPLACE FUNCTION rem_seed_session(
  of_tenant text, of_user text, of_session uuid, agent text, session_name text, new_messages json, added integer,
  added_tokens bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  state text;
BEGIN
  LOOP
    state := rem.rem_session_state(of_tenant, of_user, of_session);
    IF state IS NOT NULL THEN
      RETURN state;
    END IF;
    -- A concurrent call waits here until the first one has stored its messages.
    IF rem.rem_create_session(of_tenant, of_user, of_session, agent, session_name, NULL, added, added_tokens) THEN
      PERFORM rem.rem_insert_messages(of_tenant, of_user, of_session,
                                      rem.rem_next_message_index(of_tenant, of_user, of_session), new_messages);
      RETURN 'new';
    END IF;
  END LOOP;
END $$;

-- Return a message as the model gets it, as a JSON array: index, role, content, tool_name, tool_call_id, tool_calls,
-- arguments, is_truncated, token_count (NULL if it must be counted), is_important, id. Assistant messages of more than
-- 400 characters are shortened and name the key of the full text. Other messages are never shortened.
CREATE OR REPLACE FUNCTION rem_history_message(m rem.messages, is_important boolean) RETURNS json
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  -- Check the length in bytes first: it is known without decompressing the text.
  is_long boolean := m.role = 'assistant' AND NOT rem.rem_is_sealed(m.content) AND octet_length(m.content) > 400 AND char_length(m.content) > 400;
BEGIN
  RETURN json_build_array(
    m.message_index, m.role,
    CASE WHEN is_long THEN
      left(m.content, 200) || E'\n\n... [Message truncated - REM LOOKUP ' || m.key || E' to recover full content] ...\n\n'
        || right(m.content, 200)
    ELSE m.content END,
    m.tool_name, m.tool_call_id, nullif(m.tool_calls, '[]'), m.metadata -> 'tool_arguments', is_long,
    CASE WHEN NOT is_long THEN m.token_count END, is_important, m.id);
END $$;

-- Estimate the tokens of a message in the history. The estimate is rather low than high, because the caller counts exactly
-- and drops what does not fit. A long answer is shortened to 400 characters and a hint of 45 tokens; 340 instead of 400
-- keeps the estimate low.
CREATE OR REPLACE FUNCTION rem_estimate_history_tokens(role text, content_bytes integer, token_count integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 4 + CASE
  WHEN role = 'assistant' AND content_bytes > 480
    THEN 45 + 340 * coalesce(token_count, content_bytes / 4)::bigint / content_bytes
  ELSE coalesce(token_count, content_bytes / 4)
END;

-- Return the newest messages of a session before `before_index` that fit a token budget, newest first, and at least those
-- of the newest turn. The number of rows read is bounded, however long the session is. Once the messages have
-- `enough_tokens`, stop at the messages that the summary covers (up to `summarized_to`).
CREATE OR REPLACE FUNCTION rem_recent_messages(
  of_tenant text, of_user text, of_session uuid, before_index integer, budget integer, summarized_to integer,
  enough_tokens integer, kept integer[]
) RETURNS json[] LANGUAGE plpgsql STABLE
-- Force the index order: the planner's statistics may be from a time when the table was small.
SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
  m rem.messages;
  tokens integer := 0;
  has_start boolean := false;
  is_start boolean;
  history json[] := '{}';
BEGIN
  FOR m IN
    SELECT * FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session AND r.message_index < before_index
    -- No filter on deleted_at here: the scan of a cleared session would run to its beginning.
    ORDER BY r.message_index DESC LIMIT greatest(200, least(budget / 4, 20000))
  LOOP
    CONTINUE WHEN m.deleted_at IS NOT NULL OR m.expires_at <= now();
    -- Models do not get their own reasoning again.
    CONTINUE WHEN m.role = 'tool' AND m.tool_name = 'reasoning' AND m.tool_call_id IS NULL;
    EXIT WHEN has_start AND m.message_index <= summarized_to AND tokens >= enough_tokens;
    tokens := tokens + rem.rem_estimate_history_tokens(m.role, octet_length(m.content), m.token_count);
    is_start := m.role IN ('user', 'system');
    EXIT WHEN has_start AND tokens > budget;
    -- If one turn exceeds the budget, return its newest messages and the message that started it.
    CONTINUE WHEN tokens > budget AND NOT is_start AND cardinality(history) > 0;
    history := history || rem.rem_history_message(
      m, m.role = 'system' OR m.metadata @> '{"important": true}' OR m.message_index = ANY (kept));
    has_start := has_start OR is_start;
  END LOOP;
  RETURN history;
END $$;

-- Return the messages before `before_index` that the hybrid strategy keeps, in no order: system messages, flagged messages,
-- and the decisions and key facts (`kept`) that were found when the session was summarized. Each statement is simple
-- enough to use one index with any statistics.
CREATE OR REPLACE FUNCTION rem_kept_messages(
  of_tenant text, of_user text, of_session uuid, before_index integer, kept integer[]
) RETURNS json[] LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
  m rem.messages;
  kept_index integer;
  history json[] := '{}';
BEGIN
  FOR m IN
    SELECT * FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session AND r.message_index < before_index
      AND r.deleted_at IS NULL AND (r.role = 'system' OR r.metadata @> '{"important": true}')
    ORDER BY r.message_index DESC LIMIT 30
  LOOP
    CONTINUE WHEN m.role = 'tool' OR m.expires_at <= now();
    kept := array_remove(kept, m.message_index);
    history := history || rem.rem_history_message(m, true);
  END LOOP;
  FOREACH kept_index IN ARRAY kept LOOP
    CONTINUE WHEN kept_index >= before_index;
    SELECT * INTO m FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session
      -- A range instead of =, so that the ORDER BY makes the planner choose the index of the sessions.
      AND r.message_index BETWEEN kept_index AND kept_index
    ORDER BY r.message_index LIMIT 1;
    CONTINUE WHEN NOT FOUND OR m.deleted_at IS NOT NULL OR m.expires_at <= now();
    history := history || rem.rem_history_message(m, true);
  END LOOP;
  RETURN history;
END $$;

-- Return the history of a session before `before_index` as JSON: `history` (newest first), `kept` (older kept messages),
-- `summary`, and the `system_prompt` of the session. Messages before `history_start` of the session's settings are left out: a
-- user who starts over keeps them, but no model is given them.
CREATE OR REPLACE FUNCTION rem_session_history(
  of_tenant text, of_user text, of_session uuid, before_index integer, budget integer, strategy text
) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  summary_row rem.session_summaries;
  history json[];
  kept_history json[] := '{}';
  system_prompt text;
  history_start numeric;
BEGIN
  SELECT s.system_prompt,
         CASE WHEN jsonb_typeof(s.settings -> 'history_start') = 'number' THEN (s.settings ->> 'history_start')::numeric END
    INTO system_prompt, history_start
  FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session AND s.user_id = of_user;
  IF strategy <> 'simple' THEN
    SELECT * INTO summary_row FROM rem.session_summaries s
    WHERE s.tenant_id = of_tenant AND s.session_id = of_session AND s.user_id = of_user;
  END IF;
  history := rem.rem_recent_messages(
    of_tenant, of_user, of_session, before_index, budget - least(coalesce(summary_row.token_count, 0), budget / 4),
    coalesce(summary_row.last_index, -1), budget * 2 / 5, coalesce(summary_row.kept, '{}'));
  IF strategy = 'hybrid' AND cardinality(history) > 0 THEN
    kept_history := rem.rem_kept_messages(
      of_tenant, of_user, of_session, (history[cardinality(history)] ->> 0)::integer, coalesce(summary_row.kept, '{}'));
  END IF;
  IF history_start IS NOT NULL THEN
    history := ARRAY(SELECT h.message FROM unnest(history) WITH ORDINALITY AS h (message, place)
                     WHERE (h.message ->> 0)::integer >= history_start ORDER BY h.place);
    kept_history := ARRAY(SELECT k FROM unnest(kept_history) k WHERE (k ->> 0)::integer >= history_start);
  END IF;
  RETURN json_build_object('id', of_session, 'history', array_to_json(history), 'kept', array_to_json(kept_history),
                           'summary', nullif(summary_row.summary, ''), 'system_prompt', system_prompt);
END $$;

-- Store a user message, and create the session if it does not exist. Return [state, message index, history before it].
CREATE OR REPLACE FUNCTION rem_begin_turn(
  of_tenant text, of_user text, of_session uuid, agent text, session_metadata jsonb, new_message json, new_tokens bigint,
  budget integer, strategy text, session_name text
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  state text := rem.rem_open_session(
    of_tenant, of_user, of_session, agent, session_name, session_metadata, 1, new_tokens, true);
  next_index integer := 0;
  history json;
BEGIN
  IF state = 'open' THEN
    next_index := rem.rem_next_message_index(of_tenant, of_user, of_session);
    history := rem.rem_session_history(of_tenant, of_user, of_session, next_index, budget, strategy);
  END IF;
  IF state IN ('open', 'new') THEN
    PERFORM rem.rem_insert_messages(of_tenant, of_user, of_session, next_index, new_message);
  END IF;
  RETURN json_build_array(state, next_index, history);
END $$;

-- Claim the job of updating a session's summary, if it is due. It is due when the messages after the summary use more than
-- three quarters of the budget. Then all messages except the newest two fifths, counted from a user message, move into the
-- summary. Return {summary, last_index, kept, until}, or NULL if it is not due or another process has claimed it.
CREATE OR REPLACE FUNCTION rem_claim_summary(of_tenant text, of_user text, of_session uuid, budget integer, lease interval)
RETURNS json LANGUAGE plpgsql SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
  summary_row rem.session_summaries;
  m record;
  tokens integer := 0;
  until integer;
  is_due boolean := false;
BEGIN
  SELECT * INTO summary_row FROM rem.session_summaries s
  WHERE s.tenant_id = of_tenant AND s.session_id = of_session AND s.user_id = of_user;
  IF summary_row.claimed_until > clock_timestamp() THEN
    RETURN NULL;
  END IF;
  FOR m IN
    SELECT r.message_index, r.role, octet_length(r.content) AS bytes, r.token_count, r.deleted_at FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session
      AND r.message_index > coalesce(summary_row.last_index, -1)
    ORDER BY r.message_index DESC LIMIT greatest(200, least(budget / 4, 20000))
  LOOP
    CONTINUE WHEN m.deleted_at IS NOT NULL;
    tokens := tokens + rem.rem_estimate_history_tokens(m.role, m.bytes, m.token_count);
    IF until IS NULL AND tokens >= budget * 2 / 5 AND m.role = 'user' THEN
      until := m.message_index - 1;
    END IF;
    is_due := tokens > budget * 3 / 4;
    EXIT WHEN is_due AND until IS NOT NULL;
  END LOOP;
  IF NOT is_due OR until IS NULL OR until <= coalesce(summary_row.last_index, -1) THEN
    RETURN NULL;
  END IF;
  INSERT INTO rem.session_summaries AS s (tenant_id, user_id, session_id, claimed_until)
  SELECT tenant_id, user_id, id, clock_timestamp() + lease FROM rem.sessions
  WHERE tenant_id = of_tenant AND id = of_session AND user_id = of_user AND deleted_at IS NULL
  ON CONFLICT (tenant_id, session_id) DO UPDATE SET claimed_until = excluded.claimed_until
  WHERE s.claimed_until IS NULL OR s.claimed_until <= clock_timestamp()
  RETURNING * INTO summary_row;
  RETURN CASE WHEN FOUND THEN json_build_object(
    'id', of_session, 'summary', nullif(summary_row.summary, ''), 'last_index', summary_row.last_index, 'kept', summary_row.kept,
    'until', until) END;
END $$;

-- Recount the messages of a session that is not deleted. Wait at most half a second for its lock: a process that deletes
-- the session holds the lock and waits for the message that the caller has just deleted. If the lock is not free, mark the
-- counters as stale; the next turn recounts.
CREATE OR REPLACE FUNCTION rem_recount_session(of_tenant text, of_user text, of_session uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  FOR attempt IN 1..50 LOOP
    PERFORM FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session AND s.deleted_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
      -- A deleted message must not change updated_at: the session is as idle as before.
      PERFORM set_config('rem.untouched', 'on', true);
      PERFORM rem.rem_update_session_totals(of_tenant, of_user, of_session);
      PERFORM set_config('rem.untouched', '', true);
      RETURN;
    END IF;
    PERFORM FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session AND s.deleted_at IS NULL;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  -- SKIP LOCKED: if the session is being erased, there will be nothing to count.
  INSERT INTO rem.session_counters (tenant_id, session_id, is_stale)
  SELECT s.tenant_id, s.id, true FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session
  FOR KEY SHARE SKIP LOCKED
  ON CONFLICT (tenant_id, session_id) DO UPDATE SET is_stale = true;
END $$;

-- Update everything that depends on the messages of a session after they changed. Delete the summary if it covers a deleted
-- message. Reserve the indexes of erased messages, and remove the tasks of missing tools. Recount the totals.
CREATE OR REPLACE FUNCTION rem_apply_message_changes(
  of_tenant text, of_user text, of_session uuid, first_hidden_index integer, last_erased_index integer,
  has_other_totals boolean
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF first_hidden_index IS NOT NULL THEN
    DELETE FROM rem.session_summaries s
    WHERE s.tenant_id = of_tenant AND s.session_id = of_session
      AND (s.last_index >= first_hidden_index OR s.claimed_until IS NOT NULL);
    PERFORM rem.rem_drop_waiting_runs(of_tenant, of_session, last_erased_index IS NOT NULL);
  END IF;
  IF last_erased_index IS NOT NULL THEN
    -- Their tasks are questions of the session.
    UPDATE rem.tool_gaps g SET attempted_task = '(forgotten)'
    WHERE g.tenant_id = of_tenant AND g.user_id = of_user AND g.session_id = of_session;
    -- The SELECT finds nothing if the session itself is being erased.
    INSERT INTO rem.session_counters AS c (tenant_id, session_id, next_index)
    SELECT s.tenant_id, s.id, last_erased_index + 1 FROM rem.sessions s
    WHERE s.tenant_id = of_tenant AND s.id = of_session
      AND last_erased_index >= rem.rem_next_message_index(of_tenant, of_user, of_session)
    ON CONFLICT (tenant_id, session_id) DO UPDATE SET next_index = greatest(c.next_index, excluded.next_index);
  END IF;
  IF has_other_totals THEN
    PERFORM rem.rem_recount_session(of_tenant, of_user, of_session);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION rem_on_messages_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM rem.rem_apply_message_changes(c.tenant_id, c.user_id, c.session_id, c.first_hidden_index, c.last_erased_index,
                                          c.has_other_totals) FROM (
      SELECT o.tenant_id, o.user_id, o.session_id, min(o.message_index) AS first_hidden_index,
             max(o.message_index) AS last_erased_index,
             bool_or(o.deleted_at IS NULL) AS has_other_totals
      FROM old_rows o GROUP BY 1, 2, 3 ORDER BY 1, 3 OFFSET 0) c;
  ELSE
    PERFORM rem.rem_apply_message_changes(c.tenant_id, c.user_id, c.session_id, c.first_hidden_index, NULL,
                                          c.has_other_totals) FROM (
      SELECT o.tenant_id, o.user_id, o.session_id,
             min(o.message_index) FILTER (WHERE o.deleted_at IS NULL AND n.deleted_at IS NOT NULL
                                                OR o.expires_at IS DISTINCT FROM n.expires_at) AS first_hidden_index,
             bool_or((o.deleted_at IS NULL) <> (n.deleted_at IS NULL)
                     OR o.token_count IS DISTINCT FROM n.token_count) AS has_other_totals
      FROM old_rows o JOIN new_rows n USING (tenant_id, id)
      WHERE (o.deleted_at IS NULL) <> (n.deleted_at IS NULL) OR o.expires_at IS DISTINCT FROM n.expires_at
        OR o.token_count IS DISTINCT FROM n.token_count
      GROUP BY 1, 2, 3 ORDER BY 1, 3 OFFSET 0) c;
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER follow_on_update AFTER UPDATE ON messages REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_on_messages_changed();
CREATE OR REPLACE TRIGGER follow_on_delete AFTER DELETE ON messages REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_on_messages_changed();

-- Erase what the built-in model answered to an erased message: it repeats the message word for word, in its text or in the
-- arguments of its tools.
CREATE OR REPLACE FUNCTION rem_erase_own_replies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- The DELETE below runs this trigger again, also when it finds no row.
  IF NOT EXISTS (SELECT FROM old_rows o WHERE o.role = 'user') THEN
    RETURN NULL;
  END IF;
  DELETE FROM rem.messages m USING old_rows o
  WHERE o.role = 'user' AND m.tenant_id = o.tenant_id AND m.user_id = o.user_id AND m.session_id = o.session_id
    AND m.message_index > o.message_index AND m.model = 'rem:local'
    AND NOT EXISTS (
      SELECT FROM rem.messages u
      WHERE u.tenant_id = o.tenant_id AND u.user_id = o.user_id AND u.session_id = o.session_id AND u.role = 'user'
        AND u.message_index > o.message_index AND u.message_index < m.message_index);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER erase_own_replies AFTER DELETE ON messages REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_erase_own_replies();

-- Recount a restored session: single messages may have been deleted while it was deleted. Triggers run in the order of
-- their names, so this one runs after `cascade_deletion`.
CREATE OR REPLACE FUNCTION rem_on_session_restored() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM rem.rem_update_session_totals(NEW.tenant_id, NEW.user_id, NEW.id);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER count_restored AFTER UPDATE OF deleted_at ON sessions FOR EACH ROW
  WHEN (OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS NULL) EXECUTE FUNCTION rem_on_session_restored();

-- Delete the counters of erased sessions.
CREATE OR REPLACE FUNCTION rem_on_sessions_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rem.session_counters c USING old_rows o WHERE (c.tenant_id, c.session_id) = (o.tenant_id, o.id);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER forget_counters AFTER DELETE ON sessions REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_on_sessions_erased();

-- Reject a message index far beyond the end of the session. Clients that write messages directly choose the index, and one
-- near the largest integer would leave none for later messages.
CREATE OR REPLACE FUNCTION rem_check_message_index() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  next_index integer := rem.rem_next_message_index(NEW.tenant_id, NEW.user_id, NEW.session_id);
BEGIN
  IF NEW.message_index - next_index > 1000 THEN
    RAISE EXCEPTION 'message_index % is far beyond the next one of the session, which is %: number its messages from there',
      NEW.message_index, next_index USING ERRCODE = 'check_violation', CONSTRAINT = 'message_index_in_reach';
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER refuse_far_index BEFORE INSERT ON messages FOR EACH ROW
  WHEN (NEW.message_index >= 1000000000) EXECUTE FUNCTION rem_check_message_index();
