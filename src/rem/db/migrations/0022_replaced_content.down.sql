CREATE OR REPLACE FUNCTION rem_refuse_content_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the content of % is never changed in place', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'content_is_immutable';
END $$;
