-- name: rows
-- Store rows of one owner with an edge each, of which the mirrors get a copy.
INSERT INTO rem.resources (tenant_id, user_id, name, content, graph_edges)
SELECT $1, $2, 'Row ' || i, array_to_string(ARRAY(
  SELECT 'w' || translate((floor(exp(random() * ln(30000)))::integer + 0 * i)::text, '0123456789', 'bcdfghjklm')
  FROM generate_series(1, 30)), ' '),
  jsonb_build_array(jsonb_build_object('dst', 'row-' || ($3 + (i - $3) / 2), 'rel_type', 'cites', 'weight', 0.5, 'properties', '{}'::jsonb))
FROM generate_series($3::integer, $4::integer) AS i

-- name: logins
INSERT INTO rem_auth.accounts (user_id, tenant_id, email) SELECT 'user-' || i, 'default', 'user-' || i || '@example.com'
FROM generate_series(1, $1::integer) AS i

-- name: keys
INSERT INTO rem_auth.api_keys (id, tenant_id, user_id, name, prefix, key_hash, scopes)
SELECT gen_random_uuid(), 'default', user_id, 'laptop', 'rem_' || user_id, sha256(user_id::bytea), '{read,write}'
FROM rem_auth.accounts

-- name: size
SELECT pg_database_size(current_database())

-- name: tables
-- Return all tables of the memory. The login of the SQL verb belongs to one database.
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname IN ('rem', 'rem_auth', 'rem_jobs') AND (schemaname, tablename) <> ('rem', 'sql_access') ORDER BY 1

-- name: checksum
-- Return the number of rows, and a sum over all their columns that does not depend on their order.
SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {table} t
