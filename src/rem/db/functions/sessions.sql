-- Conversations: a turn begins or goes on in one round trip, and costs the same however long the session is.

-- The same name; a session of it that has lapsed, and is not swept yet, gives it up.
CREATE OR REPLACE FUNCTION rem_release_expired_name(of_tenant text, of_user text, session_name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem.sessions s SET name = NULL
  WHERE s.tenant_id = of_tenant AND s.user_id = of_user AND s.key = rem.rem_key(session_name) AND s.name IS NOT NULL
    AND s.deleted_at IS NULL AND s.expires_at <= now();
  RETURN session_name;
END $$;

-- Makes a session, unless its id is taken; false then. The name is left out if another session has it, or if it has no key.
CREATE OR REPLACE FUNCTION rem_create_session(
  of_tenant text, of_user text, of_session uuid, agent text, session_name text, about jsonb, added integer, added_tokens bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF octet_length(rem.rem_key(session_name)) BETWEEN 1 AND 1024 THEN
    INSERT INTO rem.sessions (tenant_id, user_id, id, name, agent_schema, metadata, message_count, total_tokens)
    VALUES (of_tenant, of_user, of_session, rem.rem_release_expired_name(of_tenant, of_user, session_name), agent,
            coalesce(about, '{}'), added, added_tokens)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN true;
    END IF;
  END IF;
  INSERT INTO rem.sessions (tenant_id, user_id, id, agent_schema, metadata, message_count, total_tokens)
  VALUES (of_tenant, of_user, of_session, agent, coalesce(about, '{}'), added, added_tokens)
  ON CONFLICT DO NOTHING;  -- of any index: who makes the same session at once may be met in the one of the keys first
  IF FOUND THEN
    RETURN true;
  END IF;
  -- A session without a name has its id for a key. Who waits for another session of that key would wait forever.
  IF EXISTS (SELECT FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.user_id = of_user AND s.deleted_at IS NULL
               AND s.key = rem.rem_key(of_session::text) AND s.id <> of_session) THEN
    RAISE unique_violation USING MESSAGE = format('Another session is named %s', of_session),
      DETAIL = format('Key (key)=(%s) already exists.', of_session);
  END IF;
  RETURN false;
END $$;

-- A session with the totals of the messages that can be read now, also of those that were stored without it.
CREATE OR REPLACE FUNCTION rem_session_with_totals(s rem.sessions) RETURNS jsonb
LANGUAGE sql STABLE SET enable_seqscan = off
RETURN (SELECT to_jsonb(s) || jsonb_build_object('message_count', count(*), 'total_tokens', coalesce(sum(m.token_count), 0))
        FROM rem.messages m
        WHERE m.tenant_id = (s).tenant_id AND m.user_id = (s).user_id AND m.session_id = (s).id AND m.deleted_at IS NULL
          AND (m.expires_at IS NULL OR m.expires_at > now()));

-- What a user can do with a session: 'open', 'deleted', 'foreign' if another user has it; NULL if there is none.
CREATE OR REPLACE FUNCTION rem_session_state(of_tenant text, of_user text, of_session uuid) RETURNS text
LANGUAGE sql STABLE
RETURN (SELECT CASE WHEN s.user_id <> of_user THEN 'foreign'
                    WHEN s.deleted_at IS NOT NULL OR s.expires_at <= now() THEN 'deleted' ELSE 'open' END
        FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session);

-- Sets the totals of a session that the caller has locked to what its messages say, and what is being added.
CREATE OR REPLACE FUNCTION rem_update_session_totals(
  of_tenant text, of_user text, of_session uuid, added integer DEFAULT 0, added_tokens bigint DEFAULT 0
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem.session_counters c SET is_stale = false WHERE c.tenant_id = of_tenant AND c.session_id = of_session AND c.is_stale;
  UPDATE rem.sessions s SET message_count = c.messages + added, total_tokens = c.tokens + added_tokens
  FROM (SELECT count(*) AS messages, coalesce(sum(m.token_count), 0) AS tokens FROM rem.messages m
        WHERE m.tenant_id = of_tenant AND m.user_id = of_user AND m.session_id = of_session AND m.deleted_at IS NULL) c
  WHERE s.tenant_id = of_tenant AND s.id = of_session
    AND (s.message_count, s.total_tokens) IS DISTINCT FROM (c.messages + added, c.tokens + added_tokens);
END $$;

-- Adds to a session's totals, which locks it until the end of the transaction, so that indexes are given one after the
-- other. 'open', 'new' if it was made just now, 'missing' if there is none and none is wanted, 'deleted', 'foreign'.
CREATE OR REPLACE FUNCTION rem_open_session(
  of_tenant text, of_user text, of_session uuid, agent text, session_name text, about jsonb, added integer,
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
    -- Somebody may have been faster: then it is looked at again.
    IF rem.rem_create_session(of_tenant, of_user, of_session, agent, session_name, about, added, added_tokens) THEN
      RETURN 'new';
    END IF;
  END LOOP;
END $$;

-- The index of the next message of a session. Deleted and erased ones count: a key never means another message than it did.
CREATE OR REPLACE FUNCTION rem_next_message_index(of_tenant text, of_user text, of_session uuid) RETURNS integer
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_sort = off
RETURN greatest(
  (SELECT m.message_index + 1 FROM rem.messages m
   WHERE m.tenant_id = of_tenant AND m.user_id = of_user AND m.session_id = of_session
   ORDER BY m.message_index DESC LIMIT 1),
  (SELECT c.next_index FROM rem.session_counters c WHERE c.tenant_id = of_tenant AND c.session_id = of_session),
  0);

-- Stores messages behind the others; the caller has locked the session.
CREATE OR REPLACE FUNCTION rem_insert_messages(of_tenant text, of_user text, of_session uuid, first_index integer, new_messages json)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO rem.messages (tenant_id, user_id, id, session_id, message_index, role, content, tool_calls, tool_call_id,
                            tool_name, model, token_count, metadata, created_at, updated_at, expires_at)
  SELECT of_tenant, of_user, n.id, of_session, first_index + n.place::integer - 1, n.role, n.content, n.tool_calls,
         n.tool_call_id, n.tool_name, n.model, n.token_count, n.metadata, t.moment, t.moment,
         (SELECT s.expires_at FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session)
  FROM ROWS FROM (json_to_recordset(new_messages) AS (
         id uuid, role text, content text, tool_calls jsonb, tool_call_id text, tool_name text, model text,
         token_count integer, metadata jsonb)) WITH ORDINALITY
         AS n (id, role, content, tool_calls, tool_call_id, tool_name, model, token_count, metadata, place)
  -- Not now(): a writer that waited for another began before it.
  CROSS JOIN (SELECT clock_timestamp() AS moment) t
$$;

-- Stores messages at the end of a session, which is made if it does not exist and `creates`: ["open", the first one's index].
CREATE OR REPLACE FUNCTION rem_append_messages(
  of_tenant text, of_user text, of_session uuid, agent text, new_messages json, added integer, added_tokens bigint, creates boolean
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

-- Makes a session of messages, unless it is there: 'new' if it was made, else its state.
CREATE OR REPLACE FUNCTION rem_seed_session(
  of_tenant text, of_user text, of_session uuid, agent text, session_name text, new_messages json, added integer, added_tokens bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  state text;
BEGIN
  LOOP
    state := rem.rem_session_state(of_tenant, of_user, of_session);
    IF state IS NOT NULL THEN
      RETURN state;
    END IF;
    -- Who is slower waits here for the other's messages.
    IF rem.rem_create_session(of_tenant, of_user, of_session, agent, session_name, NULL, added, added_tokens) THEN
      PERFORM rem.rem_insert_messages(of_tenant, of_user, of_session, rem.rem_next_message_index(of_tenant, of_user, of_session), new_messages);
      RETURN 'new';
    END IF;
  END LOOP;
END $$;

-- A message as the model is given it, as JSON: [index, role, content, tool_name, tool_call_id, tool_calls, arguments,
-- whether it is truncated, token_count or NULL if it must be counted, whether it is important, id]. Long answers are
-- shortened, with the key that gives them back; what others say never is.
CREATE OR REPLACE FUNCTION rem_history_message(m rem.messages, is_important boolean) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  -- The length in bytes is known without reading a long text.
  is_long boolean := m.role = 'assistant' AND octet_length(m.content) > 400 AND char_length(m.content) > 400;
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

-- About how many tokens a message takes in the history. Rather too few than too many: who asks counts exactly.
CREATE OR REPLACE FUNCTION rem_estimate_history_tokens(role text, content_bytes integer, token_count integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 4 + CASE
  WHEN role = 'assistant' AND content_bytes > 480 THEN 45 + 340 * coalesce(token_count, content_bytes / 4)::bigint / content_bytes
  ELSE coalesce(token_count, content_bytes / 4)
END;

-- The newest messages of a session before an index, as far as a budget of tokens goes, newest first; at least the newest
-- turn's own. Only they are read, by their index: a bounded number, however long the session is. Once `enough` tokens
-- are there, what is summarised already (up to `known_to`) is left out.
CREATE OR REPLACE FUNCTION rem_recent_messages(
  of_tenant text, of_user text, of_session uuid, before_index integer, budget integer, known_to integer, enough integer,
  kept integer[]
) RETURNS json[] LANGUAGE plpgsql STABLE
-- In its order, whatever the statistics say: they may be from when the table was small.
SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
  m rem.messages;
  tokens integer := 0;
  has_start boolean := false;
  is_start boolean;
  lines json[] := '{}';
BEGIN
  FOR m IN
    SELECT * FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session AND r.message_index < before_index
    -- Without a look at what is deleted: else a session that was cleared would be read to its beginning.
    ORDER BY r.message_index DESC LIMIT greatest(200, least(budget / 4, 20000))
  LOOP
    CONTINUE WHEN m.deleted_at IS NOT NULL OR m.expires_at <= now();
    EXIT WHEN has_start AND m.message_index <= known_to AND tokens >= enough;
    tokens := tokens + rem.rem_estimate_history_tokens(m.role, octet_length(m.content), m.token_count);
    is_start := m.role IN ('user', 'system');
    EXIT WHEN has_start AND tokens > budget;
    -- Of a turn that is too long alone, the newest messages are given, and the one that it began with.
    CONTINUE WHEN tokens > budget AND NOT is_start AND cardinality(lines) > 0;
    lines := lines || rem.rem_history_message(m, is_start AND m.role = 'system' OR m.metadata @> '{"important": true}'
                                              OR m.message_index = ANY (kept));
    has_start := has_start OR is_start;
  END LOOP;
  RETURN lines;
END $$;

-- What hybrid memory keeps from before an index: what the system said, what is flagged, and the decisions and key facts
-- that were found when they were summarised; in no order. Small statements, each of one index whatever the statistics say.
CREATE OR REPLACE FUNCTION rem_kept_messages(of_tenant text, of_user text, of_session uuid, before_index integer, kept integer[])
RETURNS json[] LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
  m rem.messages;
  wanted integer;
  lines json[] := '{}';
BEGIN
  FOR m IN
    SELECT * FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session AND r.message_index < before_index
      AND r.deleted_at IS NULL AND (r.role = 'system' OR r.metadata @> '{"important": true}')
    ORDER BY r.message_index DESC LIMIT 30
  LOOP
    CONTINUE WHEN m.role = 'tool' OR m.expires_at <= now();
    kept := array_remove(kept, m.message_index);
    lines := lines || rem.rem_history_message(m, true);
  END LOOP;
  FOREACH wanted IN ARRAY kept LOOP
    CONTINUE WHEN wanted >= before_index;
    SELECT * INTO m FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session
      -- A range, so that the order is worth something: it leads to the index of the sessions.
      AND r.message_index BETWEEN wanted AND wanted
    ORDER BY r.message_index LIMIT 1;
    CONTINUE WHEN NOT FOUND OR m.deleted_at IS NOT NULL OR m.expires_at <= now();
    lines := lines || rem.rem_history_message(m, true);
  END LOOP;
  RETURN lines;
END $$;

-- What a model is told of a session before an index: the history, newest first, what is kept from before it, the summary.
CREATE OR REPLACE FUNCTION rem_session_history(
  of_tenant text, of_user text, of_session uuid, before_index integer, budget integer, strategy text
) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  known rem.session_summaries;
  lines json[];
  kept_lines json[] := '{}';
BEGIN
  IF strategy <> 'simple' THEN
    SELECT * INTO known FROM rem.session_summaries s
    WHERE s.tenant_id = of_tenant AND s.session_id = of_session AND s.user_id = of_user;
  END IF;
  lines := rem.rem_recent_messages(of_tenant, of_user, of_session, before_index, budget - least(coalesce(known.token_count, 0), budget / 4),
                           coalesce(known.last_index, -1), budget * 2 / 5, coalesce(known.kept, '{}'));
  IF strategy = 'hybrid' AND cardinality(lines) > 0 THEN
    kept_lines := rem.rem_kept_messages(of_tenant, of_user, of_session, (lines[cardinality(lines)] ->> 0)::integer,
                                        coalesce(known.kept, '{}'));
  END IF;
  RETURN json_build_object('history', array_to_json(lines), 'kept', array_to_json(kept_lines),
                           'summary', nullif(known.summary, ''));
END $$;

-- A turn: stores what the user says and gives the conversation before it. The session is made if it does not exist.
CREATE OR REPLACE FUNCTION rem_begin_turn(
  of_tenant text, of_user text, of_session uuid, agent text, about jsonb, new_message json, new_tokens bigint,
  budget integer, strategy text, session_name text
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  state text := rem.rem_open_session(of_tenant, of_user, of_session, agent, session_name, about, 1, new_tokens, true);
  next_index integer := 0;
  conversation json;
BEGIN
  IF state = 'open' THEN
    next_index := rem.rem_next_message_index(of_tenant, of_user, of_session);
    conversation := rem.rem_session_history(of_tenant, of_user, of_session, next_index, budget, strategy);
  END IF;
  IF state IN ('open', 'new') THEN
    PERFORM rem.rem_insert_messages(of_tenant, of_user, of_session, next_index, new_message);
  END IF;
  RETURN json_build_array(state, next_index, conversation);
END $$;

-- Claims the writing of a session's summary, if it is due: when what is not in it takes over three quarters of the
-- budget, all but the newest two fifths (from a user's message on) get into it. NULL if there is nothing to do, or
-- somebody else does it; else {summary, last_index, kept, until}.
CREATE OR REPLACE FUNCTION rem_claim_summary(of_tenant text, of_user text, of_session uuid, budget integer, lease interval)
RETURNS json LANGUAGE plpgsql SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
  known rem.session_summaries;
  m record;
  tokens integer := 0;
  until integer;
  is_due boolean := false;
BEGIN
  SELECT * INTO known FROM rem.session_summaries s
  WHERE s.tenant_id = of_tenant AND s.session_id = of_session AND s.user_id = of_user;
  IF known.claimed_until > clock_timestamp() THEN
    RETURN NULL;
  END IF;
  FOR m IN
    SELECT r.message_index, r.role, octet_length(r.content) AS bytes, r.token_count, r.deleted_at FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session
      AND r.message_index > coalesce(known.last_index, -1)
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
  IF NOT is_due OR until IS NULL OR until <= coalesce(known.last_index, -1) THEN
    RETURN NULL;
  END IF;
  INSERT INTO rem.session_summaries AS s (tenant_id, user_id, session_id, claimed_until)
  SELECT tenant_id, user_id, id, clock_timestamp() + lease FROM rem.sessions
  WHERE tenant_id = of_tenant AND id = of_session AND user_id = of_user AND deleted_at IS NULL
  ON CONFLICT (tenant_id, session_id) DO UPDATE SET claimed_until = excluded.claimed_until
  WHERE s.claimed_until IS NULL OR s.claimed_until <= clock_timestamp()
  RETURNING * INTO known;
  RETURN CASE WHEN FOUND THEN json_build_object(
    'summary', nullif(known.summary, ''), 'last_index', known.last_index, 'kept', known.kept, 'until', until) END;
END $$;

-- Counts the messages of a session anew, if it is not deleted. Never waits for its lock for long: who deletes the session
-- holds it, and waits for the message that the caller has just deleted. The next turn counts in that case.
CREATE OR REPLACE FUNCTION rem_recount_session(of_tenant text, of_user text, of_session uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  FOR attempt IN 1..50 LOOP
    PERFORM FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session AND s.deleted_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
      -- A message that goes is not written to the conversation, which is as idle as before.
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
  -- Not of one that is just being erased: whoever does it waits for the message, and there will be nothing to count.
  INSERT INTO rem.session_counters (tenant_id, session_id, is_stale)
  SELECT s.tenant_id, s.id, true FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session
  FOR KEY SHARE SKIP LOCKED
  ON CONFLICT (tenant_id, session_id) DO UPDATE SET is_stale = true;
END $$;

-- What follows when messages of a session change. A summary must not tell what was deleted: it is thrown away with the
-- first of its messages, and made anew. The index of an erased message is not given again. The totals stay right.
CREATE OR REPLACE FUNCTION rem_apply_message_changes(
  of_tenant text, of_user text, of_session uuid, first_gone integer, last_erased integer, is_other_total boolean
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF first_gone IS NOT NULL THEN
    DELETE FROM rem.session_summaries s
    WHERE s.tenant_id = of_tenant AND s.session_id = of_session AND (s.last_index >= first_gone OR s.claimed_until IS NOT NULL);
  END IF;
  IF last_erased IS NOT NULL THEN
    -- Not if the session itself is being erased.
    INSERT INTO rem.session_counters AS c (tenant_id, session_id, next_index)
    SELECT s.tenant_id, s.id, last_erased + 1 FROM rem.sessions s
    WHERE s.tenant_id = of_tenant AND s.id = of_session AND last_erased >= rem.rem_next_message_index(of_tenant, of_user, of_session)
    ON CONFLICT (tenant_id, session_id) DO UPDATE SET next_index = greatest(c.next_index, excluded.next_index);
  END IF;
  IF is_other_total THEN
    PERFORM rem.rem_recount_session(of_tenant, of_user, of_session);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION rem_on_messages_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM rem.rem_apply_message_changes(c.tenant_id, c.user_id, c.session_id, c.first_gone, c.last_erased, c.is_other_total) FROM (
      SELECT o.tenant_id, o.user_id, o.session_id, min(o.message_index) AS first_gone, max(o.message_index) AS last_erased,
             bool_or(o.deleted_at IS NULL) AS is_other_total
      FROM gone_rows o GROUP BY 1, 2, 3 ORDER BY 1, 3 OFFSET 0) c;
  ELSE
    PERFORM rem.rem_apply_message_changes(c.tenant_id, c.user_id, c.session_id, c.first_gone, NULL, c.is_other_total) FROM (
      SELECT o.tenant_id, o.user_id, o.session_id,
             min(o.message_index) FILTER (WHERE o.deleted_at IS NULL AND n.deleted_at IS NOT NULL
                                                OR o.expires_at IS DISTINCT FROM n.expires_at) AS first_gone,
             bool_or((o.deleted_at IS NULL) <> (n.deleted_at IS NULL)
                     OR o.token_count IS DISTINCT FROM n.token_count) AS is_other_total
      FROM gone_rows o JOIN new_rows n USING (tenant_id, id)
      WHERE (o.deleted_at IS NULL) <> (n.deleted_at IS NULL) OR o.expires_at IS DISTINCT FROM n.expires_at
        OR o.token_count IS DISTINCT FROM n.token_count
      GROUP BY 1, 2, 3 ORDER BY 1, 3 OFFSET 0) c;
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER follow_on_update AFTER UPDATE ON messages REFERENCING OLD TABLE AS gone_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_on_messages_changed();
CREATE OR REPLACE TRIGGER follow_on_delete AFTER DELETE ON messages REFERENCING OLD TABLE AS gone_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_on_messages_changed();

-- Its messages may have been deleted one by one while the session was; after `cascade_deletion`, by its name.
CREATE OR REPLACE FUNCTION rem_on_session_restored() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM rem.rem_update_session_totals(NEW.tenant_id, NEW.user_id, NEW.id);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER count_restored AFTER UPDATE OF deleted_at ON sessions FOR EACH ROW
  WHEN (OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS NULL) EXECUTE FUNCTION rem_on_session_restored();

-- An erased session leaves nothing behind.
CREATE OR REPLACE FUNCTION rem_on_sessions_erased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rem.session_counters c USING gone_rows o WHERE (c.tenant_id, c.session_id) = (o.tenant_id, o.id);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER forget_counters AFTER DELETE ON sessions REFERENCING OLD TABLE AS gone_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_on_sessions_erased();

-- Who writes messages directly chooses their indexes; one near the end of the integers would leave none for those that
-- follow.
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
