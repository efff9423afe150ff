-- name: fuzzy
SELECT rem.rem_fuzzy($1, $2, $3, $4, $5, $6)

-- name: search
-- `allowed`: NULL, or an array of the ids that fulfil WHERE.
SELECT rem.rem_search($1, $2, $3, $4::real[]::halfvec, {allowed})

-- name: allowed_ids
SELECT r.id FROM {table} r
WHERE r.tenant_id = $1 AND (r.user_id = ANY ($2) OR r.user_id IS NULL) AND r.deleted_at IS NULL AND ({condition})

-- name: traverse
SELECT n.entity_type, n.key, n.depth, n.path, n.rel_type, n.weight, n.direction, n.record
FROM rem.rem_traverse($1, $2, $3, $4, (SELECT array_agg(rem.rem_edge_type(edge_type)) FROM unnest($5::text[]) AS edge_type),
                      $6, $7, $8) n

-- name: traverse_ordered
SELECT n.entity_type, n.key, n.depth, n.path, n.rel_type, n.weight, n.direction, n.record
FROM rem.rem_traverse($1, $2, $3, $4, (SELECT array_agg(rem.rem_edge_type(edge_type)) FROM unnest($5::text[]) AS edge_type),
                      $6, $7, $8) n
-- The row about the walk itself has no depth. It comes first, and the limit leaves room for it.
ORDER BY n.depth IS NOT NULL, {order} LIMIT $9::integer + 1

-- name: traverse_plan
SELECT entity_type, entity_key, rel_type, direction, edges, destinations
FROM rem.rem_traverse_plan($1, $2, $3, $4, (SELECT array_agg(rem.rem_edge_type(edge_type)) FROM unnest($5::text[]) AS edge_type),
                           $6, $7)

-- name: find_named_key
-- Return `exact`, the position of the first of the names ($3) that is a key. If none is, return as `nearest` how many keys are the
-- most similar to a text ($4), with a similarity of at least $5.
SELECT exact.position::integer AS exact,
       CASE WHEN exact.position IS NULL AND $4::text IS NOT NULL
         THEN (SELECT count(DISTINCT near.key)::integer
               FROM (SELECT match ->> 1 AS key, rank() OVER (ORDER BY (match ->> 2)::float8 DESC) AS rank
                     FROM json_array_elements(rem.rem_fuzzy($1, $2, $4, $5, $6, NULL)::json) AS match
                     WHERE match ->> 3 = 'key' AND match ->> 0 <> 'messages') AS near
               WHERE near.rank = 1)
         ELSE 0
       END AS nearest
FROM (SELECT min(given.position) AS position
      FROM unnest($3::text[]) WITH ORDINALITY AS given (label, position)
      WHERE EXISTS (SELECT FROM rem.rem_resolve_label($1, $2, given.label, NULL))) AS exact

-- name: passage_cosines
-- Return the cosine of each two of some passages, given by the ids of their rows ($2) and their first characters ($3).
WITH shown AS MATERIALIZED (
  SELECT p.entity_id, p.model_id, p.embedding FROM unnest($2::uuid[], $3::integer[]) AS s (entity_id, starts)
  JOIN rem.passages p ON (p.tenant_id, p.entity_id, p.starts) = ($1, s.entity_id, s.starts))
SELECT a.entity_id, b.entity_id, 1 - (a.embedding <=> b.embedding) FROM shown a JOIN shown b ON a.entity_id < b.entity_id
  AND a.model_id = b.model_id
