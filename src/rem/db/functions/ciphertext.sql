-- Encrypted texts begin with `rem1:` (rem/encryption/sealed_values.py). The database cannot read them, so it never cuts or compares them.

CREATE OR REPLACE FUNCTION rem_is_sealed(text_value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN text_value LIKE 'rem1:%';

-- Return the beginning of a text; of an encrypted one, all of it.
CREATE OR REPLACE FUNCTION rem_head(text_value text, characters integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN text_value LIKE 'rem1:%' THEN text_value ELSE left(text_value, characters) END;

-- Return a part of a text; of an encrypted one, all of it.
CREATE OR REPLACE FUNCTION rem_part(text_value text, starts integer, ends integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN text_value LIKE 'rem1:%' THEN text_value ELSE substr(text_value, starts + 1, ends - starts) END;

-- Return a digest that is the same for equal texts. Encrypted texts bring a keyed one.
CREATE OR REPLACE FUNCTION rem_text_digest(text_value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN text_value LIKE 'rem1:%' AND split_part(text_value, ':', 3) <> '' THEN split_part(text_value, ':', 3) ELSE md5(text_value) END;

-- Return the number of a word in the search index. With encryption it is a keyed hash; the key comes with the connections of the pool.
CREATE OR REPLACE FUNCTION rem_word_number(word text) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN coalesce(current_setting('rem.word_key', true), '') = '' THEN hashtextextended(word, 0)
  ELSE ('x' || encode(substr(sha256(convert_to(current_setting('rem.word_key') || word, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint END;
