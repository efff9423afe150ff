-- Entities: the register of their types, the columns that all of them have, and a table for each.

-- What REM keeps. The expressions are over a row `r` of the table; they come from migrations, never from input.
CREATE TABLE entity_types (
  name text PRIMARY KEY,
  -- How the table's key column is generated.
  natural_key text NOT NULL,
  -- The keys that kv_store has for a row, the natural one first.
  key_expressions text[] NOT NULL,
  summary_expression text NOT NULL,
  -- A row is indexed again when this changes.
  search_expression text NOT NULL,
  -- Whether kv_store holds a copy of small rows. Not for what is written far more often than looked up.
  is_cached boolean NOT NULL DEFAULT true,
  is_builtin boolean NOT NULL DEFAULT false,
  -- The columns that SEARCH reads, and the one that is the title of a row.
  search_fields text[] NOT NULL DEFAULT '{}',
  title_field text,
  -- Further keys of a row, as expressions over a row `r` that give text[]. Aliases are names: LOOKUP and FUZZY find the row by them.
  alias_expression text,
  -- Exact keys, such as an address: LOOKUP and edges find the row by them, and FUZZY does not compare a text with them.
  exact_key_expression text,
  -- Weak keys, such as a heading: they count only as long as no other row that the caller sees has the same key.
  weak_key_expression text
);

-- Writers who set rem.untouched say that what they write is no change that anyone should see.
CREATE FUNCTION rem_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.updated_at = OLD.updated_at AND current_setting('rem.untouched', true) IS DISTINCT FROM 'on' THEN
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

-- A content may become encrypted, or encrypted with another key: a row that is read and written back keeps its text. The database
-- cannot tell whether it is the same text.
CREATE FUNCTION rem_refuse_content_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  was jsonb := to_jsonb(OLD);
  becomes jsonb := to_jsonb(NEW);
BEGIN
  IF current_setting('rem.masks_content', true) = 'on' OR NOT EXISTS (
      SELECT FROM unnest('{content,tool_calls,role,session_id,message_index}'::text[]) AS c (name)
      WHERE was -> c.name IS DISTINCT FROM becomes -> c.name
        AND (substring(becomes ->> c.name FROM 'rem1:([a-z0-9-]+):') IS NULL
             OR substring(becomes ->> c.name FROM 'rem1:([a-z0-9-]+):') = substring(was ->> c.name FROM 'rem1:([a-z0-9-]+):'))) THEN
    RETURN NEW;
  END IF;
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

