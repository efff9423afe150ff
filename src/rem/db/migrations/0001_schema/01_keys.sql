-- Keys: the one function that makes a key of a label, and what FUZZY compares.

CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS pg_trgm;

-- Lower case, in NFKC again: without its capital a letter may compose with the accent that follows it (İ).
CREATE FUNCTION rem_fold(label text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN normalize(replace(lower(label), 'ς', 'σ'), NFKC);

-- The part of rem_key that judges: the label is in NFKC, with nothing invisible and no space or hyphen at its ends.
CREATE FUNCTION rem_key_of_clean_label(label text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN label ~ '^([[:alpha:]][[:alnum:]+.-]*://|[^\s@]+@[^\s@]+$)' THEN
    regexp_replace(rem_fold(label), '\s+', '-', 'g')
  ELSE
    -- The circled and squared capitals from U+1F150 on have no lower case, so they start no word.
    btrim(regexp_replace(rem_fold(
      regexp_replace(
        regexp_replace(label, '([[:lower:]])((?![\U0001F150-\U0001F189])[[:upper:]])', '\1-\2', 'g'),
        '([[:upper:]])((?![\U0001F150-\U0001F189])[[:upper:]][[:lower:]])', '\1-\2', 'g')), '[\s_-]+', '-', 'g'), '-')
END;

-- The only place where a label becomes a key. "Mood Disorder", "mood_disorder" and "MoodDisorder" are one key;
-- addresses (docs://x.md, a_b@example.com) keep their punctuation, because there it distinguishes. The key of a key is
-- itself. Stored keys depend on it: changing it needs a migration that rewrites them.
CREATE FUNCTION rem_key(label text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  -- Most keys are written as keys already; the test is much cheaper than the rewriting.
  WHEN label ~ '^[a-z0-9]+([-.:/@][a-z0-9]+)*$' THEN label
  ELSE rem_key_of_clean_label(regexp_replace(
    normalize(regexp_replace(label, '[\u00AD\u200B\u2060\uFEFF]', '', 'g'), NFKC), '^[\s-]+|[\s-]+$', '', 'g'))
END;

-- "openai" finds "OpenAI" (open-ai): what is not found as a key is tried without its separators.
CREATE FUNCTION rem_compact_key(key text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN replace(key, '-', '');

-- Return the keys of a JSON list of names. Most rows have none, and PostgreSQL does not call a strict function for NULL: that saves a
-- tenth of a bulk load.
CREATE FUNCTION rem_keys_of(names jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(names) = 'array' THEN ARRAY(
  SELECT k.key FROM (SELECT rem.rem_key(n.name) AS key FROM jsonb_array_elements_text(names) AS n (name)) k
  WHERE octet_length(k.key) BETWEEN 1 AND 1024) ELSE '{}'::text[] END;

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
