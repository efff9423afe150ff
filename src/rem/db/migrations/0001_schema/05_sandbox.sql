-- What the SQL verb stands on (functions/sandbox.sql): one row that only the owner of the schema can read.

CREATE TABLE sql_access (
  -- Together they sign whose rows a query may see.
  inner_key bytea NOT NULL,
  outer_key bytea NOT NULL,
  -- The login role of the verb. Its password opens nothing by itself: without a signed scope no row is visible.
  role_name text,
  password text,
  -- What undoes rem_sql_close_catalog(); NULL while the catalogue is open to every role.
  reopening text[]
);
REVOKE ALL ON sql_access FROM PUBLIC;

-- 610 random bits each: pgcrypto need not be there.
INSERT INTO sql_access (inner_key, outer_key)
SELECT (SELECT sha512(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8')) FROM generate_series(1, 5)),
       (SELECT sha512(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8')) FROM generate_series(1, 5));
