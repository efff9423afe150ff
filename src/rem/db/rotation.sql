-- name: count_by_key
-- Count the texts of a column by the key that encrypts them; NULL counts those that are not encrypted.
SELECT substring({value} FROM 'rem1:([a-z0-9-]+):') AS key_id, count(*) AS texts FROM rem.{table} r WHERE {value} IS NOT NULL GROUP BY 1 ORDER BY 1

-- name: next_rows
-- Lock the next rows after ($1, $2) whose text is not encrypted with the key $3, or, if it is NULL, whose text is encrypted. Skip rows that
-- others are writing.
SELECT r.tenant_id, r.{id} AS row_id, {columns} FROM rem.{table} r
WHERE (r.tenant_id, r.{id}) > ($1, $2) AND {value} IS NOT NULL
  AND CASE WHEN $3::text IS NULL THEN {value} LIKE '%rem1:%'
      ELSE {value} NOT LIKE '%rem1:' || $3 || ':%' OR {value} ~ ('rem1:(?!' || $3 || ':)') END
ORDER BY r.tenant_id, r.{id} LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED

-- name: replace_text
UPDATE rem.{table} r SET {column} = $3 WHERE r.tenant_id = $1 AND r.{id} = $2

-- name: allow_rotation
-- For this transaction, contents can be replaced, the change does not count as one of the owner, and the index stays.
SELECT set_config('rem.masks_content', 'on', true), set_config('rem.untouched', 'on', true), set_config('rem.reseals', 'on', true)
