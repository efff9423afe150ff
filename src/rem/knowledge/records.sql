-- name: tables_of_rows
-- Return the records of each table or list that has one in some rows ($3: ids of notes, chunks, messages, files or records), whole
-- tables in the order of these ids. At most $4.
WITH named AS (
  SELECT r.user_id, r.file_id, r.source_id, r.block,
         least(array_position($3::uuid[], r.id), array_position($3::uuid[], r.source_id), array_position($3::uuid[], r.file_id)) AS place
  FROM rem.records r
  WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL) AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
    AND (r.source_id = ANY ($3::uuid[]) OR r.file_id = ANY ($3::uuid[]) OR r.id = ANY ($3::uuid[]))
), blocks AS MATERIALIZED (
  -- A table of a file may go over several chunks.
  SELECT user_id, file_id, CASE WHEN file_id IS NULL THEN source_id END AS source_id, block, min(place) AS place
  FROM named GROUP BY 1, 2, 3, 4
), members AS (
  SELECT r.*, b.place FROM blocks b JOIN rem.records r ON r.tenant_id = $1 AND r.file_id = b.file_id AND r.block = b.block
    AND r.user_id IS NOT DISTINCT FROM b.user_id
  UNION ALL
  SELECT r.*, b.place FROM blocks b JOIN rem.records r ON r.tenant_id = $1 AND r.source_id = b.source_id AND r.file_id IS NULL
    AND r.block = b.block AND r.user_id IS NOT DISTINCT FROM b.user_id
)
SELECT to_json(m.*) FROM members m
WHERE m.deleted_at IS NULL AND (m.expires_at IS NULL OR m.expires_at > now())
ORDER BY m.place, m.file_id, CASE WHEN m.file_id IS NULL THEN m.source_id END, m.block, m.ordinal LIMIT $4
