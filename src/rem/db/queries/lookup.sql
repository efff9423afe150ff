-- name: lookup
SELECT entity_type, record FROM rem.rem_lookup($1, $2, $3, $4)

-- name: dangling_edges
SELECT e.src_type, e.src_key, e.rel_type, e.dst_key
FROM rem.edges e
WHERE e.tenant_id = $1 AND e.user_id IS NOT DISTINCT FROM $2
  AND NOT EXISTS (SELECT FROM rem.rem_resolve_label($1, $2, e.dst_key, e.dst_type))
ORDER BY e.src_key, e.ordinal
LIMIT $3
