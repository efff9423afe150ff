-- What the history of a conversation is made from besides its messages.

-- What the beginning of a session says, in short; derived, so that it can be made anew. All messages up to `last_index`
-- are in it.
CREATE TABLE session_summaries (
  tenant_id text NOT NULL,
  user_id text NOT NULL,
  session_id uuid NOT NULL,
  last_index integer NOT NULL DEFAULT -1,
  summary text NOT NULL DEFAULT '',
  token_count integer NOT NULL DEFAULT 0,
  -- Messages that say a decision or a key fact.
  kept integer[] NOT NULL DEFAULT '{}',
  -- Whoever writes the summary has until then; others leave it alone meanwhile.
  claimed_until timestamptz,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, session_id),
  CONSTRAINT session_summaries_session FOREIGN KEY (tenant_id, user_id, session_id)
    REFERENCES sessions (tenant_id, user_id, id) ON DELETE CASCADE
);

-- What a session's own row does not say. Without a foreign key: who erases a message must not wait for whoever deletes
-- the session, and waits for that message.
CREATE TABLE session_counters (
  tenant_id text NOT NULL,
  session_id uuid NOT NULL,
  -- No message gets an index below it: its key would be that of one that was erased.
  next_index integer NOT NULL DEFAULT 0,
  -- Whether the session's totals must be counted again: it was locked when messages were deleted.
  is_stale boolean NOT NULL DEFAULT false,
  PRIMARY KEY (tenant_id, session_id)
);
