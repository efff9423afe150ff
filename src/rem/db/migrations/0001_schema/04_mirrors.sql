-- What is derived from the entities and kept exact by triggers (functions/mirrors.sql): the key cache and the graph.

-- UNLOGGED: a crash empties it, and the missing marker row (functions/mirrors.sql) says so.
CREATE UNLOGGED TABLE kv_store (
  tenant_id text NOT NULL,
  user_id text,
  entity_type text NOT NULL,
  entity_key text NOT NULL,
  compact_key text NOT NULL GENERATED ALWAYS AS (rem_compact_key(entity_key)) STORED,
  entity_id uuid NOT NULL,
  -- 1 is the natural key; users and sessions are also found by what stands behind it (e-mail, id).
  key_rank smallint NOT NULL,
  content_summary text NOT NULL,
  expires_at timestamptz,
  -- The whole row as JSON, where it is small: then a lookup is one descent of one index.
  record text
);
-- The id closes the key, because one row's e-mail may be another's name: both are found.
CREATE UNIQUE INDEX kv_store_key ON kv_store (tenant_id, entity_key, user_id, entity_type, entity_id) NULLS NOT DISTINCT;
CREATE INDEX kv_store_compact_key ON kv_store (tenant_id, compact_key, user_id);
CREATE INDEX kv_store_entity ON kv_store (tenant_id, entity_id);

-- A small pending list: whatever is in it is read by every query.
CREATE INDEX kv_store_key_trigrams ON kv_store
  USING gin (rem_owner(tenant_id, user_id), rem_trigram_text(entity_key) gin_trgm_ops) WITH (gin_pending_list_limit = 512);
CREATE INDEX kv_store_summary_trigrams ON kv_store
  USING gin (rem_owner(tenant_id, user_id), rem_trigram_text(content_summary) gin_trgm_ops)
  -- A large one: a bulk load should not have to sort in what it appends. The indexer does it afterwards.
  WITH (gin_pending_list_limit = 32768);

-- One row for each element of a graph_edges list. `dst_key` may dangle: the label is kept until something answers to it.
CREATE TABLE edges (
  tenant_id text NOT NULL,
  src_type text NOT NULL,
  src_id uuid NOT NULL,
  ordinal integer NOT NULL,
  user_id text,
  src_key text NOT NULL,
  dst_key text NOT NULL CONSTRAINT dst_fits CHECK (octet_length(dst_key) BETWEEN 1 AND 1024),
  dst_type text,
  rel_type text NOT NULL,
  weight double precision NOT NULL,
  origin text NOT NULL,
  properties jsonb NOT NULL,
  PRIMARY KEY (tenant_id, src_id, src_type, ordinal)
);
-- TRAVERSE goes backwards over the same edges as forwards: a target is also found without its key's separators.
CREATE INDEX edges_in ON edges (tenant_id, rem_compact_key(dst_key), user_id);

-- Nearest neighbours for vectors of one dimension; called for the configured one.
CREATE FUNCTION rem_index_embeddings(dimension integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  -- HNSW takes 2,000 dimensions as vector, 4,000 as halfvec.
  EXECUTE format(
    'CREATE INDEX IF NOT EXISTS %1$I ON documents USING hnsw ((embedding::%2$s(%3$s)) %2$s_cosine_ops)
     WITH (m = 16, ef_construction = 64) WHERE vector_dims(embedding) = %3$s',
    'documents_embedding_' || dimension, CASE WHEN dimension <= 2000 THEN 'vector' ELSE 'halfvec' END, dimension);
END $$;
