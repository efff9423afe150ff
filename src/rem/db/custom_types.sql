-- name: columns
-- Return the columns of a table of REM.
SELECT a.attname::text AS name,
       replace(format_type(a.atttypid, NULL), 'timestamp with time zone', 'timestamptz') AS sql_type,
       NOT a.attnotnull AS nullable, pg_get_expr(d.adbin, d.adrelid) AS default_expression
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(format('rem.%I', $1::text)) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: entity_type
SELECT natural_key, summary_expression, search_expression, search_fields FROM rem.entity_types WHERE name = $1

-- name: entity_types
SELECT name, natural_key FROM rem.entity_types ORDER BY name

-- name: next_number
-- Return the number of the next migration of a custom type. $1 is the prefix of their names.
SELECT count(*) + 1 FROM rem.migrations WHERE starts_with(name, $1)
