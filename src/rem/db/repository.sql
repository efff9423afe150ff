-- name: json_source
-- The incoming rows as one JSON parameter, for few rows.
ROWS FROM (jsonb_to_recordset($3::jsonb) AS ({typed_columns})) WITH ORDINALITY AS s ({columns}, rem_row)

-- name: staging_table
CREATE TEMPORARY TABLE rem_incoming ({typed_columns}, rem_row integer) ON COMMIT DROP

-- name: staged_source
-- The incoming rows in the temporary table, for many rows.
pg_temp.rem_incoming AS s

-- name: upsert
-- Update the live row of the same owner with the same id or else the same key, or insert a new row. A deleted row is reported
-- and never revived. `verdict` is 'write', or the reason why the row is not written.
WITH incoming AS {materialized} (
  SELECT {selection}, s.rem_revision, s.rem_row FROM {source}
),
-- The decision needs only these columns; the other columns are read when rows are written.
keyed AS MATERIALIZED (
  SELECT i.rem_row, i.id, i.rem_revision, {is_live} AS is_live, {key} AS natural_key FROM incoming i
),
repeated AS (
  SELECT natural_key FROM keyed WHERE is_live GROUP BY natural_key HAVING count(*) > 1
),
target AS MATERIALIZED (
  SELECT i.rem_row, i.natural_key, i.is_live, i.id AS incoming_id, coalesce(by_id.id, by_key.id, deleted_row.id) AS id,
    coalesce(by_id.id, by_key.id) IS NULL AS is_new,
    CASE
      WHEN octet_length(i.natural_key) NOT BETWEEN 1 AND 1024 OR i.natural_key IS NULL THEN 'bad_key'
      WHEN i.is_live AND EXISTS (SELECT FROM repeated WHERE repeated.natural_key = i.natural_key) THEN 'duplicate'
      WHEN by_id.deleted_at IS NOT NULL THEN 'deleted'
      -- The row was deleted when it was dumped, and has been restored since: keep it.
      WHEN NOT i.is_live AND by_id.id IS NOT NULL THEN 'unchanged'
      WHEN by_id.updated_at <> i.rem_revision OR (by_id.id IS NULL AND i.rem_revision IS NOT NULL) THEN 'stale'
      WHEN by_id.id IS NULL AND by_key.id IS NULL AND deleted_row.id IS NOT NULL THEN 'deleted'
      ELSE 'write'
    END AS verdict
  FROM keyed i
  LEFT JOIN {table} by_id ON by_id.tenant_id = $1 AND by_id.id = i.id AND {owner_of_by_id}
  LEFT JOIN {table} by_key ON by_key.tenant_id = $1 AND {owner_of_by_key}
    AND by_key.key = i.natural_key AND by_key.deleted_at IS NULL AND i.is_live
  LEFT JOIN LATERAL (
    SELECT r.id FROM {table} r WHERE r.tenant_id = $1 AND {owner_of_r}
      AND r.key = i.natural_key AND r.deleted_at IS NOT NULL LIMIT 1) deleted_row ON i.is_live
),
updated AS (
  UPDATE {table} stored SET {updates}
  FROM incoming i JOIN target USING (rem_row)
  WHERE target.verdict = 'write' AND stored.tenant_id = $1 AND stored.id = target.id AND stored.deleted_at IS NULL
    AND (i.rem_revision IS NULL OR stored.updated_at = i.rem_revision) AND ({changed})
  RETURNING target.rem_row, {returning} AS record
),
inserted AS (
  INSERT INTO {table} AS stored (tenant_id, user_id, {columns})
  SELECT $1, $2, {incoming_columns} FROM incoming i JOIN target USING (rem_row)
  WHERE target.verdict = 'write' AND target.is_new
  -- Only if another writer inserted the same key after this statement had looked for it.
  ON CONFLICT (tenant_id, user_id, key) WHERE deleted_at IS NULL DO UPDATE SET {conflict_updates}
  RETURNING stored.id, stored.key, stored.deleted_at IS NULL AS is_live, {returning} AS record
)
SELECT target.rem_row::integer AS rem_row, coalesce(inserted.id, target.id) AS id,
  CASE
    WHEN target.verdict <> 'write' THEN target.verdict
    -- The row of another writer has another id. (The system column xmax would tell it, too, but not for a table with partitions.)
    WHEN inserted.id = target.incoming_id THEN 'inserted'
    WHEN updated.rem_row IS NOT NULL OR inserted.id <> target.incoming_id THEN 'updated'
    ELSE 'unchanged'
  END AS outcome,
  target.natural_key AS key, coalesce(updated.record, inserted.record) AS record
FROM target
LEFT JOIN updated USING (rem_row)
LEFT JOIN inserted ON target.is_new AND inserted.key = target.natural_key AND inserted.is_live = target.is_live
  AND (target.is_live OR inserted.id = target.incoming_id)
ORDER BY target.rem_row

-- name: target_ids
-- Return the id of the row that each incoming row ($3 its id, $4 its label) will be written to: the row with this id, or else with this key.
SELECT coalesce(by_id.id, by_key.id, i.id) AS row_id FROM unnest($3::uuid[], $4::text[]) WITH ORDINALITY AS i (id, label, place)
LEFT JOIN {table} by_id ON by_id.tenant_id = $1 AND by_id.id = i.id AND {owner_of_by_id}
LEFT JOIN {table} by_key ON by_key.tenant_id = $1 AND {owner_of_by_key} AND by_key.key = rem.rem_key(i.label) AND by_key.deleted_at IS NULL
ORDER BY i.place

-- name: has_outgrown_statistics
-- Return true if a batch of $2 new rows makes the statistics of the planner misleading.
SELECT reltuples < 10 * $2::bigint FROM pg_class WHERE oid = $1::regclass

-- name: lock_batches
-- Batches of one owner run one after another: two batches with the same rows in different orders would deadlock.
SELECT pg_advisory_xact_lock(7236962, hashtext($1 || ' ' || coalesce($2, '')))

-- name: record
-- Return a row, deleted or not.
SELECT to_json(r.*) FROM {table} r WHERE r.tenant_id = $1 AND r.id = $2

-- name: versions
-- Return the revision of rows, and whether they are deleted.
SELECT id, updated_at, deleted_at IS NOT NULL FROM {table} WHERE tenant_id = $1 AND id = ANY ($2::uuid[])

-- name: get
SELECT to_json(r.*) FROM {table} r
WHERE r.tenant_id = $1 AND r.id = $3 AND (r.user_id = $2 OR r.user_id IS NULL)
  AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())

-- name: get_for_update
SELECT to_json(r.*) FROM {table} r
WHERE r.tenant_id = $1 AND r.id = $3 AND {owner} AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now())
-- Not FOR UPDATE: a message of the same transaction holds a KEY SHARE lock on its session.
FOR NO KEY UPDATE

-- name: find
-- Return a page of rows. Only the rows of the page are converted to JSON, and only if they fit into one result. The last row may be there
-- only to tell that there are more, so it does not count.
WITH page AS MATERIALIZED (
  SELECT ARRAY(
    SELECT r.id FROM {table} r
    WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL)
      AND {lifetime} AND ({condition})
    ORDER BY {order} LIMIT $3 OFFSET $4) AS ids
)
SELECT to_json(r.*) FROM page CROSS JOIN LATERAL unnest(page.ids) WITH ORDINALITY AS p (id, place)
JOIN {table} r ON r.tenant_id = $1 AND r.id = p.id
WHERE (SELECT rem.rem_check_rows_fit($1, ARRAY[$5::text], page.ids[:$3::integer - 1]) FROM page)
ORDER BY p.place

-- name: count
SELECT count(*) FROM {table} r
WHERE r.tenant_id = $1 AND (r.user_id = $2 OR r.user_id IS NULL)
  AND {lifetime} AND ({condition})

-- name: soft_delete
UPDATE {table} r SET deleted_at = clock_timestamp()
WHERE r.tenant_id = $1 AND {owner} AND r.id = ANY ($3::uuid[]) AND r.deleted_at IS NULL
RETURNING r.id

-- name: restore
UPDATE {table} r SET deleted_at = NULL
WHERE r.tenant_id = $1 AND {owner} AND r.id = $3 AND r.deleted_at IS NOT NULL
RETURNING to_json(r.*)

-- name: hard_delete
DELETE FROM {table} r
WHERE r.tenant_id = $1 AND {owner} AND r.id = ANY ($3::uuid[])
RETURNING r.id
