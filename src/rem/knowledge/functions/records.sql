-- Let records go with the note, chunk or message that they were read from: its deletion, expiry and erasure are theirs.

-- Erase the records of erased rows. A row of another owner never counts, whatever id a record has in `source_id`.
CREATE OR REPLACE FUNCTION rem_erase_records() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rem.records r USING old_rows o
  WHERE r.tenant_id = o.tenant_id AND r.source_id = o.id AND r.source_table = TG_TABLE_NAME AND r.user_id IS NOT DISTINCT FROM o.user_id;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER erase_records AFTER DELETE ON resources REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_erase_records();
CREATE OR REPLACE TRIGGER erase_records AFTER DELETE ON messages REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_erase_records();

-- Delete, restore and expire records with their source. Records that the owner had deleted earlier stay deleted, as with the chunks
-- of a file. The records of a changed text are erased: whoever writes the new text writes its records.
CREATE OR REPLACE FUNCTION rem_follow_source_of_records() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.content IS DISTINCT FROM NEW.content AND current_setting('rem.reseals', true) IS DISTINCT FROM 'on' THEN
    DELETE FROM rem.records r
    WHERE r.tenant_id = OLD.tenant_id AND r.source_id = OLD.id AND r.source_table = TG_TABLE_NAME
      AND r.user_id IS NOT DISTINCT FROM OLD.user_id AND r.deleted_at IS NULL;
  END IF;
  UPDATE rem.records r
  SET deleted_at = CASE WHEN r.deleted_at IS NOT DISTINCT FROM OLD.deleted_at THEN NEW.deleted_at ELSE r.deleted_at END,
      expires_at = NEW.expires_at
  WHERE r.tenant_id = OLD.tenant_id AND r.source_id = OLD.id AND r.source_table = TG_TABLE_NAME
    AND r.user_id IS NOT DISTINCT FROM OLD.user_id
    AND (OLD.deleted_at, OLD.expires_at) IS DISTINCT FROM (NEW.deleted_at, NEW.expires_at);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER records_follow AFTER UPDATE OF content, deleted_at, expires_at ON resources FOR EACH ROW
  WHEN ((OLD.content, OLD.deleted_at, OLD.expires_at) IS DISTINCT FROM (NEW.content, NEW.deleted_at, NEW.expires_at))
  EXECUTE FUNCTION rem_follow_source_of_records();
CREATE OR REPLACE TRIGGER records_follow AFTER UPDATE OF content, deleted_at, expires_at ON messages FOR EACH ROW
  WHEN ((OLD.content, OLD.deleted_at, OLD.expires_at) IS DISTINCT FROM (NEW.content, NEW.deleted_at, NEW.expires_at))
  EXECUTE FUNCTION rem_follow_source_of_records();

-- Give new records the expiry of their source. The name of the trigger sorts after `mirror_insert`, because it changes mirrored rows.
CREATE OR REPLACE FUNCTION rem_inherit_source_expiry() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  source record;
  source_expiry timestamptz;
BEGIN
  FOR source IN
    SELECT n.tenant_id, n.user_id, n.source_table, n.source_id FROM new_rows n GROUP BY 1, 2, 3, 4
  LOOP
    IF source.source_table = 'messages' THEN
      SELECT m.expires_at INTO source_expiry FROM rem.messages m
      WHERE m.tenant_id = source.tenant_id AND m.id = source.source_id AND m.user_id IS NOT DISTINCT FROM source.user_id;
    ELSE
      SELECT s.expires_at INTO source_expiry FROM rem.resources s
      WHERE s.tenant_id = source.tenant_id AND s.id = source.source_id AND s.user_id IS NOT DISTINCT FROM source.user_id;
    END IF;
    CONTINUE WHEN source_expiry IS NULL;
    UPDATE rem.records r SET expires_at = source_expiry
    WHERE r.tenant_id = source.tenant_id AND r.source_id = source.source_id AND r.source_table = source.source_table
      AND r.user_id IS NOT DISTINCT FROM source.user_id AND (r.expires_at IS NULL OR r.expires_at > source_expiry);
  END LOOP;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER take_expiry AFTER INSERT ON records REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_inherit_source_expiry();
