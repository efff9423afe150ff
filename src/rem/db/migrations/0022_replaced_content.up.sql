-- As before (0001), except for the command that masks secrets in stored texts. It says so for its transaction.
CREATE OR REPLACE FUNCTION rem_refuse_content_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('rem.masks_content', true) = 'on' THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'the content of % is never changed in place', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'content_is_immutable';
END $$;
