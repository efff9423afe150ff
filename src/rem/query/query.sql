-- name: fuzzy
-- One row for each match: records can be large, and the driver reads row by row.
SELECT match FROM json_array_elements(rem.rem_fuzzy($1, $2, $3, $4, $5, $6)::json) AS match

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

-- name: edges_between
-- Return the edges of some types ($5; all if empty) between some entities, given by their tables ($3) and ids ($4).
SELECT DISTINCT o.path::uuid AS source, o.entity_id AS target, o.rel_type, o.weight
FROM rem.rem_edges_out($1, $2, $3::text[], $4::uuid[], $4::uuid[]::text[],
                       (SELECT array_agg(rem.rem_edge_type(edge_type)) FROM unnest($5::text[]) AS edge_type)) o
WHERE o.entity_id = ANY ($4::uuid[])
ORDER BY 1, 2, 3

-- name: keys_with_prefix
-- Return up to $5 keys, each with its table, that begin with a text ($3), of one table ($4) or of all.
SELECT k.entity_key, k.entity_type FROM rem.kv_store k
WHERE k.tenant_id = $1 AND (k.user_id = $2 OR k.user_id IS NULL) AND starts_with(k.entity_key, rem.rem_key($3))
  AND ($4::text IS NULL OR k.entity_type = $4) AND (k.expires_at IS NULL OR k.expires_at > now())
  AND k.key_rank < rem.rem_exact_key_rank()
GROUP BY k.entity_key, k.entity_type ORDER BY k.entity_key, k.entity_type LIMIT $5

-- name: find_named_keys
-- Return `keys`, for each of the names ($3) the key of the first entity that it names, or NULL. The tables $7 have no names of
-- things; only an explicit key ($8) finds their rows. If no name is known, return as `nearest` how many keys are the most similar
-- to a text ($4), with a similarity of at least $5 among the best $6.
SELECT named.keys,
       CASE WHEN $4::text IS NOT NULL AND array_remove(named.keys, NULL) = '{}'
         THEN (SELECT count(DISTINCT near.key)::integer
               FROM (SELECT match ->> 1 AS key, rank() OVER (ORDER BY (match ->> 2)::float8 DESC) AS rank
                     FROM json_array_elements(rem.rem_fuzzy($1, $2, $4, $5, $6, NULL)::json) AS match
                     WHERE match ->> 3 = 'key' AND match ->> 0 <> ALL ($7::text[])
                       -- The key of a remembered statement is the date and its first words, which name no thing.
                       AND match ->> 1 !~ '^\d{4}-\d\d-\d\d-') AS near
               WHERE near.rank = 1)
         ELSE 0
       END AS nearest
FROM (SELECT array_agg((
        SELECT main.entity_key FROM rem.rem_resolve_label($1, $2, given.label, NULL) k
        JOIN rem.kv_store main ON (main.tenant_id, main.entity_type, main.entity_id, main.key_rank) = ($1, k.entity_type, k.entity_id, 1)
        -- A heading is rather a topic than a name.
        WHERE k.key_rank < rem.rem_weak_key_rank() AND (k.entity_type <> ALL ($7::text[]) OR given.label = ANY ($8::text[]))
        ORDER BY k.is_own DESC, k.key_rank, k.entity_type, k.entity_id LIMIT 1) ORDER BY given.position) AS keys
      FROM unnest($3::text[]) WITH ORDINALITY AS given (label, position)) AS named

-- name: file_texts
-- Return the chunks or entries of the files $3 that the scope sees, in order, with the number of characters between a chunk and the one
-- before it. After $4 characters, return only one more row of the file, without its content. Own and shared rows are separate
-- queries, because each finds the chunks by an index.
WITH visible AS (
  SELECT f.tenant_id, f.user_id, f.id FROM rem.files f
  WHERE f.tenant_id = $1 AND f.id = ANY ($3::uuid[]) AND (f.user_id = $2 OR f.user_id IS NULL) AND f.deleted_at IS NULL
    AND (f.expires_at IS NULL OR f.expires_at > now())
), chunks AS (
  SELECT f.id AS file_id, r.id, r.key, r.ordinal, r.content, r.metadata, r.deleted_at, r.expires_at
  FROM visible f JOIN rem.resources r ON r.tenant_id = f.tenant_id AND r.user_id = f.user_id
    AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = f.id::text
  UNION ALL
  SELECT f.id, r.id, r.key, r.ordinal, r.content, r.metadata, r.deleted_at, r.expires_at
  FROM visible f JOIN rem.resources r ON r.tenant_id = f.tenant_id AND r.user_id IS NULL AND f.user_id IS NULL
    AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = f.id::text
  UNION ALL
  SELECT f.id, o.id, o.key, 0, o.content, '{}', o.deleted_at, o.expires_at
  FROM visible f JOIN rem.ontologies o ON o.tenant_id = f.tenant_id AND o.file_id = f.id AND o.origin = 'ingest'
    AND o.user_id IS NOT DISTINCT FROM f.user_id
), measured AS (
  SELECT c.file_id, c.id, c.key, c.ordinal, c.content,
         -- Users can write anything into the metadata.
         CASE WHEN c.metadata ->> 'start' ~ '^[0-9]{1,9}$' THEN (c.metadata ->> 'start')::integer END AS starts,
         lag(CASE WHEN c.metadata ->> 'end' ~ '^[0-9]{1,9}$' THEN (c.metadata ->> 'end')::integer END) OVER in_order AS previous_end,
         sum(length(c.content)) OVER in_order <= $4 OR row_number() OVER in_order = 1 AS is_shown,
         sum(length(c.content)) OVER (PARTITION BY c.file_id) AS total
  FROM chunks c WHERE c.deleted_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > now())
  WINDOW in_order AS (PARTITION BY c.file_id ORDER BY c.ordinal, c.key)
), marked AS (
  SELECT m.*, lag(m.is_shown, 1, true) OVER (PARTITION BY m.file_id ORDER BY m.ordinal, m.key) AS is_after_shown FROM measured m
)
SELECT m.file_id, m.key, CASE WHEN m.is_shown THEN m.content END AS content, m.starts - m.previous_end AS gap, m.total::bigint, m.id
FROM marked m WHERE m.is_after_shown ORDER BY m.file_id, m.ordinal, m.key
