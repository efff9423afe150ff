-- FUZZY finds keys and summaries by their trigrams, within what one owner has.

-- The text without accents, in ASCII: pg_trgm takes for a letter what the server's LC_CTYPE does, and under C (as in the
-- embedded server) that is ASCII only. A letter of another script becomes two letters that depend on its code point alone;
-- the factor scatters neighbours, because letters of one alphabet must not all begin alike.
CREATE FUNCTION rem_ascii(label text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
  SELECT CASE WHEN octet_length(folded) = char_length(folded) THEN folded ELSE (
    SELECT string_agg(
      CASE
        WHEN ascii(letter) < 128 THEN letter
        WHEN letter ~ '[\u0080-\u00BF\u00D7\u00F7\u2000-\u206F\u2E00-\u2E7F\u3001-\u3003\u3008-\u3020\u30FB]' THEN ' '
        ELSE substr('0123456789abcdefghijklmnopqrstuvwxyz', ascii(letter) * 787 % 1296 / 36 + 1, 1)
          || substr('0123456789abcdefghijklmnopqrstuvwxyz', ascii(letter) * 787 % 36 + 1, 1)
      END, '' ORDER BY place)
    FROM string_to_table(folded, NULL) WITH ORDINALITY AS letters (letter, place)) END
  FROM (SELECT regexp_replace(normalize(replace(replace(replace(
      translate(lower(label), 'øłđðħıς', 'olddhiσ'), 'ß', 'ss'), 'æ', 'ae'), 'œ', 'oe'), NFKD), '[\u0300-\u036F]', '', 'g')
    AS folded OFFSET 0) AS plain);

-- What trigrams are made of. Nearly all text is ASCII already, and the test is much cheaper than the rewriting.
CREATE FUNCTION rem_trigram_text(label text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(label) = char_length(label) THEN label ELSE rem_ascii(label) END;

-- Whose row it is, as one entry of a GIN index. Without it every owner's candidates would be compared, and then
-- thrown away; with it they are never read. It narrows; the rows' own columns decide who may see them.
CREATE FUNCTION rem_owner(tenant_id text, user_id text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ARRAY[tenant_id || chr(1) || coalesce(user_id, '')];

-- A small pending list: whatever is in it is read by every query.
CREATE INDEX kv_store_key_trigrams ON kv_store
  USING gin (rem_owner(tenant_id, user_id), rem_trigram_text(entity_key) gin_trgm_ops) WITH (gin_pending_list_limit = 512);
CREATE INDEX kv_store_summary_trigrams ON kv_store
  USING gin (rem_owner(tenant_id, user_id), rem_trigram_text(content_summary) gin_trgm_ops)
  -- A large one: a bulk load should not have to sort in what it appends. The indexer does it afterwards.
  WITH (gin_pending_list_limit = 32768);

-- TRAVERSE goes backwards over the same edges as forwards: a target is also found without its key's separators.
DROP INDEX edges_in;
CREATE INDEX edges_in ON edges (tenant_id, rem_compact_key(dst_key), user_id);
