-- Digests of files and of parts of files that their owner has forgotten. `rem ingest` does not store them again, and no text can be read
-- from a digest.
CREATE TABLE forgotten_texts (
  tenant_id text NOT NULL,
  user_id text,
  digest bytea NOT NULL,
  forgotten_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT forgotten_texts_key UNIQUE NULLS NOT DISTINCT (tenant_id, user_id, digest)
);
