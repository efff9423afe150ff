-- The tables of the entity types. Each has its own columns here, and the common ones from rem_make_entity.

CREATE TABLE resources (
  name text NOT NULL,
  uri text,
  ordinal integer NOT NULL DEFAULT 0 CHECK (ordinal >= 0),
  content text NOT NULL DEFAULT '',
  category text,
  timestamp timestamptz,
  related_entities jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(related_entities) = 'array')
);
SELECT rem_make_entity('resources', 'rem.rem_key(name)');
CREATE INDEX resources_uri ON resources (tenant_id, uri, ordinal);
-- Chunks are found by their file.
CREATE INDEX resources_file ON resources (tenant_id, user_id, ((metadata ->> 'file_id'))) WHERE metadata ? 'file_id';

-- The rows of tables and lists in the texts of other rows. Triggers (knowledge/functions/records.sql) let each go with its source.
CREATE TABLE records (
  kind text NOT NULL CONSTRAINT kind_is_known CHECK (kind IN ('row', 'item', 'field')),
  caption text NOT NULL DEFAULT '',
  headers jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(headers) = 'array'),
  "values" jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof("values") = 'array'),
  content text NOT NULL DEFAULT '',
  checked boolean,
  block integer NOT NULL DEFAULT 0 CHECK (block >= 0),
  ordinal integer NOT NULL DEFAULT 0 CHECK (ordinal >= 0),
  source_table text NOT NULL DEFAULT 'resources' CONSTRAINT source_table_is_known CHECK (source_table IN ('resources', 'messages')),
  source_id uuid NOT NULL,
  file_id uuid,
  starts integer NOT NULL DEFAULT 0,
  ends integer NOT NULL DEFAULT 0
);
SELECT rem_make_entity('records', 'id::text');
CREATE INDEX records_source ON records (tenant_id, source_id);
CREATE INDEX records_file ON records (tenant_id, file_id, block, ordinal) WHERE file_id IS NOT NULL;

CREATE TABLE moments (
  name text NOT NULL,
  moment_type text,
  category text,
  starts_timestamp timestamptz,
  ends_timestamp timestamptz,
  present_persons text[] NOT NULL DEFAULT '{}',
  emotion_tags text[] NOT NULL DEFAULT '{}',
  topic_tags text[] NOT NULL DEFAULT '{}',
  summary text NOT NULL DEFAULT '',
  source_resource_ids uuid[] NOT NULL DEFAULT '{}',
  source_session_id uuid,
  previous_moment_keys text[] NOT NULL DEFAULT '{}',
  CONSTRAINT moment_in_order CHECK (ends_timestamp >= starts_timestamp)
);
SELECT rem_make_entity('moments', 'rem.rem_key(name)');
CREATE INDEX moments_time ON moments (tenant_id, user_id, starts_timestamp);
-- Moments are found by what they say, word for word.
CREATE INDEX moments_summary ON moments (tenant_id, md5(summary));

CREATE TABLE ontologies (
  name text NOT NULL,
  uri text,
  content text NOT NULL DEFAULT '',
  extracted_data jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(extracted_data) = 'object'),
  confidence_score double precision CHECK (confidence_score BETWEEN 0 AND 1),
  agent_schema text,
  file_id uuid,
  extraction_timestamp timestamptz
);
SELECT rem_make_entity('ontologies', 'rem.rem_key(name)');
-- Entries of the knowledge base are found by their file.
CREATE INDEX ontologies_file ON ontologies (tenant_id, file_id) WHERE file_id IS NOT NULL;

CREATE TABLE ontology_configs (
  name text NOT NULL,
  agent_schema text NOT NULL,
  mime_type_pattern text,
  uri_pattern text,
  tag_filter text[] NOT NULL DEFAULT '{}',
  priority integer NOT NULL DEFAULT 100,
  enabled boolean NOT NULL DEFAULT true
);
SELECT rem_make_entity('ontology_configs', 'rem.rem_key(name)');

CREATE TABLE users (
  name text NOT NULL,
  email text,
  role text,
  tier text,
  summary text NOT NULL DEFAULT '',
  interests text[] NOT NULL DEFAULT '{}',
  preferred_topics text[] NOT NULL DEFAULT '{}',
  activity_level text,
  last_active_at timestamptz,
  CONSTRAINT email_fits CHECK (octet_length(email) BETWEEN 3 AND 1024)
);
SELECT rem_make_entity('users', 'rem.rem_key(name)');
CREATE UNIQUE INDEX users_live_email ON users (tenant_id, user_id, rem_key(email)) NULLS NOT DISTINCT
  WHERE deleted_at IS NULL AND email IS NOT NULL;

-- Sessions and messages always have an owner (anonymous ones `anon:{session_id}`), so the tenant never reads a private chat.
CREATE TABLE sessions (
  name text,
  mode text NOT NULL DEFAULT 'normal',
  description text,
  agent_schema text,
  message_count integer NOT NULL DEFAULT 0 CHECK (message_count >= 0),
  total_tokens bigint NOT NULL DEFAULT 0 CHECK (total_tokens >= 0),
  settings jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(settings) = 'object'),
  system_prompt text
);
SELECT rem_make_entity('sessions', 'rem.rem_key(coalesce(name, id::text))');
ALTER TABLE sessions
  ALTER COLUMN user_id SET NOT NULL,
  ADD CONSTRAINT sessions_owner UNIQUE (tenant_id, user_id, id);
CREATE INDEX sessions_recent ON sessions (tenant_id, user_id, updated_at);

CREATE TABLE messages (
  session_id uuid NOT NULL,
  message_index integer NOT NULL CHECK (message_index >= 0),
  role text NOT NULL CONSTRAINT role_is_known CHECK (role IN ('user', 'assistant', 'system', 'tool')),
  content text NOT NULL DEFAULT '',
  tool_calls jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(tool_calls) = 'array'),
  tool_call_id text,
  tool_name text,
  model text,
  token_count integer CHECK (token_count >= 0),
  -- What a message is for the memory of its author (rem/message_kinds.py).
  kind text CONSTRAINT kind_is_known CHECK (kind IN ('statement', 'question', 'command', 'small_talk', 'quotation', 'answer')),
  CONSTRAINT content_or_tool_calls CHECK (content <> '' OR tool_calls <> '[]' OR tool_call_id IS NOT NULL)
);
SELECT rem_make_entity('messages', $$'session-' || session_id::text || '-msg-' || message_index::text$$);
ALTER TABLE messages
  ALTER COLUMN user_id SET NOT NULL,
  -- The owner stands in the foreign key, so a message cannot be put into another's session.
  ADD CONSTRAINT messages_session FOREIGN KEY (tenant_id, user_id, session_id)
    REFERENCES sessions (tenant_id, user_id, id) ON DELETE CASCADE;
CREATE INDEX messages_session_order ON messages (tenant_id, user_id, session_id, message_index);
-- What hybrid memory keeps however long ago it was said: found without reading the conversation.
CREATE INDEX messages_important ON messages (tenant_id, user_id, session_id, message_index)
  WHERE deleted_at IS NULL AND (role = 'system' OR metadata @> '{"important": true}');
CREATE TRIGGER keep_content BEFORE UPDATE OF content, role, tool_calls, session_id, message_index ON messages FOR EACH ROW
  WHEN ((OLD.content, OLD.role, OLD.tool_calls, OLD.session_id, OLD.message_index)
        IS DISTINCT FROM (NEW.content, NEW.role, NEW.tool_calls, NEW.session_id, NEW.message_index))
  EXECUTE FUNCTION rem_refuse_content_change();

-- A deleted session takes its messages and shares along, and brings exactly those back when it is restored.
CREATE FUNCTION rem_cascade_session_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem.messages m SET deleted_at = NEW.deleted_at
  WHERE (m.tenant_id, m.user_id, m.session_id) = (NEW.tenant_id, NEW.user_id, NEW.id)
    AND m.deleted_at IS NOT DISTINCT FROM OLD.deleted_at;
  UPDATE rem.shared_sessions s SET deleted_at = NEW.deleted_at
  WHERE (s.tenant_id, s.user_id, s.session_id) = (NEW.tenant_id, NEW.user_id, NEW.id)
    AND s.deleted_at IS NOT DISTINCT FROM OLD.deleted_at;
  RETURN NULL;
END $$;
CREATE TRIGGER cascade_deletion AFTER UPDATE OF deleted_at ON sessions FOR EACH ROW
  WHEN (OLD.deleted_at IS DISTINCT FROM NEW.deleted_at) EXECUTE FUNCTION rem_cascade_session_deletion();

-- What is said after a conversation was deleted would be visible without it. The deletion locks the session against the
-- foreign keys of messages that are being written, so it sees those that came first; those that come later wait for
-- it in their foreign key, and then see it here (the check comes after the foreign key's, which is why it is AFTER).
CREATE FUNCTION rem_lock_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM rem.sessions s WHERE (s.tenant_id, s.id) = (OLD.tenant_id, OLD.id) FOR UPDATE;
  RETURN NEW;
END $$;
CREATE TRIGGER lock_before_deletion BEFORE UPDATE OF deleted_at ON sessions FOR EACH ROW
  WHEN (OLD.deleted_at IS DISTINCT FROM NEW.deleted_at) EXECUTE FUNCTION rem_lock_session();

CREATE FUNCTION rem_refuse_deleted_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM rem.sessions s
  WHERE (s.tenant_id, s.user_id, s.id) = (NEW.tenant_id, NEW.user_id, NEW.session_id) AND s.deleted_at IS NOT NULL;
  IF FOUND THEN
    RAISE EXCEPTION 'the session is deleted' USING ERRCODE = 'restrict_violation', CONSTRAINT = 'session_is_deleted';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER refuse_deleted_session AFTER INSERT OR UPDATE OF deleted_at ON messages FOR EACH ROW
  WHEN (NEW.deleted_at IS NULL) EXECUTE FUNCTION rem_refuse_deleted_session();

CREATE TABLE documents (
  content text NOT NULL CONSTRAINT content_not_empty CHECK (content <> ''),
  embedding vector,
  embedding_model text
);
SELECT rem_make_entity('documents', 'id::text');
CREATE TRIGGER keep_content BEFORE UPDATE OF content ON documents FOR EACH ROW
  WHEN (OLD.content IS DISTINCT FROM NEW.content) EXECUTE FUNCTION rem_refuse_content_change();

CREATE TABLE files (
  name text NOT NULL,
  uri text,
  mime_type text,
  size_bytes bigint CHECK (size_bytes >= 0),
  checksum text,
  processing_status text NOT NULL DEFAULT 'pending'
    CONSTRAINT processing_status_is_known CHECK (processing_status IN ('pending', 'processing', 'completed', 'failed'))
);
SELECT rem_make_entity('files', 'rem.rem_key(name)');
CREATE INDEX files_uri ON files (tenant_id, uri);

CREATE TABLE schemas (
  name text NOT NULL,
  version text NOT NULL DEFAULT '1.0.0',
  kind text NOT NULL DEFAULT 'agent' CONSTRAINT kind_is_known CHECK (kind IN ('agent', 'evaluator')),
  spec jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(spec) = 'object'),
  description text NOT NULL DEFAULT ''
);
SELECT rem_make_entity('schemas', 'rem.rem_key(name)');

CREATE TABLE feedbacks (
  session_id uuid,
  message_id uuid,
  rating integer CHECK (rating BETWEEN -1 AND 5),
  categories text[] NOT NULL DEFAULT '{}',
  comment text,
  trace_id text,
  span_id text
);
SELECT rem_make_entity('feedbacks', 'id::text');
CREATE INDEX feedbacks_session ON feedbacks (tenant_id, session_id);

CREATE TABLE shared_sessions (
  session_id uuid NOT NULL,
  owner_user_id text NOT NULL,
  shared_with_user_id text NOT NULL,
  CONSTRAINT shared_with_another CHECK (owner_user_id <> shared_with_user_id)
);
SELECT rem_make_entity('shared_sessions', 'id::text');
ALTER TABLE shared_sessions
  ALTER COLUMN user_id SET NOT NULL,
  -- Only the owner of a session can share it.
  ADD CONSTRAINT shared_by_owner CHECK (owner_user_id = user_id),
  ADD CONSTRAINT shared_sessions_session FOREIGN KEY (tenant_id, user_id, session_id)
    REFERENCES sessions (tenant_id, user_id, id) ON DELETE CASCADE;
CREATE UNIQUE INDEX shared_sessions_once ON shared_sessions (tenant_id, session_id, shared_with_user_id)
  WHERE deleted_at IS NULL;
CREATE INDEX shared_sessions_receiver ON shared_sessions (tenant_id, shared_with_user_id);

CREATE TABLE approvals (
  session_id uuid,
  action_type text NOT NULL CONSTRAINT action_type_is_given CHECK (action_type <> ''),
  action_description text NOT NULL,
  risk_level text NOT NULL
    CONSTRAINT risk_level_is_known CHECK (risk_level IN ('reversible', 'reversible_with_delay', 'irreversible')),
  tool_name text NOT NULL,
  parameters jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(parameters) = 'object'),
  requires_immediate_approval boolean NOT NULL DEFAULT true,
  timeout_seconds integer CHECK (timeout_seconds > 0),
  status text NOT NULL DEFAULT 'pending'
    CONSTRAINT status_is_known CHECK (status IN ('pending', 'approved', 'rejected', 'expired')),
  decided_by text,
  decided_at timestamptz,
  agent text,
  -- What the user was shown, exactly enough to carry it out: such as the rows that a change is about, with their versions.
  proposal jsonb NOT NULL DEFAULT '{}' CONSTRAINT proposal_is_object CHECK (jsonb_typeof(proposal) = 'object'),
  -- NULL: there is no time limit. `expires_at` is when the row itself is erased.
  decide_by timestamptz,
  -- NULL: an approved call has not begun yet. `unknown`: it began and never reported its end.
  execution text CONSTRAINT execution_is_known CHECK (execution IN ('running', 'done', 'failed', 'unknown')),
  executed_at timestamptz,
  outcome text,
  CONSTRAINT only_approved_is_executed CHECK (execution IS NULL OR status = 'approved')
);
SELECT rem_make_entity('approvals', 'id::text');
ALTER TABLE approvals ALTER COLUMN confidence SET DEFAULT 1, ALTER COLUMN confidence SET NOT NULL;
CREATE INDEX approvals_pending ON approvals (tenant_id, user_id, created_at) WHERE status = 'pending';

-- The run of an agent that waits for the decision: its messages, agent, model and settings. A decision deletes it.
CREATE TABLE approval_runs (
  tenant_id text NOT NULL,
  approval_id uuid NOT NULL,
  user_id text,
  -- JSON as text: a model may write characters that jsonb refuses.
  state text NOT NULL,
  PRIMARY KEY (tenant_id, approval_id),
  FOREIGN KEY (tenant_id, approval_id) REFERENCES approvals (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE tool_gaps (
  session_id uuid,
  missing_tools text[] NOT NULL,
  attempted_task text NOT NULL,
  existing_tools_checked text[] NOT NULL DEFAULT '{}',
  proposed_mcp_server text,
  agent text,
  occurrences integer NOT NULL DEFAULT 1 CONSTRAINT occurrences_is_positive CHECK (occurrences > 0)
);
SELECT rem_make_entity('tool_gaps', 'id::text');

INSERT INTO entity_types (name, natural_key, key_expressions, summary_expression, search_expression, is_cached, is_builtin,
                          search_fields, title_field, alias_expression, exact_key_expression, weak_key_expression)
VALUES
  ('resources', 'rem.rem_key(name)', '{r.key}', 'r.content', 'r.content', true, true, '{content}', 'name',
   NULL, 'rem.rem_keys_of(r.metadata -> ''section_keys'')', 'rem.rem_keys_of(r.metadata -> ''headings'')'),
  -- FUZZY does not compare them: every text of a file would be found twice.
  ('records', 'id::text', '{r.key}', '''''', 'r.content', false, true, '{content}', NULL, NULL, NULL, NULL),
  ('moments', 'rem.rem_key(name)', '{r.key}', 'r.summary', 'r.summary', true, true, '{summary}', 'name', NULL, NULL, NULL),
  ('ontologies', 'rem.rem_key(name)', '{r.key}', 'r.content', 'r.content', true, true, '{content}', 'name',
   'rem.rem_keys_of(r.extracted_data -> ''aliases'')', NULL, NULL),
  ('ontology_configs', 'rem.rem_key(name)', '{r.key}', 'r.agent_schema', '''''', true, true, '{}', 'name', NULL, NULL, NULL),
  ('users', 'rem.rem_key(name)', '{r.key,rem.rem_key(r.email),r.id::text}', 'r.summary',
   'concat_ws(E''\n'', r.summary, r.role, r.interests::text, r.preferred_topics::text)', true, true,
   '{summary,role,interests,preferred_topics}', 'name', NULL, NULL, NULL),
  ('sessions', 'rem.rem_key(coalesce(name, id::text))', '{r.key,r.id::text}', 'r.description', 'r.description', false, true,
   '{description}', 'name', NULL, NULL, NULL),
  ('messages', $$'session-' || session_id::text || '-msg-' || message_index::text$$, '{r.key}', 'r.content', 'r.content', false, true,
   '{content}', NULL, NULL, NULL, NULL),
  ('documents', 'id::text', '{r.key}', 'r.content', 'r.content', false, true, '{content}', NULL, NULL, NULL, NULL),
  ('files', 'rem.rem_key(name)', '{r.key}', 'r.uri', '''''', true, true, '{}', 'name',
   'rem.rem_keys_of(r.metadata -> ''aliases'')', 'rem.rem_keys_of(jsonb_build_array(r.uri))', NULL),
  ('schemas', 'rem.rem_key(name)', '{r.key}', 'r.description', 'r.description', true, true, '{description}', 'name', NULL, NULL, NULL),
  ('feedbacks', 'id::text', '{r.key}', 'r.comment', '''''', false, true, '{}', NULL, NULL, NULL, NULL),
  ('shared_sessions', 'id::text', '{r.key}', '''''', '''''', false, true, '{}', NULL, NULL, NULL, NULL),
  ('approvals', 'id::text', '{r.key}', 'r.action_description', '''''', false, true, '{}', NULL, NULL, NULL, NULL),
  ('tool_gaps', 'id::text', '{r.key}', 'r.attempted_task', '''''', false, true, '{}', NULL, NULL, NULL, NULL);

-- What has lapsed is found without looking at everything else.
DO $$
DECLARE
  entity text;
BEGIN
  FOR entity IN SELECT name FROM entity_types WHERE is_builtin LOOP
    EXECUTE format('CREATE INDEX %I ON %I (expires_at) WHERE expires_at IS NOT NULL', entity || '_expires', entity);
  END LOOP;
END $$;
