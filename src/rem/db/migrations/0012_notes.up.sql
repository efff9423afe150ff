-- Keys of notes, and runs of `rem ingest`.

-- Further keys of a row, as expressions over a row `r` that give text[]. FUZZY does not compare a text with them.
ALTER TABLE entity_types
  -- Exact keys, such as an address: LOOKUP and edges find the row by them.
  ADD COLUMN exact_key_expression text,
  -- Weak keys, such as a heading: they count only as long as no other row that the caller sees has the same key.
  ADD COLUMN weak_key_expression text;

UPDATE entity_types SET
  alias_expression = 'rem.rem_keys_of(r.metadata -> ''aliases'')',
  exact_key_expression = 'rem.rem_keys_of(jsonb_build_array(r.uri))'
WHERE name = 'files';
UPDATE entity_types SET
  exact_key_expression = 'rem.rem_keys_of(r.metadata -> ''section_keys'')',
  weak_key_expression = 'rem.rem_keys_of(r.metadata -> ''headings'')'
WHERE name = 'resources';

-- Without its marker row, kv_store is rebuilt with these keys when the functions are installed.
DELETE FROM kv_store WHERE tenant_id = '' AND entity_key = '';

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
