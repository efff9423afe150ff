-- The system prompt of a session, and tool gaps counted for each agent and tool.

ALTER TABLE sessions ADD COLUMN system_prompt text;

ALTER TABLE tool_gaps
  ADD COLUMN agent text,
  ADD COLUMN occurrences integer NOT NULL DEFAULT 1 CONSTRAINT occurrences_is_positive CHECK (occurrences > 0);
