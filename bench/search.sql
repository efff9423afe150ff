-- name: parts
CREATE TABLE bench_vectors (kind text, number integer, part halfvec(384), PRIMARY KEY (kind, number))

-- name: store_parts
INSERT INTO bench_vectors SELECT $1, g.number, g.part::halfvec FROM unnest($2::text[]) WITH ORDINALITY AS g (part, number)

-- name: rows
INSERT INTO rem.resources (tenant_id, user_id, name, content)
SELECT $1, $2, 'Row ' || i, array_to_string(ARRAY(
  -- Words of letters: a word with digits would be an identifier, which SEARCH compares letter by letter.
  SELECT 'w' || translate((floor(exp(random() * ln(30000)))::integer + 0 * i)::text, '0123456789', 'bcdfghjklm')
  FROM generate_series(1, 30)), ' ') || ' AB-' || i
FROM generate_series($3::integer, $4::integer) AS i

-- name: passages
INSERT INTO rem.passages (tenant_id, owner, entity_type, entity_id, field, starts, ends, language, prior,
                          tells_time, terms, model_id, embedding)
SELECT r.tenant_id, coalesce(r.user_id, ''), 'resources', r.id, 'content', 0, length(r.content), 'english', 0, false,
       rem.rem_passage_terms('english', ARRAY[r.content], ARRAY[1]), $2, l2_normalize(m.part + d.part + t.part)
FROM (SELECT *, floor(random() * 400)::integer + 1 AS middle, floor(random() * 4000)::integer + 1 AS deviation,
             floor(random() * 4000)::integer + 1 AS detail
      FROM rem.resources e WHERE e.tenant_id = $1
        AND NOT EXISTS (SELECT FROM rem.passages p WHERE p.tenant_id = e.tenant_id AND p.entity_id = e.id)) r
JOIN bench_vectors m ON m.kind = 'middle' AND m.number = r.middle
JOIN bench_vectors d ON d.kind = 'deviation' AND d.number = r.deviation
JOIN bench_vectors t ON t.kind = 'detail' AND t.number = r.detail

-- name: further_passages
-- Passages with the words of stored ones, other vectors, and no rows.
INSERT INTO rem.passages (tenant_id, owner, entity_type, entity_id, field, starts, ends, language, prior,
                          tells_time, terms, model_id, embedding)
SELECT $1, r.owner, 'resources', gen_random_uuid(), 'content', 0, r.ends, 'english', 0, false, r.terms, $2,
       l2_normalize(m.part + d.part + t.part)
FROM (SELECT p.owner, p.ends, p.terms, floor(random() * 400)::integer + 1 AS middle,
             floor(random() * 4000)::integer + 1 AS deviation, floor(random() * 4000)::integer + 1 AS detail
      FROM rem.passages p WHERE p.tenant_id = $1 AND p.owner LIKE 'user-%' LIMIT $3) r
JOIN bench_vectors m ON m.kind = 'middle' AND m.number = r.middle
JOIN bench_vectors d ON d.kind = 'deviation' AND d.number = r.deviation
JOIN bench_vectors t ON t.kind = 'detail' AND t.number = r.detail

-- name: asked_vectors
SELECT l2_normalize(m.part + d.part)::vector::text FROM generate_series(1, $1::integer) AS i
JOIN bench_vectors m ON m.kind = 'middle' AND m.number = i % 400 + 1
JOIN bench_vectors d ON d.kind = 'deviation' AND d.number = i * 7 % 4000 + 1

-- name: bare_exact
-- The plus keeps the planner from the index.
SELECT r.*, s.distance FROM (
  SELECT p.entity_id, p.embedding <=> (SELECT $3::text::halfvec) AS distance FROM rem.passages p
  WHERE p.tenant_id = $1 AND p.owner = $2 ORDER BY (p.embedding <=> (SELECT $3::text::halfvec)) + 0 LIMIT $4) s
JOIN rem.resources r ON r.tenant_id = $1 AND r.id = s.entity_id ORDER BY s.distance

-- name: bare_hnsw
SELECT r.*, s.distance FROM (
  SELECT p.entity_id, p.embedding::halfvec(384) <=> $3::text::halfvec(384) AS distance FROM rem.passages p
  WHERE p.model_id = 1 AND p.tenant_id = $1 AND p.owner = $2
  ORDER BY p.embedding::halfvec(384) <=> $3::text::halfvec(384) LIMIT $4) s
JOIN rem.resources r ON r.tenant_id = $1 AND r.id = s.entity_id ORDER BY s.distance

-- name: bare_words_scan
SELECT r.*, s.weight FROM (
  SELECT p.entity_id, -(p.terms <#> (SELECT q.terms FROM rem.rem_query_terms($1, $3, '', '') q)) AS weight
  FROM rem.passages p WHERE p.tenant_id = $1 AND p.owner = $2 ORDER BY weight DESC LIMIT $4) s
JOIN rem.resources r ON r.tenant_id = $1 AND r.id = s.entity_id ORDER BY s.weight DESC

-- name: bare_words_index
-- Only the rarest three words: the lists of common words are longer than the owner's rows are worth.
WITH query AS MATERIALIZED (SELECT q.terms FROM rem.rem_query_terms($1, $3, '', '') q)
SELECT r.*, s.weight FROM (
  SELECT p.entity_id, -(p.terms <#> (SELECT terms FROM query)) AS weight FROM rem.passages p
  WHERE rem.rem_postings(p.tenant_id, p.owner, p.terms) && ARRAY(
    SELECT rem.rem_posting($1, $2, t.term) FROM rem.rem_sparse_terms((SELECT terms FROM query)) t
    ORDER BY t.weight DESC LIMIT 3)
  ORDER BY weight DESC LIMIT $4) s
JOIN rem.resources r ON r.tenant_id = $1 AND r.id = s.entity_id ORDER BY s.weight DESC

-- name: sizes
-- The largest tables and indexes, and the whole database, in bytes. A table does not include its indexes.
SELECT c.relname AS name, CASE c.relkind WHEN 'r' THEN pg_table_size(c.oid) ELSE pg_relation_size(c.oid) END AS bytes
FROM pg_class c WHERE c.relnamespace = 'rem'::regnamespace AND c.relkind IN ('r', 'i') AND pg_relation_size(c.oid) > 1000000
UNION ALL SELECT 'database', pg_database_size(current_database())
ORDER BY bytes DESC
