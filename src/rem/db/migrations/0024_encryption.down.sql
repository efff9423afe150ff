-- Decrypt all texts first (rem encryption rotate with ENCRYPTION__ENABLED=false).
ALTER TABLE installation DROP COLUMN index_key;

CREATE OR REPLACE FUNCTION rem_refuse_content_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('rem.masks_content', true) = 'on' THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'the content of % is never changed in place', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'content_is_immutable';
END $$;
