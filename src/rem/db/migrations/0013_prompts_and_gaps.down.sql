ALTER TABLE tool_gaps DROP COLUMN occurrences, DROP COLUMN agent;
ALTER TABLE sessions DROP COLUMN system_prompt;
