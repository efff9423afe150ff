-- Keep the rows made from a file consistent with the file when it is deleted, restored or erased.

-- Delete the chunks and entries of a file with it, and restore exactly those with it. Rows that the owner had deleted
-- earlier have another deletion time and stay deleted.
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
  IF NEW.deleted_at IS NULL AND NEW.processing_status = 'pending' AND NEW.metadata ? 'wanted' THEN
    -- The file was deleted before a worker had read it: queue it again.
    PERFORM rem.rem_enqueue_ingest(NEW.tenant_id, NEW.user_id, NEW.id);
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER cascade_deletion AFTER UPDATE OF deleted_at ON files FOR EACH ROW
  WHEN (OLD.deleted_at IS DISTINCT FROM NEW.deleted_at) EXECUTE FUNCTION rem_cascade_file_deletion();

-- Enqueue the job that reads a file. A second job for the same file finds nothing to do.
CREATE OR REPLACE FUNCTION rem_enqueue_ingest(of_tenant text, of_user text, of_file uuid) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rem_jobs.jobs (kind, tenant_id, user_id, payload)
  VALUES ('ingest', of_tenant, of_user,
          jsonb_build_object('tenant_id', of_tenant, 'user_id', of_user, 'file_id', of_file)::text)
$$;

-- Return the id of the file that an `ingest` job reads; NULL if its payload has none.
CREATE OR REPLACE FUNCTION rem_ingest_job_file_id(payload text) RETURNS uuid LANGUAGE sql IMMUTABLE
RETURN substring(payload FROM
                 '"file_id": ?"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"')::uuid;

-- Return whether a queued or running job reads this file.
CREATE OR REPLACE FUNCTION rem_has_ingest_job(of_tenant text, of_file uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM rem_jobs.jobs j
                 WHERE j.kind = 'ingest' AND j.state IN ('queued', 'running') AND j.tenant_id = of_tenant
                   AND rem.rem_ingest_job_file_id(j.payload) = of_file)
$$;

-- Mark a pending file as failed when its job dies or is cancelled, and as pending again when the job is retried. A file row
-- that is locked is skipped: its writer enqueues another job, and `fail_stranded` (ingest.sql) finds the rest hourly.
CREATE OR REPLACE FUNCTION rem_sync_file_with_ingest_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  of_tenant CONSTANT text := OLD.tenant_id;
  of_file CONSTANT uuid := rem.rem_ingest_job_file_id(OLD.payload);
  reason text := 'It was cancelled before it was read: upload it again.';
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.state = 'queued' THEN
    UPDATE rem.files f SET processing_status = 'pending', metadata = f.metadata - 'error'
    WHERE f.tenant_id = of_tenant AND f.id = of_file AND f.processing_status = 'failed' AND f.metadata ? 'wanted';
    RETURN NULL;
  ELSIF TG_OP = 'UPDATE' THEN
    reason := concat_ws(' ', (NEW.error::jsonb ->> 'message'),
                        format('It has used up its attempts: `rem jobs retry %s` retries it, or upload it again.', OLD.id));
  END IF;
  PERFORM FROM rem.files f
  WHERE f.tenant_id = of_tenant AND f.id = of_file AND f.deleted_at IS NULL AND f.metadata ? 'wanted'
    AND (f.processing_status IN ('pending', 'processing') OR (TG_OP = 'DELETE' AND f.processing_status = 'failed'))
  FOR UPDATE SKIP LOCKED;
  IF NOT FOUND OR rem.rem_has_ingest_job(of_tenant, of_file) THEN
    RETURN NULL;
  END IF;
  UPDATE rem.files f SET processing_status = 'failed', metadata = f.metadata || jsonb_build_object('error', left(reason, 2000))
  WHERE f.tenant_id = of_tenant AND f.id = of_file AND f.processing_status <> 'failed';
  IF TG_OP = 'DELETE' THEN
    -- No job will read the upload any more.
    DELETE FROM rem.uploads u WHERE u.tenant_id = of_tenant AND u.file_id = of_file;
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER follow_end_of_ingest AFTER DELETE ON rem_jobs.jobs FOR EACH ROW
  WHEN (OLD.kind = 'ingest') EXECUTE FUNCTION rem_sync_file_with_ingest_job();
CREATE OR REPLACE TRIGGER follow_failure_of_ingest AFTER UPDATE OF state ON rem_jobs.jobs FOR EACH ROW
  WHEN (OLD.kind = 'ingest' AND (NEW.state = 'dead') <> (OLD.state = 'dead'))
  EXECUTE FUNCTION rem_sync_file_with_ingest_job();

-- Dreams read the chunks of a file. When one of them changes, is deleted or restored, let the dreams read the file again.
CREATE OR REPLACE FUNCTION rem_reset_file_dream_progress() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM rem.dream_progress p
  WHERE p.tenant_id = OLD.tenant_id AND p.source_type = 'files' AND p.source_id = (OLD.metadata ->> 'file_id')::uuid;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER wake_dreams_on_change AFTER UPDATE OF content, deleted_at ON resources FOR EACH ROW
  WHEN (OLD.metadata ->> 'file_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        AND (OLD.content, OLD.deleted_at) IS DISTINCT FROM (NEW.content, NEW.deleted_at)
        AND current_setting('rem.reseals', true) IS DISTINCT FROM 'on')
  EXECUTE FUNCTION rem_reset_file_dream_progress();
CREATE OR REPLACE TRIGGER wake_dreams_on_erasure AFTER DELETE ON resources FOR EACH ROW
  WHEN (OLD.metadata ->> 'file_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')
  EXECUTE FUNCTION rem_reset_file_dream_progress();

-- Erase the chunks and entries of a file with it, including those deleted earlier.
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

-- Return a hash of a file's row, chunks and entries, as ingestion writes them: it changes when the file is ingested in another
-- version or edited. Edges are left out, because dreams add some. Own and shared chunks are separate queries, for their index.
CREATE OR REPLACE FUNCTION rem_file_version(of_tenant text, of_file uuid) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT md5(concat_ws('/', f.name, f.uri, f.checksum, f.tags::text, (f.metadata #- '{ingest,removed_at}')::text,
    (SELECT string_agg(md5(r.content), '' ORDER BY r.id) FROM rem.resources r
     WHERE r.tenant_id = f.tenant_id AND r.user_id = f.user_id AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = f.id::text),
    (SELECT string_agg(md5(r.content), '' ORDER BY r.id) FROM rem.resources r
     WHERE r.tenant_id = f.tenant_id AND r.user_id IS NULL AND f.user_id IS NULL
       AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = f.id::text),
    (SELECT string_agg(md5(o.content), '' ORDER BY o.id) FROM rem.ontologies o
     WHERE o.tenant_id = f.tenant_id AND o.file_id = f.id AND o.origin = 'ingest')))
  FROM rem.files f WHERE f.tenant_id = of_tenant AND f.id = of_file
$$;
