-- The search index: the queue of rows to index, the weights of words, and the statistics of both.

-- Return a SELECT of the columns of `source` that the index depends on. A row is indexed again when one of them changes.
CREATE OR REPLACE FUNCTION rem_searchable_rows_statement(entity rem.entity_types, source text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format('SELECT r.tenant_id, r.user_id, r.id, r.key, r.expires_at, r.metadata ->> ''language'' AS language,
                   r.metadata ->> ''speaker'' AS speaker, %s AS happened_at, %s AS body
                 FROM %s r WHERE r.deleted_at IS NULL',
                CASE entity.name WHEN 'moments' THEN 'r.starts_timestamp' WHEN 'resources' THEN 'r.timestamp' ELSE 'NULL::timestamptz' END,
                entity.search_expression, source)
$$;

-- Return an INSERT that puts the rows of a query into the queue, one entry for each owner. The indexer splits large entries later,
-- so that the writer does not have to wait for it.
CREATE OR REPLACE FUNCTION rem_enqueue_statement(entity rem.entity_types, rows_query text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format('INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
                 SELECT tenant_id, coalesce(user_id, ''''), %L, array_agg(id) FROM (%s) changed GROUP BY tenant_id, user_id',
                entity.name, rows_query)
$$;

-- Put all rows into the queue, for a time when nothing kept the index current. The old passages stay until then.
CREATE OR REPLACE FUNCTION rem_enqueue_all_rows() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  entity rem.entity_types;
BEGIN
  DELETE FROM rem.search_queue;
  FOR entity IN SELECT * FROM rem.entity_types WHERE search_fields <> '{}' LOOP
    EXECUTE rem.rem_enqueue_statement(entity, format('SELECT tenant_id, user_id, id FROM rem.%I WHERE deleted_at IS NULL', entity.name));
    EXECUTE format('DELETE FROM rem.passages p WHERE p.entity_type = %1$L AND NOT EXISTS (
                      SELECT FROM rem.%1$I r WHERE (r.tenant_id, r.id) = (p.tenant_id, p.entity_id) AND r.deleted_at IS NULL)',
                   entity.name);
  END LOOP;
END $$;

-- Return the statements for deleted messages. A message is also indexed by the words of up to three of the eight messages before it, so
-- the messages after a deleted one lose their passages and are indexed again.
CREATE OR REPLACE FUNCTION rem_reindex_following_messages(entity rem.entity_types, lost text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN entity.name <> 'messages' THEN '' ELSE format($query$;
    WITH following AS MATERIALIZED (
      SELECT DISTINCT f.tenant_id, f.user_id, f.id FROM (
        SELECT x.*, lead(x.message_index) OVER (PARTITION BY x.tenant_id, x.user_id, x.session_id ORDER BY x.message_index) AS next
        FROM %1$s x) l
      CROSS JOIN LATERAL (
        SELECT m.tenant_id, m.user_id, m.id FROM rem.messages m
        WHERE (m.tenant_id, m.user_id, m.session_id) = (l.tenant_id, l.user_id, l.session_id)
          AND m.message_index > l.message_index AND m.deleted_at IS NULL AND m.content <> '' AND m.role <> 'tool'
        ORDER BY m.message_index LIMIT 8) f
      -- Of consecutive deleted messages only the last one needs to look for the messages after it.
      WHERE l.next IS DISTINCT FROM l.message_index + 1
    ), deleted AS (
      DELETE FROM rem.passages p USING following f
      WHERE (p.tenant_id, p.entity_id, p.entity_type) = (f.tenant_id, f.id, 'messages'))
    INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)
    SELECT tenant_id, user_id, 'messages', array_agg(id) FROM following GROUP BY tenant_id, user_id $query$, lost) END
$$;

-- Return the statements of the generated trigger functions (functions/mirrors.sql) that keep the index of a type current: deleted and
-- changed rows lose their passages at once, new and changed rows are put into the queue.
CREATE OR REPLACE FUNCTION rem_passages_on_insert(entity rem.entity_types) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN entity.search_fields = '{}' THEN 'NULL'
    ELSE rem.rem_enqueue_statement(entity, 'SELECT r.tenant_id, r.user_id, r.id FROM new_rows r WHERE r.deleted_at IS NULL') END
$$;

CREATE OR REPLACE FUNCTION rem_passages_on_delete(entity rem.entity_types) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN entity.search_fields = '{}' THEN 'NULL'
    ELSE format('DELETE FROM rem.passages p USING old_rows o
                 WHERE (p.tenant_id, p.entity_id, p.entity_type) = (o.tenant_id, o.id, %L)', entity.name)
      || rem.rem_reindex_following_messages(entity, 'old_rows') END
$$;

CREATE OR REPLACE FUNCTION rem_passages_on_update(entity rem.entity_types) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN entity.search_fields = '{}' THEN 'NULL'
    ELSE format('DELETE FROM rem.passages p USING (%1$s EXCEPT %2$s) o
                 WHERE (p.tenant_id, p.entity_id, p.entity_type) = (o.tenant_id, o.id, %3$L);',
                rem.rem_searchable_rows_statement(entity, 'old_rows'), rem.rem_searchable_rows_statement(entity, 'new_rows'), entity.name)
      || rem.rem_enqueue_statement(entity,
           rem.rem_searchable_rows_statement(entity, 'new_rows') || ' EXCEPT ' || rem.rem_searchable_rows_statement(entity, 'old_rows'))
      || rem.rem_reindex_following_messages(entity,
           '(SELECT o.* FROM old_rows o JOIN new_rows n USING (tenant_id, id) WHERE o.deleted_at IS NULL AND n.deleted_at IS NOT NULL)') END
$$;

-- Return the words of a text as numbers, with their frequencies. The language is part of the number, so one sparse vector can hold
-- the words of several languages.
CREATE OR REPLACE FUNCTION rem_terms(language text, body text) RETURNS TABLE (term integer, frequency real)
-- Not STRICT: a strict function is not inlined, and would be planned at every call.
LANGUAGE sql STABLE PARALLEL SAFE ROWS 30 AS $$
  SELECT (1 + (rem.rem_word_number(language || ':' || lexeme) & 4611686018427387903) % 999999999)::integer,
         sum(cardinality(positions))::real
  FROM unnest(to_tsvector(language::regconfig, body)) GROUP BY 1
$$;

-- Return the weight of a term in a passage: BM25 without the rarity of the term, which the query brings. The average length of BM25 is a
-- fixed 90 words, because passages have a limited length (docs/decisions/0007).
CREATE OR REPLACE FUNCTION rem_term_weight(frequency real, length real) RETURNS real
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length / 90));

-- Return a passage as a sparse vector of its words. The words come from several texts (body, title, date, earlier messages), each with
-- its own weight.
CREATE OR REPLACE FUNCTION rem_passage_terms(language text, texts text[], shares real[]) RETURNS sparsevec
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  WITH counted AS (
    SELECT t.term, sum(t.frequency * p.share)::real AS frequency
    FROM unnest(texts, shares) AS p (body, share) CROSS JOIN LATERAL rem.rem_terms(language, p.body) t GROUP BY t.term)
  SELECT ('{' || coalesce(string_agg(term || ':' || rem.rem_term_weight(frequency, length), ',' ORDER BY term), '')
          || '}/1000000000')::sparsevec
  FROM (SELECT term, frequency, sum(frequency) OVER ()::real AS length FROM counted) c
$$;

-- Replace the passages of some entities. Return the number of new passages. The vector of a passage is kept if the passage is still
-- at the same place: a row with another text has lost its passages when it was written.
CREATE OR REPLACE FUNCTION rem_store_passages(of_tenant text, of_type text, entity_ids uuid[], passages json) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  stored integer;
BEGIN
  WITH replaced AS (
    DELETE FROM rem.passages p WHERE p.tenant_id = of_tenant AND p.entity_id = ANY (entity_ids) AND p.entity_type = of_type
    RETURNING p.entity_id, p.field, p.starts, p.ends, p.model_id, p.embedding)
  INSERT INTO rem.passages (tenant_id, owner, entity_type, entity_id, field, starts, ends, group_id, position, expires_at,
                            language, prior, speaker, tells_time, happened_at, kind, terms, model_id, embedding)
  SELECT of_tenant, g.owner, of_type, g.entity_id, g.field, g.starts, g.ends, g.group_id, g.position, g.expires_at,
         g.language, g.prior, g.speaker, g.tells_time, g.happened_at, g.kind,
         rem.rem_passage_terms(g.language, g.texts, g.shares), r.model_id, r.embedding
  FROM json_to_recordset(passages) AS g (owner text, entity_id uuid, field text, starts integer, ends integer,
    group_id uuid, position integer, expires_at timestamptz, language text, prior real, speaker text,
    tells_time boolean, happened_at timestamptz, kind text, texts text[], shares real[])
  LEFT JOIN replaced r USING (entity_id, field, starts, ends);
  GET DIAGNOSTICS stored = ROW_COUNT;
  RETURN stored;
END $$;

-- Return whether what failed so often is left alone until somebody asks for another try.
CREATE OR REPLACE FUNCTION rem_is_set_aside(failures smallint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN failures >= 3;

-- Return whether a passage counts for statistics: a statement, or any message of a dialogue, which has a position.
CREATE OR REPLACE FUNCTION rem_is_counted(kind text, "position" integer) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN kind IN ('statement', 'answer') OR "position" IS NOT NULL;

-- Update the statistics after any write to passages. Questions that a user asks REM do not count for the rarity of words, nor does what
-- quotes other rows: with every question that is asked again, its words would become more frequent and count less.
CREATE OR REPLACE FUNCTION rem_count_passages() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  sign integer := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
BEGIN
  IF NOT EXISTS (SELECT FROM changed_rows) THEN
    RETURN NULL;
  END IF;
  INSERT INTO rem.term_count_deltas (tenant_id, term, passages)
  SELECT c.tenant_id, t.term, sign * count(*) FROM changed_rows c CROSS JOIN LATERAL rem.rem_sparse_terms(c.terms) t
  WHERE rem.rem_is_counted(c.kind, c.position) GROUP BY c.tenant_id, t.term;
  INSERT INTO rem.passage_total_deltas (tenant_id, owner, language, entity_type, passages)
  SELECT tenant_id, owner, language, entity_type,
         -- Passages without words do not count for the rarity of words.
         sign * CASE WHEN owner IS NULL THEN count(*) FILTER (WHERE l2_norm(terms) > 0 AND rem.rem_is_counted(kind, position))
                ELSE count(*) END
  FROM changed_rows GROUP BY tenant_id, entity_type, GROUPING SETS (owner, language);
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER count_inserted AFTER INSERT ON passages REFERENCING NEW TABLE AS changed_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_count_passages();
CREATE OR REPLACE TRIGGER count_deleted AFTER DELETE ON passages REFERENCING OLD TABLE AS changed_rows
  FOR EACH STATEMENT EXECUTE FUNCTION rem_count_passages();

-- Add the deltas to the counts. Only one process at a time does it; for others there is nothing to do.
CREATE OR REPLACE FUNCTION rem_fold_statistics() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended('rem.fold_statistics', 0)) THEN
    RETURN false;
  END IF;
  WITH folded AS (DELETE FROM rem.term_count_deltas RETURNING tenant_id, term, passages)
  INSERT INTO rem.term_counts AS c (tenant_id, term, passages)
  SELECT tenant_id, term, sum(passages) FROM folded GROUP BY tenant_id, term ORDER BY tenant_id, term
  ON CONFLICT (tenant_id, term) DO UPDATE SET passages = c.passages + excluded.passages;
  DELETE FROM rem.term_counts WHERE passages = 0;
  WITH folded AS (DELETE FROM rem.passage_total_deltas RETURNING *)
  INSERT INTO rem.passage_totals AS c (tenant_id, owner, language, entity_type, passages)
  SELECT tenant_id, owner, language, entity_type, sum(passages)
  FROM folded GROUP BY tenant_id, owner, language, entity_type
  ON CONFLICT ON CONSTRAINT passage_totals_key DO UPDATE SET passages = c.passages + excluded.passages;
  DELETE FROM rem.passage_totals WHERE passages = 0;
  DELETE FROM rem.embedding_means m WHERE NOT EXISTS (
    SELECT FROM rem.passage_totals t WHERE t.tenant_id = m.tenant_id AND t.owner = m.owner);
  RETURN true;
END $$;

-- Create the vector index (HNSW) of one model.
CREATE OR REPLACE FUNCTION rem_index_passages(of_model smallint, dimension integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format(
    'CREATE INDEX IF NOT EXISTS %I ON rem.passages USING hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops)
     WITH (m = 16, ef_construction = 64) WHERE model_id = %s', 'passages_embedding_' || of_model, dimension, of_model);
  PERFORM rem.rem_name_partition_indexes();
END $$;

-- Compute the mean of an owner's vectors again, if the number of passages has changed by more than a tenth, or by more than a fiftieth
-- for an owner with few. The questions that the owner asked are left out: a mean of questions is similar to every question.
CREATE OR REPLACE FUNCTION rem_refresh_embedding_mean(of_tenant text, of_owner text, of_model smallint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  tolerance numeric;
  mean_passages bigint := (SELECT m.passages FROM rem.embedding_means m
                   WHERE (m.tenant_id, m.owner, m.model_id) = (of_tenant, of_owner, of_model));
  owned_passages bigint := (SELECT c.passages FROM rem.rem_owner_passage_counts(of_tenant, ARRAY[of_owner], NULL) c);
  embedded_passages bigint;
BEGIN
  tolerance := CASE WHEN mean_passages < 2000 THEN 0.02 ELSE 0.1 END;
  IF owned_passages BETWEEN mean_passages * (1 - tolerance) AND mean_passages * (1 + tolerance) THEN
    RETURN false;
  END IF;
  -- During embedding, the owner has more passages than vectors.
  SELECT count(*) INTO embedded_passages FROM rem.passages p
  WHERE p.tenant_id = of_tenant AND p.owner = of_owner AND p.model_id = of_model;
  IF embedded_passages BETWEEN mean_passages * (1 - tolerance) AND mean_passages * (1 + tolerance) THEN
    RETURN false;
  END IF;
  IF embedded_passages < 10 THEN
    DELETE FROM rem.embedding_means m WHERE (m.tenant_id, m.owner, m.model_id) = (of_tenant, of_owner, of_model);
    RETURN false;
  END IF;
  INSERT INTO rem.embedding_means AS m (tenant_id, owner, model_id, mean, passages)
  SELECT of_tenant, of_owner, of_model, avg(s.embedding), embedded_passages
  FROM (SELECT p.embedding FROM rem.passages p
        WHERE p.tenant_id = of_tenant AND p.owner = of_owner AND p.model_id = of_model
          AND rem.rem_is_counted(p.kind, p.position) LIMIT 20000) s
  HAVING count(*) > 0
  ON CONFLICT (tenant_id, owner, model_id) DO UPDATE SET mean = excluded.mean, passages = excluded.passages;
  RETURN true;
END $$;

-- Return the number of rows with a text that are neither indexed nor in the queue. There should be none.
CREATE OR REPLACE FUNCTION rem_count_unindexed_rows() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  entity rem.entity_types;
  unindexed bigint;
  total bigint := 0;
BEGIN
  FOR entity IN SELECT * FROM rem.entity_types WHERE search_fields <> '{}' LOOP
    EXECUTE format(
      'SELECT count(*) FROM rem.%1$I r WHERE r.deleted_at IS NULL AND %2$s ~ ''[[:alnum:]]''
         AND (r.metadata -> ''searchable'') IS DISTINCT FROM ''false'' %3$s
         AND NOT EXISTS (SELECT FROM rem.passages p WHERE (p.tenant_id, p.entity_id, p.entity_type) = (r.tenant_id, r.id, %1$L))
         AND (r.tenant_id, r.id) NOT IN (SELECT q.tenant_id, unnest(q.entity_ids) FROM rem.search_queue q WHERE q.entity_type = %1$L)',
      entity.name, entity.search_expression, CASE entity.name WHEN 'messages' THEN 'AND r.role <> ''tool''' ELSE '' END)
      INTO unindexed;
    total := total + unindexed;
  END LOOP;
  RETURN total;
END $$;
