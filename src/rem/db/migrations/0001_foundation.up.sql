-- The ground: extensions, the one key normaliser, and the register of entity types.

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

-- What REM keeps. The expressions are over a row `r` of the table; they come from migrations, never from input.
CREATE TABLE entity_types (
  name text PRIMARY KEY,
  -- How the table's key column is generated.
  natural_key text NOT NULL,
  -- The keys that kv_store has for a row, the natural one first.
  key_expressions text[] NOT NULL,
  summary_expression text NOT NULL,
  search_expression text NOT NULL,
  -- Whether kv_store holds a copy of small rows. Not for what is written far more often than looked up.
  is_cached boolean NOT NULL DEFAULT true,
  is_builtin boolean NOT NULL DEFAULT false
);

CREATE FUNCTION rem_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.updated_at = OLD.updated_at THEN
    -- Strictly later, so that a version is never mistaken for another.
    NEW.updated_at := greatest(clock_timestamp(), OLD.updated_at + interval '1 microsecond');
  END IF;
  RETURN NEW;
END $$;

CREATE FUNCTION rem_refuse_identity_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the id, tenant and owner of a stored % never change', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'identity_is_immutable';
END $$;

CREATE FUNCTION rem_refuse_content_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the content of % is never changed in place', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'content_is_immutable';
END $$;

-- The columns, constraints and indexes that every entity has. `key_expression` is over the table's own columns.
CREATE FUNCTION rem_make_entity(table_name text, key_expression text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format($ddl$
    ALTER TABLE %1$I
      ADD COLUMN tenant_id text NOT NULL DEFAULT 'default',
      ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid(),
      ADD COLUMN user_id text,
      ADD COLUMN key text NOT NULL GENERATED ALWAYS AS (%2$s) STORED,
      ADD COLUMN created_at timestamptz NOT NULL DEFAULT now(),
      ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now(),
      ADD COLUMN deleted_at timestamptz,
      ADD COLUMN expires_at timestamptz,
      ADD COLUMN graph_edges jsonb NOT NULL DEFAULT '[]',
      ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}',
      ADD COLUMN tags text[] NOT NULL DEFAULT '{}',
      ADD COLUMN origin text NOT NULL DEFAULT 'user',
      ADD COLUMN sources text[] NOT NULL DEFAULT '{}',
      ADD COLUMN run_id uuid,
      ADD COLUMN confidence double precision,
      ADD COLUMN valid_from timestamptz,
      ADD COLUMN valid_to timestamptz,
      ADD CONSTRAINT %3$I PRIMARY KEY (tenant_id, id),
      ADD CONSTRAINT tenant_id_fits CHECK (octet_length(tenant_id) BETWEEN 1 AND 255),
      ADD CONSTRAINT user_id_fits CHECK (char_length(user_id) BETWEEN 1 AND 255),
      -- A B-tree entry holds about 2,700 bytes, and tenant and owner stand beside the key in it.
      ADD CONSTRAINT key_fits CHECK (octet_length(key) BETWEEN 1 AND 1024),
      ADD CONSTRAINT updated_after_created CHECK (updated_at >= created_at),
      ADD CONSTRAINT graph_edges_is_list CHECK (jsonb_typeof(graph_edges) = 'array'),
      ADD CONSTRAINT metadata_is_object CHECK (jsonb_typeof(metadata) = 'object'),
      ADD CONSTRAINT confidence_is_share CHECK (confidence BETWEEN 0 AND 1),
      ADD CONSTRAINT valid_in_order CHECK (valid_to >= valid_from)
    $ddl$, table_name, key_expression, table_name || '_pkey');
  EXECUTE format('CREATE UNIQUE INDEX %I ON %I (tenant_id, user_id, key) NULLS NOT DISTINCT WHERE deleted_at IS NULL',
                 table_name || '_live_key', table_name);
  EXECUTE format('CREATE INDEX %I ON %I (tenant_id, user_id, key) WHERE deleted_at IS NOT NULL',
                 table_name || '_deleted_key', table_name);
  EXECUTE format('CREATE INDEX %I ON %I (tenant_id, user_id, created_at)', table_name || '_owner_time', table_name);
  EXECUTE format('CREATE INDEX %I ON %I USING gin (metadata jsonb_path_ops)', table_name || '_metadata', table_name);
  EXECUTE format('CREATE INDEX %I ON %I USING gin (tags)', table_name || '_tags', table_name);
  EXECUTE format('CREATE TRIGGER touch BEFORE UPDATE ON %I FOR EACH ROW EXECUTE FUNCTION rem_touch()', table_name);
  EXECUTE format($ddl$
    CREATE TRIGGER keep_identity BEFORE UPDATE OF tenant_id, id, user_id ON %I FOR EACH ROW
    WHEN ((OLD.tenant_id, OLD.id, OLD.user_id) IS DISTINCT FROM (NEW.tenant_id, NEW.id, NEW.user_id))
    EXECUTE FUNCTION rem_refuse_identity_change()
    $ddl$, table_name);
END $$;
