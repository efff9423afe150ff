-- name: fuzzy
SELECT rem.rem_fuzzy($1, $2, $3, $4, $5, $6)

-- name: traverse
SELECT n.entity_type, n.key, n.depth, n.path, n.rel_type, n.weight, n.direction, n.record
FROM rem.rem_traverse($1, $2, $3, $4, (SELECT array_agg(rem.rem_edge_type(asked)) FROM unnest($5::text[]) AS asked),
                      $6, $7, $8) n

-- name: traverse_ordered
SELECT n.entity_type, n.key, n.depth, n.path, n.rel_type, n.weight, n.direction, n.record
FROM rem.rem_traverse($1, $2, $3, $4, (SELECT array_agg(rem.rem_edge_type(asked)) FROM unnest($5::text[]) AS asked),
                      $6, $7, $8) n
-- The row about the walk itself has no depth, and must not fall victim to the limit.
ORDER BY n.depth IS NOT NULL, {order} LIMIT $9::integer + 1

-- name: traverse_plan
SELECT entity_type, entity_key, rel_type, direction, edges, destinations
FROM rem.rem_traverse_plan($1, $2, $3, $4, (SELECT array_agg(rem.rem_edge_type(asked)) FROM unnest($5::text[]) AS asked),
                           $6, $7)
