-- What a message is for the memory of its author (rem/message_kinds.py), and when a passage happened.

ALTER TABLE messages ADD COLUMN kind text
  CONSTRAINT kind_is_known CHECK (kind IN ('statement', 'question', 'command', 'small_talk', 'quotation', 'answer'));
-- Old messages get their kind by a rough rule. Triggers would index all of them again.
ALTER TABLE messages DISABLE TRIGGER USER;
UPDATE messages SET kind = CASE WHEN role = 'assistant' THEN 'answer' WHEN rtrim(content) ~ '[?？]$' THEN 'question' ELSE 'statement' END
WHERE role IN ('user', 'assistant');
ALTER TABLE messages ENABLE TRIGGER USER;

ALTER TABLE passages
  -- NULL for types without a time.
  ADD COLUMN happened_at timestamptz,
  -- False for questions, commands, small talk and quotations. SEARCH over all tables leaves them out.
  ADD COLUMN is_statement boolean NOT NULL DEFAULT true;
UPDATE passages p SET happened_at = m.created_at, is_statement = m.kind IN ('statement', 'answer') FROM messages m
WHERE p.entity_type = 'messages' AND (m.tenant_id, m.id) = (p.tenant_id, p.entity_id);
UPDATE passages p SET happened_at = m.starts_timestamp FROM moments m
WHERE p.entity_type = 'moments' AND (m.tenant_id, m.id) = (p.tenant_id, p.entity_id);
UPDATE passages p SET happened_at = coalesce(r."timestamp", r.created_at) FROM resources r
WHERE p.entity_type = 'resources' AND (r.tenant_id, r.id) = (p.tenant_id, p.entity_id);
-- Answers in which REM quoted its memory are no longer indexed.
DELETE FROM passages p USING messages m
WHERE p.entity_type = 'messages' AND (m.tenant_id, m.id) = (p.tenant_id, p.entity_id) AND m.model = 'rem:local';
