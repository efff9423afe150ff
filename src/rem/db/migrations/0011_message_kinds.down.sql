ALTER TABLE passages DROP COLUMN happened_at, DROP COLUMN is_statement;
ALTER TABLE messages DROP COLUMN kind;
