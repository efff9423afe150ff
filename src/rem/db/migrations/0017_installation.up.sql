-- The secret of this database. Ids that follow from a name are made with it, so that nobody else can compute them.

CREATE TABLE installation (
  id_key bytea NOT NULL
);
REVOKE ALL ON installation FROM PUBLIC;

-- 610 random bits: pgcrypto need not be there.
INSERT INTO installation (id_key)
SELECT sha512(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8')) FROM generate_series(1, 5);
