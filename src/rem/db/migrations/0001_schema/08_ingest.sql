-- Files on their way in, runs of `rem ingest`, and what is not to be stored again.

-- Files that were handed over and are not read yet. The row in `files` says what they are.
CREATE TABLE uploads (
  tenant_id text NOT NULL,
  file_id uuid NOT NULL,
  content bytea NOT NULL,
  PRIMARY KEY (tenant_id, file_id),
  CONSTRAINT uploads_file FOREIGN KEY (tenant_id, file_id) REFERENCES files (tenant_id, id) ON DELETE CASCADE
);
ALTER TABLE uploads ALTER COLUMN content SET STORAGE EXTERNAL;

-- A call of `rem ingest` or Rem.ingest that stored files.
CREATE TABLE ingest_runs (
  tenant_id text NOT NULL,
  id uuid NOT NULL,
  user_id text,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  undone_at timestamptz,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX ingest_runs_owner ON ingest_runs (tenant_id, user_id, started_at);

-- The files that a run stored. Undoing the run erases the new ones that still have the version that the run stored.
CREATE TABLE ingest_run_files (
  tenant_id text NOT NULL,
  run_id uuid NOT NULL,
  file_id uuid NOT NULL,
  is_new boolean NOT NULL,
  version text NOT NULL,
  PRIMARY KEY (tenant_id, run_id, file_id),
  CONSTRAINT ingest_run_files_run FOREIGN KEY (tenant_id, run_id) REFERENCES ingest_runs (tenant_id, id) ON DELETE CASCADE,
  CONSTRAINT ingest_run_files_file FOREIGN KEY (tenant_id, file_id) REFERENCES files (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX ingest_run_files_file ON ingest_run_files (tenant_id, file_id);

-- Digests of files and of parts of files that their owner has forgotten. `rem ingest` does not store them again, and no text can be read
-- from a digest.
CREATE TABLE forgotten_texts (
  tenant_id text NOT NULL,
  user_id text,
  digest bytea NOT NULL,
  forgotten_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT forgotten_texts_key UNIQUE NULLS NOT DISTINCT (tenant_id, user_id, digest)
);
