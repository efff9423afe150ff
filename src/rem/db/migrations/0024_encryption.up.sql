-- The secret for the keyed hashes of words and texts, encrypted with a key of the settings; NULL if nothing is encrypted.
ALTER TABLE installation ADD COLUMN index_key text;

-- As before (0022), but a content may become encrypted, or encrypted with another key: a row that is read and written back keeps its
-- text. The database cannot tell whether it is the same text.
CREATE OR REPLACE FUNCTION rem_refuse_content_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  was jsonb := to_jsonb(OLD);
  becomes jsonb := to_jsonb(NEW);
BEGIN
  IF current_setting('rem.masks_content', true) = 'on' OR NOT EXISTS (
      SELECT FROM unnest('{content,tool_calls,role,session_id,message_index}'::text[]) AS c (name)
      WHERE was -> c.name IS DISTINCT FROM becomes -> c.name
        AND (substring(becomes ->> c.name FROM 'rem1:([a-z0-9-]+):') IS NULL
             OR substring(becomes ->> c.name FROM 'rem1:([a-z0-9-]+):') = substring(was ->> c.name FROM 'rem1:([a-z0-9-]+):'))) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'the content of % is never changed in place', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'content_is_immutable';
END $$;
