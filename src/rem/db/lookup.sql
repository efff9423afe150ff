-- name: key
SELECT rem.rem_key($1)

-- name: exact
SELECT entity_type, record FROM rem.rem_resolve_key($1, $2, rem.rem_key($3), $4)

-- name: lookup
-- One row for each match: records can be large, and the driver reads row by row.
SELECT match FROM json_array_elements(rem.rem_lookup($1, $2, $3, $4)) AS match

-- name: dangling_edges
SELECT e.src_type, e.src_key, e.rel_type, e.dst_key
FROM rem.edges e
WHERE e.tenant_id = $1 AND e.user_id IS NOT DISTINCT FROM $2
  AND NOT EXISTS (SELECT FROM rem.rem_resolve_label($1, $2, e.dst_key, e.dst_type))
ORDER BY e.src_key, e.ordinal
LIMIT $3

-- name: count_dangling_edges
SELECT count(*) FROM rem.edges e
WHERE e.tenant_id = $1 AND e.user_id IS NOT DISTINCT FROM $2
  AND NOT EXISTS (SELECT FROM rem.rem_resolve_label($1, $2, e.dst_key, e.dst_type))

-- name: users_by_email
SELECT asked.position::integer, u.id, u.name
FROM unnest($3::text[]) WITH ORDINALITY AS asked (email, position)
JOIN rem.users u ON u.tenant_id = $1 AND u.user_id IS NOT DISTINCT FROM $2
  AND rem.rem_key(u.email) = rem.rem_key(asked.email) AND u.deleted_at IS NULL

-- name: own_page
SELECT to_json(r.*) FROM {table} r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND (r.deleted_at IS NOT NULL) = $3
  AND (r.created_at, r.id) > ($4, $5)
ORDER BY r.created_at, r.id LIMIT $6
