-- name: rows
-- Store rows ($2) for each of the tenants with the numbers $3 to $4.
INSERT INTO rem.resources (tenant_id, user_id, name, content)
SELECT 'tenant-' || t, $1, 'Row ' || i, array_to_string(ARRAY(
  SELECT 'w' || translate((floor(exp(random() * ln(30000)))::integer + 0 * i * t)::text, '0123456789', 'bcdfghjklm')
  FROM generate_series(1, 30)), ' ')
FROM generate_series($3::integer, $4::integer) AS t, generate_series(1, $2::integer) AS i

-- name: export_tenant
-- Return the rows of a tenant, to store the same ones elsewhere.
SELECT id, name, content FROM rem.resources WHERE tenant_id = $1

-- name: import_row
INSERT INTO rem.resources (tenant_id, user_id, id, name, content) VALUES ($1, $2, $3, $4, $5)

-- name: passages
-- Make a passage for each row, with a vector that depends only on the row.
INSERT INTO rem.passages (tenant_id, owner, entity_type, entity_id, field, starts, ends, language, prior,
                          tells_time, terms, model_id, embedding)
SELECT r.tenant_id, r.user_id, 'resources', r.id, 'content', 0, length(r.content), 'english', 0, false,
       rem.rem_passage_terms('english', ARRAY[r.content], ARRAY[1]), 1, l2_normalize(m.part + d.part)
FROM rem.resources r
JOIN bench_vectors m ON m.kind = 'middle' AND m.number = abs(hashtext(r.content)) % 400 + 1
JOIN bench_vectors d ON d.kind = 'deviation' AND d.number = abs(hashtext(r.id::text)) % 4000 + 1

-- name: means
INSERT INTO rem.embedding_means
SELECT tenant_id, owner, 1, avg(embedding), count(*) FROM rem.passages GROUP BY tenant_id, owner ON CONFLICT DO NOTHING
