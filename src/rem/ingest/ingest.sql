-- name: find_by_uri
-- Return the files of an owner with these URIs. Of each URI the live file comes last, after the deleted ones.
SELECT f.id, f.name, f.key, f.checksum, f.processing_status, f.deleted_at IS NOT NULL AS is_deleted,
       -- The time tells a removed file from one that was restored and then deleted by its owner.
       coalesce(f.metadata #>> '{ingest,removed_at}' = extract(epoch FROM f.deleted_at)::text, false) AS is_removed,
       f.metadata, f.tags, f.uri
FROM rem.files f WHERE f.tenant_id = $1 AND {owner} AND f.uri = ANY ($3::text[])
ORDER BY f.deleted_at NULLS LAST {lock}

-- name: load_chunks
-- Return the chunks of some files, including those that the owner deleted.
SELECT r.metadata ->> 'file_id' AS file_id, r.id, r.ordinal, r.deleted_at IS NOT NULL AS is_deleted, rem.rem_text_digest(r.content) AS digest
FROM rem.resources r
WHERE r.tenant_id = $1 AND {owner} AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = ANY ($3::text[])

-- name: count_chunks
-- Return the number of live chunks and entries of each file.
SELECT f.id, (SELECT count(*) FROM rem.resources r
              WHERE r.tenant_id = f.tenant_id AND r.user_id IS NOT DISTINCT FROM f.user_id AND r.metadata ? 'file_id'
                AND r.metadata ->> 'file_id' = f.id::text AND r.deleted_at IS NULL)
           + (SELECT count(*) FROM rem.ontologies o
              WHERE o.tenant_id = f.tenant_id AND o.file_id = f.id AND o.origin = 'ingest' AND o.deleted_at IS NULL) AS chunks
FROM rem.files f WHERE f.tenant_id = $1 AND f.id = ANY ($2::uuid[])

-- name: check_names
-- Return the key of each name ($3), the keys of its chunks ($5: how many), and whether all of them are free: no other file
-- and no row but the chunks of this file ($4) has one of them, live or deleted.
-- MATERIALIZED: otherwise the keys are computed again for every row that they are compared with. Live and deleted rows are
-- separate EXISTS, because each has a partial index of its own.
WITH candidates AS MATERIALIZED (
  SELECT given.position, given.file_id, rem.rem_key(given.name) AS key,
         ARRAY(SELECT rem.rem_key(given.name || '#' || n) FROM generate_series(1, given.chunks) n ORDER BY n) AS chunk_keys
  FROM unnest($3::text[], $4::uuid[], $5::integer[]) WITH ORDINALITY AS given (name, file_id, chunks, position))
SELECT c.key, c.chunk_keys,
  c.key <> ''
  AND NOT EXISTS (SELECT FROM rem.files f WHERE f.tenant_id = $1 AND {owner_of_f} AND f.key = c.key
                    AND f.deleted_at IS NULL AND f.id <> c.file_id)
  AND NOT EXISTS (SELECT FROM rem.files f WHERE f.tenant_id = $1 AND {owner_of_f} AND f.key = c.key
                    AND f.deleted_at IS NOT NULL AND f.id <> c.file_id)
  AND NOT EXISTS (SELECT FROM rem.resources r WHERE r.tenant_id = $1 AND {owner_of_r} AND r.key = ANY (c.chunk_keys)
                    AND r.deleted_at IS NULL AND r.metadata ->> 'file_id' IS DISTINCT FROM c.file_id::text)
  AND NOT EXISTS (SELECT FROM rem.resources r WHERE r.tenant_id = $1 AND {owner_of_r} AND r.key = ANY (c.chunk_keys)
                    AND r.deleted_at IS NOT NULL AND r.metadata ->> 'file_id' IS DISTINCT FROM c.file_id::text) AS is_free
FROM candidates c ORDER BY c.position

-- name: load_entries
-- Return the knowledge entries of a file, including those that the owner deleted.
SELECT o.id, o.key, o.deleted_at IS NOT NULL AS is_deleted FROM rem.ontologies o
WHERE o.tenant_id = $1 AND {owner} AND o.file_id = $3 AND o.origin = 'ingest'

-- name: check_entry_keys
-- Return the key of each name ($3), and whether an entry that is not of this file ($4) has it.
SELECT rem.rem_key(given.name) AS key,
  EXISTS (SELECT FROM rem.ontologies o WHERE o.tenant_id = $1 AND {owner} AND o.key = rem.rem_key(given.name)
            AND o.deleted_at IS NULL AND (o.file_id IS DISTINCT FROM $4 OR o.origin <> 'ingest'))
  OR EXISTS (SELECT FROM rem.ontologies o WHERE o.tenant_id = $1 AND {owner} AND o.key = rem.rem_key(given.name)
            AND o.deleted_at IS NOT NULL AND (o.file_id IS DISTINCT FROM $4 OR o.origin <> 'ingest')) AS is_taken
FROM unnest($3::text[]) WITH ORDINALITY AS given (name, position) ORDER BY given.position

-- name: erase_chunks
DELETE FROM rem.resources r WHERE r.tenant_id = $1 AND {owner} AND r.id = ANY ($3::uuid[])

-- name: erase_records
-- Erase the records of some files ($3) but those with the ids $4.
DELETE FROM rem.records r
WHERE r.tenant_id = $1 AND {owner} AND r.file_id = ANY ($3::uuid[]) AND r.origin = 'ingest' AND r.deleted_at IS NULL
  AND r.id NOT IN (SELECT unnest($4::uuid[]))

-- name: erase_entries
DELETE FROM rem.ontologies o WHERE o.tenant_id = $1 AND {owner} AND o.id = ANY ($3::uuid[])

-- name: put_upload
-- Store the bytes of a file until a worker has read them.
INSERT INTO rem.uploads (tenant_id, file_id, content) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, file_id) DO UPDATE SET content = excluded.content

-- name: delete_upload_if_same
-- Delete the bytes with this SHA-256 ($3). A newer upload of the same file stays.
DELETE FROM rem.uploads WHERE tenant_id = $1 AND file_id = $2 AND sha256(content) = $3

-- name: pending_file
-- Return a queued file of any owner, with its bytes if it was uploaded.
SELECT f.user_id, f.name, f.uri, f.mime_type, f.deleted_at IS NOT NULL AS is_deleted, f.processing_status, f.metadata, f.tags,
       u.content, f.id
FROM rem.files f LEFT JOIN rem.uploads u ON (u.tenant_id, u.file_id) = (f.tenant_id, f.id)
WHERE f.tenant_id = $1 AND f.id = $2

-- name: upload_size
SELECT octet_length(u.content) FROM rem.uploads u WHERE u.tenant_id = $1 AND u.file_id = $2

-- name: requested_options
-- Return the options that a file is queued with, and lock its row.
SELECT f.metadata -> 'wanted' FROM rem.files f WHERE f.tenant_id = $1 AND f.id = $2 FOR NO KEY UPDATE

-- name: is_queued_again
-- Return whether a file was uploaded or queued again while it was read.
SELECT EXISTS (SELECT FROM rem.uploads u WHERE u.tenant_id = $1 AND u.file_id = $2)
  OR EXISTS (SELECT FROM rem.files f WHERE f.tenant_id = $1 AND f.id = $2 AND f.processing_status = 'pending')

-- name: has_upload
SELECT EXISTS (SELECT FROM rem.uploads u WHERE u.tenant_id = $1 AND u.file_id = $2)

-- name: fail_stranded
-- Mark files as failed that have been pending for an hour and have no job.
WITH stranded AS (
  SELECT f.tenant_id, f.id FROM rem.files f
  WHERE f.processing_status IN ('pending', 'processing') AND f.deleted_at IS NULL AND f.metadata ? 'wanted'
    AND f.updated_at < now() - interval '1 hour' AND NOT rem.rem_has_ingest_job(f.tenant_id, f.id)
  FOR UPDATE SKIP LOCKED)
UPDATE rem.files f SET processing_status = 'failed', metadata = f.metadata || jsonb_build_object('error', $1::text)
FROM stranded s WHERE (f.tenant_id, f.id) = (s.tenant_id, s.id) RETURNING f.id

-- name: remove_files
-- Delete files that are no longer in their folder, with a mark: they are restored when they are there again. Return their keys.
UPDATE rem.files f SET deleted_at = now(),
  metadata = jsonb_set(f.metadata, '{ingest}', coalesce(f.metadata -> 'ingest', '{}')
                       || jsonb_build_object('removed_at', extract(epoch FROM now())::text))
WHERE f.tenant_id = $1 AND {owner} AND f.uri = ANY ($3::text[]) AND f.deleted_at IS NULL RETURNING f.uri, f.name, f.key

-- name: restore_removed
UPDATE rem.files f SET deleted_at = NULL WHERE f.tenant_id = $1 AND {owner} AND f.id = ANY ($3::uuid[])

-- name: uris_below
-- Return the addresses of the owner's files that start with $3.
SELECT f.uri FROM rem.files f
WHERE f.tenant_id = $1 AND {owner} AND f.deleted_at IS NULL AND starts_with(f.uri, $3) AND f.origin = 'ingest'

-- name: record_run
-- Record the files that a run ($3) has just stored, with the versions that it stored.
WITH run AS (INSERT INTO rem.ingest_runs (tenant_id, user_id, id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING)
INSERT INTO rem.ingest_run_files (tenant_id, run_id, file_id, is_new, version)
SELECT $1, $3, given.file_id, given.is_new, rem.rem_file_version($1, given.file_id)
FROM unnest($4::uuid[], $5::boolean[]) AS given (file_id, is_new)
ON CONFLICT (tenant_id, run_id, file_id) DO UPDATE SET version = excluded.version

-- name: runs
-- Return the runs of an owner, latest first, with the files that still exist: how many were new and how many replaced an older
-- version, and the names of the first ones.
SELECT r.id, r.started_at, r.undone_at, count(f.id) FILTER (WHERE x.is_new) AS added, count(f.id) FILTER (WHERE NOT x.is_new) AS changed,
       coalesce((array_agg(f.name ORDER BY f.name) FILTER (WHERE f.id IS NOT NULL))[:3], '{}') AS names
FROM rem.ingest_runs r
LEFT JOIN rem.ingest_run_files x ON (x.tenant_id, x.run_id) = (r.tenant_id, r.id)
LEFT JOIN rem.files f ON (f.tenant_id, f.id) = (x.tenant_id, x.file_id) AND f.deleted_at IS NULL
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2
GROUP BY r.tenant_id, r.id ORDER BY r.started_at DESC LIMIT $3

-- name: find_runs
-- Return the runs of an owner whose id starts with $3, and lock them.
SELECT r.id, r.undone_at FROM rem.ingest_runs r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND starts_with(replace(r.id::text, '-', ''), $3) LIMIT 2 FOR UPDATE

-- name: files_of_run
SELECT f.id, f.name, f.key, x.is_new, f.deleted_at IS NOT NULL AS is_deleted, f.metadata #>> '{ingest,form}' AS form,
       x.version = rem.rem_file_version(f.tenant_id, f.id) AS is_same
FROM rem.ingest_run_files x JOIN rem.files f ON (f.tenant_id, f.id) = (x.tenant_id, x.file_id)
WHERE x.tenant_id = $1 AND x.run_id = $2 ORDER BY f.name FOR UPDATE OF f

-- name: erase_files
DELETE FROM rem.files f WHERE f.tenant_id = $1 AND {owner} AND f.id = ANY ($3::uuid[])

-- name: mark_undone
UPDATE rem.ingest_runs r SET undone_at = clock_timestamp() WHERE r.tenant_id = $1 AND r.id = $2

-- name: find_forgotten
-- Return those of some digests that the owner has forgotten.
SELECT t.digest FROM rem.forgotten_texts t
WHERE t.tenant_id = $1 AND t.user_id IS NOT DISTINCT FROM $2 AND t.digest = ANY ($3::bytea[])

-- name: clear_forgotten
-- Let ingestion store some forgotten texts again.
DELETE FROM rem.forgotten_texts t
WHERE t.tenant_id = $1 AND t.user_id IS NOT DISTINCT FROM $2 AND t.digest = ANY ($3::bytea[])
