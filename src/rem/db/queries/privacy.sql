-- name: count_rows
SELECT count(*) FROM {table} r WHERE r.tenant_id = $1 AND ($2::text IS NULL OR r.user_id = $2)

-- name: next_rows
-- Return the next rows of a tenant, or of one user ($2), after the id $3, also deleted ones.
SELECT r.{id} AS id, to_json(r.*) AS record FROM {table} r
WHERE r.tenant_id = $1 AND ($2::text IS NULL OR r.user_id = $2) AND r.{id} > $3 ORDER BY r.{id} LIMIT $4

-- name: allow_masking
-- For this transaction, contents can be replaced, and the change does not count as one of the owner.
SELECT set_config('rem.masks_content', 'on', true), set_config('rem.untouched', 'on', true)

-- name: replace_texts
-- Replace columns of a row by those of $3, unless another writer has changed them since they were read ($4).
UPDATE {table} r SET {assignments} FROM jsonb_populate_record(NULL::{table}, $3) p, jsonb_populate_record(NULL::{table}, $4) was
WHERE r.tenant_id = $1 AND r.{id} = $2 AND ({columns}) IS NOT DISTINCT FROM ({old_columns})
