-- Conversations: a turn begins or goes on in one round trip, and costs the same however long the session is.

-- Adds to a session's totals, which locks it until the end of the transaction, so that indexes are given one after the
-- other. 'open', 'new' if it was made just now, 'deleted', or 'foreign' if another user has it.
CREATE OR REPLACE FUNCTION rem_open_session(
  of_tenant text, of_user text, of_session uuid, agent text, about jsonb, added integer, added_tokens bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  owner text;
BEGIN
  LOOP
    UPDATE rem.sessions s SET message_count = s.message_count + added, total_tokens = s.total_tokens + added_tokens,
      agent_schema = coalesce(s.agent_schema, agent)
    WHERE s.tenant_id = of_tenant AND s.id = of_session AND s.user_id = of_user AND s.deleted_at IS NULL
      AND (s.expires_at IS NULL OR s.expires_at > now());
    IF FOUND THEN
      RETURN 'open';
    END IF;
    SELECT s.user_id INTO owner FROM rem.sessions s WHERE s.tenant_id = of_tenant AND s.id = of_session;
    IF FOUND THEN
      RETURN CASE WHEN owner = of_user THEN 'deleted' ELSE 'foreign' END;
    END IF;
    INSERT INTO rem.sessions (tenant_id, user_id, id, agent_schema, metadata, message_count, total_tokens)
    VALUES (of_tenant, of_user, of_session, agent, coalesce(about, '{}'), added, added_tokens)
    -- Somebody may have been faster: then it is looked at again.
    ON CONFLICT (tenant_id, id) DO NOTHING;
    IF FOUND THEN
      RETURN 'new';
    END IF;
  END LOOP;
END $$;

-- The index of the next message of a session. Deleted ones count: a key never means another message than it did.
CREATE OR REPLACE FUNCTION rem_next_index(of_tenant text, of_user text, of_session uuid) RETURNS integer
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_sort = off
RETURN coalesce((SELECT m.message_index + 1 FROM rem.messages m
  WHERE m.tenant_id = of_tenant AND m.user_id = of_user AND m.session_id = of_session
  ORDER BY m.message_index DESC LIMIT 1), 0);

-- Stores messages behind the others; the caller has locked the session.
CREATE OR REPLACE FUNCTION rem_add_messages(of_tenant text, of_user text, of_session uuid, first_index integer, new_messages json)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO rem.messages (tenant_id, user_id, id, session_id, message_index, role, content, tool_calls, tool_call_id,
                            tool_name, model, token_count, metadata, created_at, updated_at)
  SELECT of_tenant, of_user, n.id, of_session, first_index + n.place::integer - 1, n.role, n.content, n.tool_calls,
         n.tool_call_id, n.tool_name, n.model, n.token_count, n.metadata, t.moment, t.moment
  FROM ROWS FROM (json_to_recordset(new_messages) AS (
         id uuid, role text, content text, tool_calls jsonb, tool_call_id text, tool_name text, model text,
         token_count integer, metadata jsonb)) WITH ORDINALITY
         AS n (id, role, content, tool_calls, tool_call_id, tool_name, model, token_count, metadata, place)
  -- Not now(): a writer that waited for another began before it.
  CROSS JOIN (SELECT clock_timestamp() AS moment) t
$$;

-- Stores messages at the end of a session, which is made if it does not exist: ["open", the first one's index].
CREATE OR REPLACE FUNCTION rem_append_messages(
  of_tenant text, of_user text, of_session uuid, agent text, about jsonb, new_messages json, added integer, added_tokens bigint
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  state text := rem.rem_open_session(of_tenant, of_user, of_session, agent, about, added, added_tokens);
  first_index integer;
BEGIN
  IF state IN ('open', 'new') THEN
    first_index := rem.rem_next_index(of_tenant, of_user, of_session);
    PERFORM rem.rem_add_messages(of_tenant, of_user, of_session, first_index, new_messages);
  END IF;
  RETURN json_build_array(state, first_index);
END $$;

-- A message as the model is given it, as JSON: [index, role, content, tool_name, tool_call_id, tool_calls, arguments,
-- whether it is truncated, token_count or NULL if it must be counted, whether it is important, id]. Long answers are
-- shortened, with the key that gives them back; what others say never is.
CREATE OR REPLACE FUNCTION rem_history_line(m rem.messages, is_important boolean) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
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
CREATE OR REPLACE FUNCTION rem_history_tokens(role text, content_bytes integer, token_count integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 4 + CASE
  WHEN role = 'assistant' AND content_bytes > 480 THEN 45 + 340 * coalesce(token_count, content_bytes / 4)::bigint / content_bytes
  ELSE coalesce(token_count, content_bytes / 4)
END;

-- The newest messages of a session before an index, as far as a budget of tokens goes, newest first; at least the newest
-- turn's own. Only they are read, by their index: a bounded number, however long the session is. Once `enough` tokens
-- are there, what is summarised already (up to `known_to`) is left out.
CREATE OR REPLACE FUNCTION rem_history(
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
    tokens := tokens + rem.rem_history_tokens(m.role, octet_length(m.content), m.token_count);
    is_start := m.role IN ('user', 'system');
    EXIT WHEN has_start AND tokens > budget;
    -- Of a turn that is too long alone, the newest messages are given, and the one that it began with.
    CONTINUE WHEN tokens > budget AND NOT is_start AND lines <> '{}';
    lines := lines || rem.rem_history_line(m, is_start AND m.role = 'system' OR m.metadata @> '{"important": true}'
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
    lines := lines || rem.rem_history_line(m, true);
  END LOOP;
  FOREACH wanted IN ARRAY kept LOOP
    CONTINUE WHEN wanted >= before_index;
    SELECT * INTO m FROM rem.messages r
    WHERE r.tenant_id = of_tenant AND r.user_id = of_user AND r.session_id = of_session
      -- A range, so that the order is worth something: it leads to the index of the sessions.
      AND r.message_index BETWEEN wanted AND wanted
    ORDER BY r.message_index LIMIT 1;
    CONTINUE WHEN NOT FOUND OR m.deleted_at IS NOT NULL OR m.expires_at <= now();
    lines := lines || rem.rem_history_line(m, true);
  END LOOP;
  RETURN lines;
END $$;

-- What a model is told of a session before an index: the history, newest first, what is kept from before it, the summary.
CREATE OR REPLACE FUNCTION rem_conversation(
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
  lines := rem.rem_history(of_tenant, of_user, of_session, before_index, budget - least(coalesce(known.token_count, 0), budget / 4),
                           coalesce(known.last_index, -1), budget * 2 / 5, coalesce(known.kept, '{}'));
  IF strategy = 'hybrid' AND lines <> '{}' THEN
    kept_lines := rem.rem_kept_messages(of_tenant, of_user, of_session, (lines[cardinality(lines)] ->> 0)::integer,
                                        coalesce(known.kept, '{}'));
  END IF;
  RETURN json_build_object('history', array_to_json(lines), 'kept', array_to_json(kept_lines),
                           'summary', nullif(known.summary, ''));
END $$;

-- A turn: stores what the user says and gives the conversation before it. The session is made if it does not exist.
CREATE OR REPLACE FUNCTION rem_begin_turn(
  of_tenant text, of_user text, of_session uuid, agent text, about jsonb, new_message json, new_tokens bigint,
  budget integer, strategy text
) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  state text := rem.rem_open_session(of_tenant, of_user, of_session, agent, about, 1, new_tokens);
  next_index integer := 0;
  conversation json;
BEGIN
  IF state = 'open' THEN
    next_index := rem.rem_next_index(of_tenant, of_user, of_session);
    conversation := rem.rem_conversation(of_tenant, of_user, of_session, next_index, budget, strategy);
  END IF;
  IF state IN ('open', 'new') THEN
    PERFORM rem.rem_add_messages(of_tenant, of_user, of_session, next_index, new_message);
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
    tokens := tokens + rem.rem_history_tokens(m.role, m.bytes, m.token_count);
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

-- A summary must not tell what was deleted: it is thrown away with the first of its messages, and made anew.
CREATE OR REPLACE FUNCTION rem_forget_summaries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    DELETE FROM rem.session_summaries s USING (
      SELECT o.tenant_id, o.session_id, min(o.message_index) AS first_index FROM gone_rows o GROUP BY 1, 2) g
    WHERE (s.tenant_id, s.session_id) = (g.tenant_id, g.session_id) AND (s.last_index >= g.first_index OR s.claimed_until IS NOT NULL);
  ELSE
    DELETE FROM rem.session_summaries s USING (
      SELECT o.tenant_id, o.session_id, min(o.message_index) AS first_index
      FROM gone_rows o JOIN new_rows n USING (tenant_id, id)
      WHERE o.deleted_at IS NULL AND n.deleted_at IS NOT NULL OR o.expires_at IS DISTINCT FROM n.expires_at
      GROUP BY 1, 2) g
    WHERE (s.tenant_id, s.session_id) = (g.tenant_id, g.session_id) AND (s.last_index >= g.first_index OR s.claimed_until IS NOT NULL);
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER forget_summaries_on_update AFTER UPDATE ON messages REFERENCING OLD TABLE AS gone_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_forget_summaries();
CREATE OR REPLACE TRIGGER forget_summaries_on_delete AFTER DELETE ON messages REFERENCING OLD TABLE AS gone_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_forget_summaries();
