-- Files and what was made of them belong together, whoever deletes, restores or erases a file and however.

-- A deleted file takes its chunks and entries along, and brings exactly those back when it is restored. What its owner had
-- deleted before stays deleted: it has another time of deletion.
CREATE OR REPLACE FUNCTION rem_cascade_file_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.user_id IS NULL THEN
    UPDATE rem.resources r SET deleted_at = NEW.deleted_at
    WHERE r.tenant_id = OLD.tenant_id AND r.user_id IS NULL AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = OLD.id::text
      AND r.deleted_at IS NOT DISTINCT FROM OLD.deleted_at;
  ELSE
    UPDATE rem.resources r SET deleted_at = NEW.deleted_at
    WHERE r.tenant_id = OLD.tenant_id AND r.user_id = OLD.user_id AND r.metadata ? 'file_id'
      AND r.metadata ->> 'file_id' = OLD.id::text AND r.deleted_at IS NOT DISTINCT FROM OLD.deleted_at;
  END IF;
  UPDATE rem.ontologies o SET deleted_at = NEW.deleted_at
  WHERE o.tenant_id = OLD.tenant_id AND o.file_id = OLD.id AND o.user_id IS NOT DISTINCT FROM OLD.user_id AND o.origin = 'ingest'
    AND o.deleted_at IS NOT DISTINCT FROM OLD.deleted_at;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER cascade_deletion AFTER UPDATE OF deleted_at ON files FOR EACH ROW
  WHEN (OLD.deleted_at IS DISTINCT FROM NEW.deleted_at) EXECUTE FUNCTION rem_cascade_file_deletion();

-- What is erased takes all of it along, also what was deleted before.
CREATE OR REPLACE FUNCTION rem_cascade_file_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.user_id IS NULL THEN
    DELETE FROM rem.resources r WHERE r.tenant_id = OLD.tenant_id AND r.user_id IS NULL AND r.metadata ? 'file_id'
      AND r.metadata ->> 'file_id' = OLD.id::text;
  ELSE
    DELETE FROM rem.resources r WHERE r.tenant_id = OLD.tenant_id AND r.user_id = OLD.user_id AND r.metadata ? 'file_id'
      AND r.metadata ->> 'file_id' = OLD.id::text;
  END IF;
  DELETE FROM rem.ontologies o
  WHERE o.tenant_id = OLD.tenant_id AND o.file_id = OLD.id AND o.user_id IS NOT DISTINCT FROM OLD.user_id AND o.origin = 'ingest';
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER cascade_erasure AFTER DELETE ON files FOR EACH ROW EXECUTE FUNCTION rem_cascade_file_erasure();
