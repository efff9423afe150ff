-- name: kept_rows
SELECT name FROM rem.resources WHERE user_id = 'keeper' AND deleted_at IS NULL

-- name: half_ingested
-- Return the files that look complete without all their chunks, and the chunks whose file does not look complete.
SELECT 'file ' || f.name FROM rem.files f
WHERE f.user_id = $1 AND f.processing_status = 'completed' AND f.deleted_at IS NULL
  AND (f.metadata -> 'ingest' ->> 'chunks')::integer IS DISTINCT FROM (
    SELECT count(*) FROM rem.resources r
    WHERE r.tenant_id = f.tenant_id AND r.user_id = f.user_id AND r.metadata ->> 'file_id' = f.id::text AND r.deleted_at IS NULL)
UNION ALL
SELECT 'chunk ' || r.name FROM rem.resources r
WHERE r.user_id = $1 AND r.metadata ? 'file_id' AND r.deleted_at IS NULL AND NOT EXISTS (
  SELECT FROM rem.files f WHERE f.tenant_id = r.tenant_id AND f.id::text = r.metadata ->> 'file_id' AND f.processing_status = 'completed')

-- name: ingested
SELECT r.name FROM rem.resources r WHERE r.user_id = $1 AND r.metadata ? 'file_id' AND r.deleted_at IS NULL ORDER BY 1

-- name: without_sources
-- Return the moments that do not say what they come from.
SELECT m.name FROM rem.moments m
WHERE m.user_id = $1 AND m.deleted_at IS NULL AND m.source_session_id IS NULL AND m.source_resource_ids = '{}'

-- name: dreamt
SELECT m.name FROM rem.moments m WHERE m.user_id = $1 AND m.deleted_at IS NULL AND m.valid_to IS NULL ORDER BY 1

-- name: has_schema
SELECT to_regclass('rem.resources') IS NOT NULL
