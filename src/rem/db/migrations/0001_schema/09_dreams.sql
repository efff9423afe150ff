-- What was dreamt, with where every statement came from.

-- A dream for one owner. Without a user it is over what the tenant shares.
CREATE TABLE dream_runs (
  tenant_id text NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  user_id text,
  dreams text[] NOT NULL,
  -- The language model that it used; NULL for the baseline.
  model text,
  state text NOT NULL DEFAULT 'running' CONSTRAINT state_is_known CHECK (state IN ('running', 'done', 'failed', 'undone')),
  counts jsonb NOT NULL DEFAULT '{}',
  error text,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX dream_runs_owner ON dream_runs (tenant_id, user_id, started_at);

-- Everything that a dream said: a row, an edge of a row, or a field of a row. What is live stands in the entity tables;
-- what is ended was replaced by something newer and tells what was believed before; what is refused was deleted or
-- corrected by its owner, holds no content, and keeps the dream from saying it again.
CREATE TABLE statements (
  tenant_id text NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  user_id text,
  run_id uuid NOT NULL,
  dream text NOT NULL,
  -- What the dream looked at as one: it replaces all that it said of a subject before.
  subject_type text NOT NULL,
  subject_id uuid NOT NULL,
  kind text NOT NULL CONSTRAINT kind_is_known CHECK (kind IN ('row', 'edge', 'field')),
  entity_type text NOT NULL,
  entity_id uuid NOT NULL,
  -- A row's key, an edge's `rel_type dst_type/dst`, or a field's name.
  name text NOT NULL,
  value jsonb NOT NULL,
  -- The keys of its sources, for people. What counts is statement_sources.
  source_keys text[] NOT NULL DEFAULT '{}',
  confidence double precision CONSTRAINT confidence_is_share CHECK (confidence BETWEEN 0 AND 1),
  valid_from timestamptz,
  valid_to timestamptz,
  state text NOT NULL DEFAULT 'live' CONSTRAINT state_is_known CHECK (state IN ('live', 'ended', 'refused')),
  stated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at timestamptz,
  ended_by uuid,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT valid_in_order CHECK (valid_to >= valid_from),
  CONSTRAINT statements_run FOREIGN KEY (tenant_id, run_id) REFERENCES dream_runs (tenant_id, id)
);
CREATE INDEX statements_subject ON statements (tenant_id, subject_id, dream);
CREATE INDEX statements_entity ON statements (tenant_id, entity_id);
CREATE INDEX statements_run ON statements (tenant_id, run_id);
CREATE INDEX statements_ended_by ON statements (tenant_id, ended_by) WHERE ended_by IS NOT NULL;
CREATE INDEX statements_owner ON statements (tenant_id, user_id, dream, state);
-- What a dream calls something is looked up by its name, and where a moment of a conversation begins by its message.
CREATE INDEX statements_name ON statements (tenant_id, user_id, name) WHERE kind = 'row';
CREATE INDEX statements_beginning ON statements (tenant_id, subject_id, ((value #>> '{metadata,first_index}')::integer))
  WHERE dream = 'moments' AND kind = 'row' AND state = 'live';

-- What a statement was made from. When it goes, so does the statement (functions/dreaming.sql).
CREATE TABLE statement_sources (
  tenant_id text NOT NULL,
  statement_id uuid NOT NULL,
  source_type text NOT NULL,
  source_id uuid NOT NULL,
  PRIMARY KEY (tenant_id, source_id, statement_id),
  CONSTRAINT statement_sources_statement FOREIGN KEY (tenant_id, statement_id)
    REFERENCES statements (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX statement_sources_statement ON statement_sources (tenant_id, statement_id);

-- How far a dream has come with a source: what it has not seen, or not in this version, is news.
CREATE TABLE dream_progress (
  tenant_id text NOT NULL,
  user_id text,
  dream text NOT NULL,
  source_type text NOT NULL,
  source_id uuid NOT NULL,
  -- The version that it saw: of a row its `updated_at`.
  seen_at timestamptz,
  -- Of a session: the last message that it saw.
  seen_index integer,
  -- Of a session: which messages up to there it is to look at again.
  again int4multirange NOT NULL DEFAULT '{}',
  PRIMARY KEY (tenant_id, source_id, dream)
);
CREATE INDEX dream_progress_owner ON dream_progress (tenant_id, user_id, dream);
