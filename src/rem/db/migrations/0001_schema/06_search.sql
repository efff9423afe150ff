-- What SEARCH reads: every searchable text as passages, with the statistics that weigh their words.

-- The models whose vectors are here. Vectors of two models cannot be compared, so one of them is current.
CREATE TABLE embedding_models (
  id smallint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  name text NOT NULL,
  dimension integer NOT NULL CHECK (dimension BETWEEN 1 AND 4000),
  is_current boolean NOT NULL DEFAULT false,
  UNIQUE (name, dimension)
);
CREATE UNIQUE INDEX embedding_models_current ON embedding_models (is_current) WHERE is_current;

-- The terms of a sparse vector.
CREATE FUNCTION rem_sparse_terms(vector sparsevec) RETURNS TABLE (term integer, weight real)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 30 AS $$
  SELECT split_part(item, ':', 1)::integer, split_part(item, ':', 2)::real
  FROM string_to_table(nullif(btrim(split_part(vector::text, '/', 1), '{}'), ''), ',') AS item
$$;

-- A term in the passages of one owner, as a number: with these, an inverted index answers for one owner without looking
-- at the others' passages. Two that fall together only cost time, because what is found is weighed by its terms.
CREATE FUNCTION rem_posting(tenant_id text, owner text, term integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (hashtextextended(tenant_id || '/' || owner, term) % 2147483647)::integer;

CREATE FUNCTION rem_postings(tenant_id text, owner text, terms sparsevec) RETURNS integer[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000
RETURN ARRAY(SELECT rem.rem_posting(tenant_id, owner, t.term) FROM rem.rem_sparse_terms(terms) t);

-- A stretch of an entity's text. It repeats the owner, so that filter and index meet in one table, and it is narrow: a
-- search reads all passages of an owner, and must not read their text. A passage without its embedding is the queue of
-- the embedder: nothing can be lost. Only records have none: the texts that they are read from are embedded.
CREATE TABLE passages (
  tenant_id text NOT NULL,
  id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  -- The user, or the empty string for what the tenant shares: then "own and shared" is one condition on one index.
  owner text NOT NULL,
  entity_type text NOT NULL,
  entity_id uuid NOT NULL,
  -- Where the text stands: the column, and the characters from `starts` to before `ends`.
  field text NOT NULL,
  starts integer NOT NULL,
  ends integer NOT NULL,
  -- What it is a part of (a message: its session), and its place therein.
  group_id uuid,
  position integer,
  expires_at timestamptz,
  language text NOT NULL,
  -- How good an answer it makes whatever the question, who said it, and whether it says when.
  prior real NOT NULL,
  speaker text,
  tells_time boolean NOT NULL,
  terms sparsevec NOT NULL,
  model_id smallint,
  embedding halfvec,
  -- How often it could not be embedded.
  embedding_failures smallint NOT NULL DEFAULT 0,
  -- NULL for types without a time.
  happened_at timestamptz,
  -- What the passages of a row are for an answer (rem/search/passages.py).
  kind text NOT NULL DEFAULT 'statement'
    CONSTRAINT kind_is_known CHECK (kind IN ('statement', 'question', 'remark', 'answer', 'copy')),
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT embedding_has_model CHECK ((embedding IS NULL) = (model_id IS NULL))
) WITH (toast_tuple_target = 8160);
ALTER TABLE passages ALTER COLUMN embedding SET STORAGE PLAIN, ALTER COLUMN terms SET STORAGE MAIN;
CREATE INDEX passages_owner ON passages (tenant_id, owner, entity_type);
CREATE INDEX passages_entity ON passages (tenant_id, entity_id, entity_type);
CREATE INDEX passages_words ON passages USING gin (rem_postings(tenant_id, owner, terms));
CREATE INDEX passages_group ON passages (tenant_id, group_id, position) WHERE group_id IS NOT NULL;
CREATE INDEX passages_without_embedding ON passages (tenant_id, owner, id) WHERE embedding IS NULL AND entity_type <> 'records';

-- What was written and has no passages yet: all rows that one statement wrote for one owner are one row of the queue,
-- because a bulk load must not write each row twice.
CREATE TABLE search_queue (
  tenant_id text NOT NULL,
  id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  owner text NOT NULL,
  entity_type text NOT NULL,
  entity_ids uuid[] NOT NULL,
  -- How often they could not be indexed. After some failures they are set aside (rem_is_set_aside).
  failures smallint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant_id, id)
);
CREATE INDEX search_queue_owner ON search_queue (tenant_id, owner);

-- In how many passages of a tenant a term is. Writers only append to the deltas, so they never wait for each other; the
-- indexer folds the deltas in. The truth is the sum of both. The language is part of the term's number.
CREATE TABLE term_counts (
  tenant_id text NOT NULL,
  term integer NOT NULL,
  passages bigint NOT NULL,
  PRIMARY KEY (tenant_id, term)
);
CREATE INDEX term_counts_gone ON term_counts (tenant_id) WHERE passages = 0;
CREATE TABLE term_count_deltas (
  tenant_id text NOT NULL,
  term integer NOT NULL,
  passages bigint NOT NULL
);
CREATE INDEX term_count_deltas_term ON term_count_deltas (tenant_id, term);

-- How many passages there are of a language in a tenant, and of an owner; kept in the same way.
CREATE TABLE passage_totals (
  tenant_id text NOT NULL,
  -- An owner's total has no language, a language's no owner.
  owner text,
  language text,
  entity_type text NOT NULL,
  passages bigint NOT NULL,
  CONSTRAINT passage_totals_key UNIQUE NULLS NOT DISTINCT (tenant_id, owner, language, entity_type)
);
CREATE TABLE passage_total_deltas (LIKE passage_totals);
CREATE INDEX passage_total_deltas_key ON passage_total_deltas (tenant_id, owner, language, entity_type);

-- The middle of an owner's vectors. Everything that one person talks about is alike to a model; what is left without the
-- middle is what tells one passage from another.
CREATE TABLE embedding_means (
  tenant_id text NOT NULL,
  owner text NOT NULL,
  model_id smallint NOT NULL,
  mean halfvec NOT NULL,
  passages bigint NOT NULL,
  PRIMARY KEY (tenant_id, owner, model_id)
);

-- How well a passage fits a question: its similarity in meaning, the same without what all passages of its owner have in
-- common, and the weight of the words that they share.
CREATE TYPE passage_score AS (
  id bigint,
  entity_type text,
  entity_id uuid,
  group_id uuid,
  "position" integer,
  prior real,
  speaker text,
  tells_time boolean,
  similarity real,
  distinction real,
  weight real,
  kind text
);
