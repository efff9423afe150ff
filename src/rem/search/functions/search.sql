-- SEARCH in steps: weigh the words of the query, collect candidate passages, rank the entities they belong to, and load the
-- records of the best. Two scores are computed for each passage: one from vectors (meaning) and one from words (BM25).
-- docs/retrieval.md explains the formula and how its weights were chosen.

-- A role without superuser rights can set pgvector's settings only after pgvector was loaded.
DO $$ BEGIN PERFORM '[1]'::vector; END $$;

-- The weights of the ranking, all in one place. The planner inlines this function, so that each weight is a constant.
CREATE OR REPLACE FUNCTION rem_search_weights() RETURNS TABLE (
  candidate_word numeric, own_word numeric, own_meaning numeric, prior_loss numeric, nearby_word numeric, nearby_meaning numeric,
  previous_word numeric, previous_meaning numeric, next_word numeric, next_meaning numeric, second_next_word numeric,
  alone_word numeric, alone_meaning numeric, named_speaker numeric, time_mentioned numeric, weight_sum numeric, exact numeric,
  message_full numeric, alone_full numeric, moment numeric, related_moment numeric, relative_time numeric, synonym numeric,
  question_loss numeric, remark_loss numeric, remark_share numeric
) LANGUAGE sql IMMUTABLE ROWS 1 AS $$
  SELECT
    0.03,  -- candidate_word: weight of the words against the similarity when candidates are collected
    -- The entity itself:
    2.4,   -- own_word
    2.4,   -- own_meaning; rem_message_meaning has the one of a message
    0.5,   -- prior_loss: this share of the prior is lost where both scores are 1
    -- A message in its session: the best message within four before and after, and its direct neighbours.
    2.0,   -- nearby_word
    1.0,   -- nearby_meaning
    -0.5,  -- previous_word
    0.6,   -- previous_meaning
    1.35,  -- next_word
    0.3,   -- next_meaning
    0.5,   -- second_next_word
    -- An entity outside of sessions and a message outside of a dialogue have no neighbours. They get these instead, or they could
    -- never score as high as a message with neighbours.
    1.6,   -- alone_word
    0.65,  -- alone_meaning
    0.6,   -- named_speaker: the query names the author of the message
    1.1,   -- time_mentioned: the query asks for a time and the message mentions one
    16.25, -- weight_sum: the sum of all weights that a message can get; it scales the score to about 1
    12.0,  -- exact: the text contains the identifiers and quoted phrases of the query; more than other texts can make up for
    0.7,   -- message_full: this share of the query's words is enough for a message to get the full word score
    1.5,   -- alone_full: the same for an entity without neighbours; the words of a short text weigh up to 1.6
    0.6,   -- moment: how much a moment counts as a neighbour of the messages it was derived from
    0.6,   -- related_moment: how much of that a moment passes on over an affinity
    0.5,   -- relative_time: how much words of relative time ("last week") count in a query
    0.7,   -- synonym: how much a synonym of a word of the query counts
    -- In a search over all tables, which looks for what answers:
    10.0,  -- question_loss: what a question of a user loses; it can have more in common with the query than its answer
    2.5,   -- remark_loss: what a command, small talk or a quotation loses
    0.6    -- remark_share: how much the best of these counts for the best scores, to which all scores are relative; questions do not
$$;

-- The weight of the meaning of a message in a dialogue, by the embedding model. `rem-embed-2` was trained to tell such messages apart;
-- with other models, more weight than own_meaning finds less (docs/retrieval-experiments.md).
CREATE OR REPLACE FUNCTION rem_message_meaning(model_name text) RETURNS numeric LANGUAGE sql IMMUTABLE
RETURN CASE model_name WHEN 'rem-embed-2' THEN 4.0 ELSE (SELECT w.own_meaning FROM rem.rem_search_weights() w) END;

-- Return the words of a query as a sparse vector of their rarities (the query side of BM25), in every language of the tenant's
-- texts. Words of relative time and synonyms count less. `full_weight` is the weight of a passage that has every word of the query, also
-- the words that no passage has.
CREATE OR REPLACE FUNCTION rem_query_terms(
  of_tenant text, query_text text, relative_time_words text, synonyms text, OUT terms sparsevec, OUT full_weight real)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  of_language text;
  language_passages bigint;
  relative_time_terms integer[];
  language_items text[];
  language_weight real;
  items text[] := '{}';
BEGIN
  FOR of_language, language_passages IN
    SELECT t.language, sum(t.passages) FROM (
      SELECT language, passages FROM rem.passage_totals WHERE tenant_id = of_tenant AND owner IS NULL
      UNION ALL
      SELECT language, passages FROM rem.passage_total_deltas WHERE tenant_id = of_tenant AND owner IS NULL) t
    GROUP BY t.language
  LOOP
    relative_time_terms := CASE WHEN relative_time_words = '' THEN '{}'
      ELSE ARRAY(SELECT r.term FROM rem.rem_terms(of_language, relative_time_words) r) END;
    -- A word of no statement can be a word of a question, which `FROM messages` finds.
    SELECT array_agg(r.term || ':' || r.rarity) FILTER (WHERE r.passages > 0 OR NOT r.is_synonym), sum(r.rarity) FILTER (WHERE NOT r.is_synonym)
      INTO language_items, language_weight
    FROM (
      SELECT q.term, q.is_synonym, c.passages, (CASE WHEN q.is_synonym THEN w.synonym
          WHEN q.term = ANY (relative_time_terms) THEN w.relative_time ELSE 1 END
        * ln(1 + (greatest(language_passages, c.passages) - c.passages + 0.5) / (c.passages + 0.5)))::real AS rarity
      FROM rem.rem_search_weights() w CROSS JOIN (
        SELECT g.term, bool_and(g.is_synonym) AS is_synonym FROM (
          SELECT t.term, false AS is_synonym FROM rem.rem_terms(of_language, query_text) t
          UNION ALL
          SELECT t.term, true FROM rem.rem_terms(of_language, synonyms) t WHERE synonyms <> '') g
        GROUP BY g.term) q CROSS JOIN LATERAL (
        SELECT coalesce((SELECT t.passages FROM rem.term_counts t WHERE t.tenant_id = of_tenant AND t.term = q.term), 0)
             + coalesce((SELECT sum(d.passages) FROM rem.term_count_deltas d
                         WHERE d.tenant_id = of_tenant AND d.term = q.term), 0) AS passages
        -- OFFSET 0 keeps the planner from counting again for every use of `passages`.
        OFFSET 0) c) r;
    items := items || coalesce(language_items, '{}');
    -- In another language than the query's all of its words are rare, so the smallest sum is the right one.
    full_weight := least(full_weight, language_weight);
  END LOOP;
  -- pgvector sorts the items.
  terms := ('{' || array_to_string(items, ',') || '}/1000000000')::sparsevec;
END $$;

-- Return for each owner: how many passages of some types (NULL: all but records, which no search without FROM reads) it has, how many
-- of them are of messages, and how many passages of moments it has.
CREATE OR REPLACE FUNCTION rem_owner_passage_counts(of_tenant text, owners text[], of_types text[])
RETURNS TABLE (owner text, passages bigint, messages bigint, moments bigint) LANGUAGE sql STABLE ROWS 2 AS $$
  SELECT o.owner, coalesce(sum(t.passages) FILTER (WHERE t.is_searched), 0)::bigint,
         coalesce(sum(t.passages) FILTER (WHERE t.is_searched AND t.entity_type = 'messages'), 0)::bigint,
         coalesce(sum(t.passages) FILTER (WHERE t.entity_type = 'moments'), 0)::bigint
  FROM unnest(owners) AS o (owner) LEFT JOIN LATERAL (
    SELECT c.*, CASE WHEN of_types IS NULL THEN c.entity_type <> 'records' ELSE c.entity_type = ANY (of_types) END AS is_searched FROM (
      SELECT entity_type, passages FROM rem.passage_totals WHERE tenant_id = of_tenant AND owner = o.owner
      UNION ALL
      SELECT entity_type, passages FROM rem.passage_total_deltas WHERE tenant_id = of_tenant AND owner = o.owner) c) t ON true
  GROUP BY o.owner
$$;

-- Return the cosine of a passage and the query. A passage without a vector of the current model has exactly 0.
CREATE OR REPLACE FUNCTION rem_similarity(embedding halfvec, model_id smallint, query_vector halfvec, of_model smallint)
RETURNS double precision LANGUAGE sql IMMUTABLE
RETURN CASE WHEN model_id = of_model THEN 1 - (embedding <=> query_vector) ELSE 0 END;

-- Return how much closer a passage is to the query than the owner's average passage. All texts of one owner point in nearly the same
-- direction, the mean of the owner's vectors. For a message of a dialogue, the mean is subtracted from both vectors before they are compared, because
-- it hides the differences of chats: `direction` is the query's vector minus the mean. For other texts, the mean is often the topic of
-- a collection, and matters; only the similarity of the query and the mean (`centre`) is subtracted, and `spread` gives the result the
-- same scale. An owner with few passages has no mean; then it is the plain cosine, and for other texts than messages 0.1 less, which
-- is about the cosine of unrelated texts. A vector that equals the mean is similar to nothing (pgvector returns NaN).
CREATE OR REPLACE FUNCTION rem_distinction(
  similarity double precision, embedding halfvec, is_in_dialogue boolean, mean halfvec, direction halfvec, centre double precision,
  spread double precision
) RETURNS real LANGUAGE sql IMMUTABLE
RETURN CASE WHEN similarity = 0 THEN 0 WHEN mean IS NULL THEN similarity - CASE WHEN is_in_dialogue THEN 0 ELSE 0.1 END
  WHEN is_in_dialogue THEN coalesce(nullif(1 - ((embedding - mean) <=> direction), 'NaN'), 0)
  ELSE (similarity - centre) / spread END;

-- Return the BM25 weight of the words that a passage and the query have in common.
CREATE OR REPLACE FUNCTION rem_word_weight(terms sparsevec, query_terms sparsevec) RETURNS double precision LANGUAGE sql IMMUTABLE
RETURN -(terms <#> query_terms);

-- Return for each owner the mean of its vectors (NULL if it has none), the query's vector minus that mean, and how similar the query
-- and an average passage are. `spread` is the length of the difference between the query and the mean, times the same of an average
-- passage, which is sqrt(1 - |mean|²) for unit vectors.
CREATE OR REPLACE FUNCTION rem_owner_means(of_tenant text, owners text[], of_model smallint, query_vector halfvec)
RETURNS TABLE (owner text, mean halfvec, direction halfvec, centre double precision, spread double precision)
LANGUAGE sql STABLE ROWS 2 AS $$
  SELECT o.owner, m.mean, coalesce(query_vector - m.mean, query_vector), -(query_vector <#> m.mean),
         greatest((query_vector <-> m.mean) * sqrt(greatest(1 + (m.mean <#> m.mean), 0)), 1e-6)
  FROM unnest(owners) AS o (owner)
  LEFT JOIN rem.embedding_means m ON (m.tenant_id, m.owner, m.model_id) = (of_tenant, o.owner, of_model)
$$;

-- The following functions collect candidates. They share these parameters: `of_types` and `of_field` restrict the passages (NULL:
-- no restriction), `allowed` lists the ids that fulfil WHERE, and `by_session` says that these are the ids of sessions. `span` is the
-- time range of the query (NULL: any time), and `of_kinds` lists the kinds of passages (rem/search/passages.py; NULL: all).
-- MATERIALIZED keeps the planner from reading the means again for every passage, and OFFSET 0 from computing a distance twice.

-- Return the best passages of some owners by comparing all of them. Up to about 20,000 passages this is faster than an index, and
-- it is exact.
CREATE OR REPLACE FUNCTION rem_scan_passages(
  of_tenant text, owners text[], of_types text[], of_field text, allowed uuid[], by_session boolean, span tstzrange,
  of_kinds text[], of_model smallint, query_vector halfvec, query_terms sparsevec, candidate_word_weight real,
  max_passages integer
) RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  is_unfiltered boolean := of_types IS NULL AND of_field IS NULL AND allowed IS NULL AND span IS NULL;
  -- Only messages are questions or remarks, and an index finds them among all else.
  only_messages boolean := coalesce(of_kinds <@ '{question,remark}', false);
BEGIN
  RETURN ARRAY(
    WITH means AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, owners, of_model, query_vector))
    SELECT ROW(s.id, s.entity_type, s.entity_id, s.group_id, s.position, s.prior, s.speaker, s.tells_time, s.similarity,
               rem.rem_distinction(s.similarity, s.embedding, s.position IS NOT NULL, m.mean, m.direction, m.centre, m.spread),
               s.weight, s.kind)::rem.passage_score
    FROM (
      SELECT * FROM (
        SELECT p.id, p.owner, p.entity_type, p.entity_id, p.group_id, p.position, p.prior, p.speaker, p.tells_time, p.kind, p.embedding,
               rem.rem_similarity(p.embedding, p.model_id, query_vector, of_model) AS similarity,
               rem.rem_word_weight(p.terms, query_terms) AS weight
        FROM (SELECT * FROM rem.passages a WHERE NOT only_messages
              UNION ALL SELECT * FROM rem.passages m WHERE only_messages AND m.entity_type = 'messages') p
        WHERE p.tenant_id = of_tenant AND p.owner = ANY (owners)
          AND (is_unfiltered
               OR (of_types IS NULL OR p.entity_type = ANY (of_types)) AND (of_field IS NULL OR p.field = of_field)
                  AND (allowed IS NULL
                       OR coalesce(CASE WHEN by_session THEN p.group_id END, p.entity_id) IN (SELECT unnest(allowed)))
                  AND (span IS NULL OR p.happened_at <@ span))
          AND (of_kinds IS NULL OR p.kind = ANY (of_kinds)) AND (p.expires_at IS NULL OR p.expires_at > now())
        OFFSET 0) every
      ORDER BY every.similarity + every.weight * candidate_word_weight DESC LIMIT max_passages) s
    JOIN means m ON m.owner = s.owner);
END $$;

-- Return the passages of one large owner that are nearest to the query's vector, by the HNSW index of the model.
CREATE OR REPLACE FUNCTION rem_nearest_passages(
  of_tenant text, of_owner text, of_types text[], of_field text, allowed uuid[], by_session boolean, span tstzrange,
  of_kinds text[], of_model smallint, dimension integer, query_vector halfvec, query_terms sparsevec, max_passages integer
) RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE
SET hnsw.ef_search = 100 SET hnsw.iterative_scan = 'relaxed_order' AS $$
DECLARE
  nearest rem.passage_score[];
BEGIN
  -- The index covers vectors of one model and one dimension, and PostgreSQL uses it only if both are literals in the statement.
  EXECUTE format($query$
    WITH means AS MATERIALIZED (SELECT * FROM rem.rem_owner_means($1, ARRAY[$2], %1$s::smallint, $5))
    SELECT array_agg(ROW(s.id, s.entity_type, s.entity_id, s.group_id, s.position, s.prior, s.speaker, s.tells_time, s.similarity,
        rem.rem_distinction(s.similarity, s.embedding, s.position IS NOT NULL, m.mean, m.direction, m.centre, m.spread),
        rem.rem_word_weight(s.terms, $6), s.kind)::rem.passage_score)
    FROM (SELECT p.*, 1 - (p.embedding <=> $5) AS similarity FROM rem.passages p
          WHERE p.model_id = %1$s AND p.tenant_id = $1 AND p.owner = $2
            AND ($3 IS NULL OR p.entity_type = ANY ($3)) AND ($4 IS NULL OR p.field = $4)
            AND ($7 IS NULL OR coalesce(CASE WHEN $8 THEN p.group_id END, p.entity_id) IN (SELECT unnest($7)))
            AND ($10 IS NULL OR p.happened_at <@ $10) AND ($11 IS NULL OR p.kind = ANY ($11)) AND (p.expires_at IS NULL OR p.expires_at > now())
          ORDER BY p.embedding::halfvec(%2$s) <=> $5::halfvec(%2$s) LIMIT $9) s
    CROSS JOIN means m $query$, of_model, dimension)
    INTO nearest USING of_tenant, of_owner, of_types, of_field, query_vector, query_terms, allowed, by_session, max_passages,
      span, of_kinds;
  RETURN coalesce(nearest, '{}');
END $$;

-- Return the passages of one large owner that contain the rarest words of the query, by the inverted index. Passages that share
-- only common words with the query are left out: they are either near in meaning as well, or no good hits.
CREATE OR REPLACE FUNCTION rem_passages_with_rare_words(
  of_tenant text, of_owner text, of_types text[], of_field text, allowed uuid[], by_session boolean, span tstzrange,
  of_kinds text[], of_model smallint, query_vector halfvec, query_terms sparsevec, owned_passages bigint, max_passages integer
) RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  -- The rarest term, and as many more as have at most 300 passages together. A term's rarity tells how many passages have it: 0.5 for a
  -- term that no statement has.
  postings integer[] := ARRAY(
    SELECT rem.rem_posting(of_tenant, of_owner, r.term) FROM (
      SELECT t.term, row_number() OVER rarest AS place, owned_passages * exp(-t.weight) AS own,
             sum(owned_passages * exp(-t.weight)) OVER rarest AS passages
      FROM rem.rem_sparse_terms(query_terms) t WINDOW rarest AS (ORDER BY t.weight DESC, t.term)) r
    WHERE r.passages - r.own < 0.6 * r.place OR r.passages <= 300);
BEGIN
  RETURN ARRAY(
    WITH means AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, ARRAY[of_owner], of_model, query_vector))
    SELECT ROW(s.id, s.entity_type, s.entity_id, s.group_id, s.position, s.prior, s.speaker, s.tells_time, s.similarity,
               rem.rem_distinction(s.similarity, s.embedding, s.position IS NOT NULL, m.mean, m.direction, m.centre, m.spread),
               s.weight, s.kind)::rem.passage_score
    FROM (
      SELECT best.*, rem.rem_similarity(best.embedding, best.model_id, query_vector, of_model) AS similarity FROM (
        SELECT * FROM (
          SELECT p.*, rem.rem_word_weight(p.terms, query_terms) AS weight FROM rem.passages p
          WHERE rem.rem_postings(p.tenant_id, p.owner, p.terms) && postings
            -- Appending '' hides these columns from their index: a bitmap of all passages of the owner would cost more than it saves.
            AND p.owner || '' = of_owner AND p.tenant_id || '' = of_tenant
            AND (of_types IS NULL OR p.entity_type = ANY (of_types)) AND (of_field IS NULL OR p.field = of_field)
            AND (allowed IS NULL
                 OR coalesce(CASE WHEN by_session THEN p.group_id END, p.entity_id) IN (SELECT unnest(allowed)))
            AND (span IS NULL OR p.happened_at <@ span) AND (of_kinds IS NULL OR p.kind = ANY (of_kinds))
            AND (p.expires_at IS NULL OR p.expires_at > now())
          OFFSET 0) every
        ORDER BY every.weight DESC LIMIT max_passages) best) s
    CROSS JOIN means m);
END $$;

-- Return the messages that the ten best moments of some owners were derived from, each with the scores of its best moment. A moment
-- that an affinity connects with one of the ten adds its messages as well, with lower scores. `id` is the passage of the moment;
-- it is NULL for messages that only a connected moment leads to.
CREATE OR REPLACE FUNCTION rem_messages_of_best_moments(
  of_tenant text, owners text[], of_model smallint, query_vector halfvec, query_terms sparsevec
) RETURNS rem.passage_score[] LANGUAGE sql STABLE AS $$
  WITH means AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, owners, of_model, query_vector)
  ), best AS MATERIALIZED (
    SELECT s.id, s.entity_id, s.similarity, s.weight,
           rem.rem_distinction(s.similarity, s.embedding, true, m.mean, m.direction, m.centre, m.spread) AS distinction
    FROM (
      SELECT every.* FROM (
        SELECT p.id, p.owner, p.entity_id, p.embedding, rem.rem_word_weight(p.terms, query_terms) AS weight,
               rem.rem_similarity(p.embedding, p.model_id, query_vector, of_model) AS similarity
        FROM rem.passages p
        WHERE p.tenant_id = of_tenant AND p.owner = ANY (owners) AND p.entity_type = 'moments'
          AND (p.expires_at IS NULL OR p.expires_at > now())
        OFFSET 0) every CROSS JOIN rem.rem_search_weights() w
      ORDER BY every.similarity + every.weight * w.candidate_word DESC, every.id LIMIT 10) s
    JOIN means m ON m.owner = s.owner
  ), reached AS (
    SELECT b.id, b.entity_id AS moment_id, b.similarity, b.distinction, b.weight FROM best b
    UNION ALL
    SELECT NULL, other.source_id, NULL, b.distinction * w.related_moment * s.confidence, b.weight * w.related_moment * s.confidence
    FROM best b CROSS JOIN rem.rem_search_weights() w
    JOIN rem.statement_sources own ON (own.tenant_id, own.source_id) = (of_tenant, b.entity_id)
    JOIN rem.statements s ON (s.tenant_id, s.id) = (of_tenant, own.statement_id)
      AND s.dream = 'affinity' AND s.kind = 'edge' AND s.state = 'live'
    JOIN rem.statement_sources other ON (other.tenant_id, other.statement_id) = (of_tenant, s.id)
      AND other.source_type = 'moments' AND other.source_id <> b.entity_id
  )
  SELECT coalesce(array_agg(ROW(m.id, 'messages', m.source_id, NULL, NULL, NULL, NULL, NULL, m.similarity, m.distinction,
                                m.weight, NULL)::rem.passage_score), '{}')
  FROM (
    SELECT x.source_id, max(r.similarity) AS similarity, max(r.distinction) AS distinction, max(r.weight) AS weight,
           (array_agg(r.id ORDER BY r.similarity DESC, r.id) FILTER (WHERE r.id IS NOT NULL))[1] AS id
    FROM reached r
    -- A moment that its owner has reworded still has the same sources: only ended statements are left out.
    JOIN rem.statements s ON (s.tenant_id, s.entity_id) = (of_tenant, r.moment_id) AND s.entity_type = 'moments'
      AND s.dream = 'moments' AND s.kind = 'row' AND s.state <> 'ended'
    JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (of_tenant, s.id) AND x.source_type = 'messages'
    GROUP BY x.source_id) m
$$;

-- Return the passages of some entities that are not among the candidates yet.
CREATE OR REPLACE FUNCTION rem_missing_passages(
  of_tenant text, owners text[], allowed uuid[], by_session boolean, span tstzrange, of_kinds text[], of_model smallint,
  query_vector halfvec, query_terms sparsevec, wanted rem.passage_score[], candidates rem.passage_score[]
) RETURNS rem.passage_score[] LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    WITH means AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, owners, of_model, query_vector))
    SELECT ROW(s.id, s.entity_type, s.entity_id, s.group_id, s.position, s.prior, s.speaker, s.tells_time, s.similarity,
               rem.rem_distinction(s.similarity, s.embedding, s.position IS NOT NULL, m.mean, m.direction, m.centre, m.spread),
               s.weight, s.kind)::rem.passage_score
    FROM (
      SELECT p.*, rem.rem_similarity(p.embedding, p.model_id, query_vector, of_model) AS similarity,
             rem.rem_word_weight(p.terms, query_terms) AS weight
      FROM (SELECT w.entity_type, w.entity_id FROM unnest(wanted) w
            EXCEPT SELECT c.entity_type, c.entity_id FROM unnest(candidates) c) missing
      JOIN rem.passages p ON (p.tenant_id, p.entity_id, p.entity_type) = (of_tenant, missing.entity_id, missing.entity_type)
      WHERE (allowed IS NULL OR coalesce(CASE WHEN by_session THEN p.group_id END, p.entity_id) IN (SELECT unnest(allowed)))
        AND (span IS NULL OR p.happened_at <@ span) AND (of_kinds IS NULL OR p.kind = ANY (of_kinds))
        AND (p.expires_at IS NULL OR p.expires_at > now())) s
    JOIN means m ON m.owner = s.owner)
$$;

-- Return the entities of some passages if such a passage or the title matches a pattern. `id` is the first passage that does, and NULL if
-- only the title does. `weight` is the rarity of a match: 1 for a single one among all passages, and less, the more entities match.
CREATE OR REPLACE FUNCTION rem_keep_matching(of_tenant text, possible rem.passage_score[], pattern text, all_passages bigint)
RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  -- A phrase has at most 200 characters. It may begin before its passage or end after it.
  margin constant integer := 200;
BEGIN
  RETURN ARRAY(
    SELECT ROW(m.id, m.entity_type, m.entity_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
               ln(1 + (greatest(all_passages, m.matches) - m.matches + 0.5) / (m.matches + 0.5))
               / ln(1 + (greatest(all_passages, m.matches) - 0.5) / 1.5), NULL)::rem.passage_score
    FROM (
      SELECT e.entity_type, e.entity_id, p.id, count(*) OVER () AS matches
      FROM (SELECT entity_type, entity_id, array_agg(id) AS ids FROM unnest(possible) GROUP BY entity_type, entity_id) e
      JOIN rem.entity_types t ON t.name = e.entity_type
      CROSS JOIN LATERAL (SELECT rem.rem_record(e.entity_type, of_tenant, e.entity_id) AS record OFFSET 0) r
      CROSS JOIN LATERAL (
        SELECT min(p.id) AS id
        -- A text can be very long and have many passages, so it is taken out of its record once, not for each of them.
        FROM (SELECT f.field, r.record ->> f.field AS text
              FROM (SELECT DISTINCT field FROM rem.passages WHERE tenant_id = of_tenant AND id = ANY (e.ids)) f OFFSET 0) f
        JOIN rem.passages p ON p.tenant_id = of_tenant AND p.id = ANY (e.ids) AND p.field = f.field
        WHERE rem.rem_part(f.text, greatest(p.starts - margin, 0), p.ends + margin) ~* pattern) p
      WHERE p.id IS NOT NULL OR (r.record ->> t.title_field) ~* pattern) m);
END $$;

-- Return the entities whose text or title contains an identifier or a quoted phrase of the query. `weight` is the share of the found
-- items that an entity contains, and `id` a passage with one of them (see rem_keep_matching). `items` is what
-- rem/search/identifiers.py makes: a pattern, and texts of which all words must be in a passage for it to be compared with the pattern.
CREATE OR REPLACE FUNCTION rem_find_exact_matches(
  of_tenant text, owners text[], of_types text[], of_field text, allowed uuid[], by_session boolean, span tstzrange,
  of_kinds text[], items jsonb, query_terms sparsevec, all_passages bigint
) RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  languages text[] := ARRAY(SELECT language FROM rem.passage_totals WHERE tenant_id = of_tenant AND owner IS NULL
                            UNION SELECT language FROM rem.passage_total_deltas WHERE tenant_id = of_tenant AND owner IS NULL);
  item jsonb;
  postings integer[];
  possible rem.passage_score[];
  matches rem.passage_score[] := '{}';
  found_items integer := 0;
  max_matches constant integer := 300;
  max_passages_of_entity constant integer := 20;
BEGIN
  FOR item IN SELECT * FROM jsonb_array_elements(items) LOOP
    possible := '{}';
    -- Each text of the item in each language and for each owner. In most cases there are two: the user's and the shared ones.
    FOR postings IN
      SELECT array_agg(rem.rem_posting(of_tenant, o.owner, t.term)) FROM unnest(owners) AS o (owner)
      CROSS JOIN unnest(languages) AS l (language) CROSS JOIN jsonb_array_elements_text(item -> 'words') AS w (words)
      CROSS JOIN LATERAL rem.rem_terms(l.language, w.words) t
      LEFT JOIN rem.rem_sparse_terms(query_terms) q ON q.term = t.term
      GROUP BY o.owner, l.language, w.words
      -- An item that many texts contain distinguishes none of them, and comparing them all would take long. exp(-weight) is about the
      -- share of the texts that have a word.
      HAVING all_passages * exp(-coalesce(sum(q.weight), 0)) <= max_matches
    LOOP
      possible := possible || ARRAY(
        SELECT ROW(r.id, r.entity_type, r.entity_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, r.weight, NULL)::rem.passage_score
        FROM (
          SELECT e.*, row_number() OVER (PARTITION BY e.entity_type, e.entity_id ORDER BY e.weight DESC, e.id) AS place
          FROM (
            SELECT p.id, p.entity_type, p.entity_id, rem.rem_word_weight(p.terms, query_terms) AS weight
            FROM rem.passages p
            WHERE rem.rem_postings(p.tenant_id, p.owner, p.terms) @> postings
              -- Appending '' hides these columns from their index, as in rem_passages_with_rare_words.
              AND p.tenant_id || '' = of_tenant AND p.owner || '' = ANY (owners)
              AND (of_types IS NULL OR p.entity_type = ANY (of_types)) AND (of_field IS NULL OR p.field = of_field)
              AND (allowed IS NULL
                   OR coalesce(CASE WHEN by_session THEN p.group_id END, p.entity_id) IN (SELECT unnest(allowed)))
              AND (span IS NULL OR p.happened_at <@ span) AND (of_kinds IS NULL OR p.kind = ANY (of_kinds))
              AND (p.expires_at IS NULL OR p.expires_at > now())
            OFFSET 0) e) r
        -- The best passage of each entity comes first.
        WHERE r.place <= max_passages_of_entity ORDER BY r.place, r.weight DESC, r.id LIMIT max_matches);
    END LOOP;
    possible := rem.rem_keep_matching(of_tenant, possible, item ->> 'pattern', all_passages);
    found_items := found_items + CASE WHEN possible = '{}' THEN 0 ELSE 1 END;
    matches := matches || possible;
  END LOOP;
  RETURN ARRAY(
    SELECT ROW((array_agg(m.id ORDER BY m.weight DESC, m.id) FILTER (WHERE m.id IS NOT NULL))[1], m.entity_type, m.entity_id,
               NULL, NULL, NULL, NULL, NULL, NULL, NULL, sum(m.weight) / found_items, NULL)::rem.passage_score
    FROM unnest(matches) m GROUP BY m.entity_type, m.entity_id);
END $$;

-- Rank the entities that the candidates belong to. `meaning_score` and `word_score` are relative to the best candidate, so that they
-- can be added. A message also gets points for good messages near it in its session; a moment counts as a neighbour of the messages
-- that it was derived from. `exact_matches` come from rem_find_exact_matches. An entity is "silent" if it has nothing in common with
-- the query itself, and only its moment has: then the moment's passage is shown. `has_asides`: questions and remarks of users rank
-- below statements that fit about as well.
CREATE OR REPLACE FUNCTION rem_rank_entities(
  candidates rem.passage_score[], of_moments rem.passage_score[], exact_matches rem.passage_score[], full_weight real,
  min_similarity real, message_meaning numeric, query_names text[], asks_for_time boolean, has_sessions boolean, by_session boolean,
  has_asides boolean
) RETURNS TABLE (entity_type text, entity_id uuid, passage_id bigint, score real, similarity real, weight real, kind text, loss real)
LANGUAGE sql STABLE ROWS 100 AS $$
  WITH best_passages AS (
    -- An entity has the best similarity and the best word weight of its passages, which can be two different ones.
    SELECT c.entity_type, c.entity_id, c.group_id, c.position, c.prior, c.speaker, c.tells_time, c.kind, a.loss,
           (array_agg(c.id ORDER BY c.distinction DESC, c.weight DESC, c.id))[1] AS passage_id,
           max(c.similarity) AS similarity, max(c.distinction) AS distinction, max(c.weight) AS weight,
           -- A question that was asked before is more similar to the query than its answer.
           greatest(max(max(c.distinction) * a.share) OVER (), 1e-6) AS best_distinction,
           -- A passage with one word of the query is no full match, even if no passage has more.
           greatest(max(max(c.weight) * a.share) OVER (), CASE WHEN c.position IS NULL THEN w.alone_full ELSE w.message_full END * full_weight, 1e-6)
             AS best_weight
    FROM unnest(candidates) c CROSS JOIN rem.rem_search_weights() w
    CROSS JOIN LATERAL (
      SELECT CASE WHEN has_asides THEN CASE c.kind WHEN 'question' THEN w.question_loss WHEN 'remark' THEN w.remark_loss END END AS loss,
             CASE WHEN has_asides THEN CASE c.kind WHEN 'question' THEN 0 WHEN 'remark' THEN w.remark_share ELSE 1 END ELSE 1 END AS share) a
    GROUP BY c.entity_type, c.entity_id, c.group_id, c.position, c.prior, c.speaker, c.tells_time, c.kind, a.loss, a.share, w.message_full,
             w.alone_full
  ), scored AS (
    SELECT b.entity_type, b.entity_id, b.group_id, b.position, b.prior, b.speaker, b.tells_time, b.kind, b.loss,
           least(greatest(b.distinction, 0) / b.best_distinction, 1) AS meaning_score,
           least(b.weight / b.best_weight, 1) AS word_score,
           least(coalesce(m.distinction, 0) / b.best_distinction, 1) AS moment_meaning_score,
           least(coalesce(m.weight, 0) / b.best_weight, 1) AS moment_word_score,
           silent.is_silent, coalesce(x.weight, 0) AS exact_score,
           CASE WHEN silent.is_silent THEN m.id ELSE coalesce(x.id, b.passage_id) END AS passage_id,
           CASE WHEN silent.is_silent THEN m.similarity ELSE b.similarity END AS similarity
    FROM best_passages b LEFT JOIN unnest(of_moments) m ON m.entity_id = b.entity_id
    LEFT JOIN unnest(exact_matches) x ON (x.entity_type, x.entity_id) = (b.entity_type, b.entity_id)
    CROSS JOIN LATERAL (
      SELECT m.id IS NOT NULL AND x.weight IS NULL AND b.weight = 0 AND (b.similarity = 0 OR b.similarity < min_similarity) AS is_silent) silent
  ), with_neighbours AS (
    SELECT s.*,
           greatest(max(word_score) OVER nearby, w.moment * moment_word_score) AS nearby_word_score,
           greatest(max(meaning_score) OVER nearby, w.moment * moment_meaning_score) AS nearby_meaning_score,
           max(word_score) OVER previous_message AS previous_word_score,
           max(meaning_score) OVER previous_message AS previous_meaning_score,
           max(word_score) OVER next_message AS next_word_score,
           max(meaning_score) OVER next_message AS next_meaning_score,
           max(word_score) OVER second_next_message AS second_next_word_score
    FROM scored s CROSS JOIN rem.rem_search_weights() w WHERE has_sessions
    WINDOW in_session AS (PARTITION BY CASE WHEN position IS NULL THEN entity_id ELSE group_id END ORDER BY coalesce(position, 0)),
           nearby AS (in_session RANGE BETWEEN 4 PRECEDING AND 4 FOLLOWING),
           previous_message AS (in_session RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING),
           next_message AS (in_session RANGE BETWEEN 1 FOLLOWING AND 1 FOLLOWING),
           second_next_message AS (in_session RANGE BETWEEN 2 FOLLOWING AND 2 FOLLOWING)
    UNION ALL
    -- Without sessions there are no neighbours, and the windows would only cost time.
    SELECT s.*, word_score, meaning_score, NULL, NULL, NULL, NULL, NULL FROM scored s WHERE NOT has_sessions
  ), fitted AS (
    SELECT n.*,
      -- Messages cannot score higher than other entities, whatever their meaning weighs.
      CASE WHEN position IS NULL THEN 1 ELSE w.weight_sum / (w.weight_sum + message_meaning - w.own_meaning) END * (
      w.own_word * word_score + CASE WHEN position IS NULL THEN w.own_meaning ELSE message_meaning END * meaning_score
      -- The prior counts less for an entity that fits well by words and by meaning. Documents have nearly the same prior, and what
      -- is lost must not change their order.
      + prior * (1 - w.prior_loss * CASE WHEN position IS NULL
          THEN ((w.own_word + w.nearby_word + w.alone_word) * word_score
                + (w.own_meaning + w.nearby_meaning + w.alone_meaning) * meaning_score)
             / (w.own_word + w.nearby_word + w.alone_word + w.own_meaning + w.nearby_meaning + w.alone_meaning)
          ELSE least(word_score, meaning_score) END)
      + w.nearby_word * nearby_word_score + w.nearby_meaning * nearby_meaning_score
      + CASE WHEN position IS NULL THEN w.alone_word * word_score + w.alone_meaning * meaning_score
             ELSE w.next_word * coalesce(next_word_score, 0) + w.second_next_word * coalesce(second_next_word_score, 0)
                + w.previous_word * coalesce(previous_word_score, 0) + w.previous_meaning * coalesce(previous_meaning_score, 0)
                + w.next_meaning * coalesce(next_meaning_score, 0) END
      + CASE WHEN speaker = ANY (query_names) THEN w.named_speaker ELSE 0 END
      + CASE WHEN asks_for_time AND tells_time THEN w.time_mentioned ELSE 0 END)
      + w.exact * exact_score - coalesce(loss, 0) AS fit
    FROM with_neighbours n CROSS JOIN rem.rem_search_weights() w
  ), shown AS (
    -- A silent entity shows the word score of its moment.
    SELECT f.entity_type, f.entity_id, f.group_id, f.passage_id, f.fit, f.prior, f.similarity, f.kind, f.loss,
           CASE WHEN f.is_silent THEN f.moment_word_score ELSE greatest(f.word_score, f.exact_score) END AS word_score
    FROM fitted f
  ), sessions AS (
    -- A session is as good as its best message, with half of the message's prior.
    SELECT DISTINCT ON (e.group_id) 'sessions' AS entity_type, e.group_id AS entity_id, e.passage_id, e.fit - e.prior / 2 AS fit,
           max(e.similarity) OVER session AS similarity, max(e.word_score) OVER session AS word_score
    FROM shown e WHERE by_session AND e.group_id IS NOT NULL
    WINDOW session AS (PARTITION BY e.group_id) ORDER BY e.group_id, e.fit - e.prior / 2 DESC
  )
  SELECT r.entity_type, r.entity_id, r.passage_id, (r.fit / (w.weight_sum + CASE WHEN exact_matches <> '{}' THEN w.exact ELSE 0 END))::real, r.similarity, r.word_score::real, r.kind, (r.loss / w.weight_sum)::real
  FROM (SELECT e.entity_type, e.entity_id, e.passage_id, e.fit, e.similarity, e.word_score, e.kind, e.loss FROM shown e WHERE NOT by_session
        UNION ALL SELECT s.*, NULL, NULL FROM sessions s) r
  CROSS JOIN rem.rem_search_weights() w
$$;

-- Return the hits of a SEARCH, best first, as JSON: `hits` with their records, `steps` (what was done, milliseconds, rows), the
-- `model` of the stored vectors, and `waiting`: whether rows of these owners are not indexed yet, apart from those that were set aside.
--
-- `request` is the query tree as JSON (rem/query/tree.py) with more fields: `types`, the tables to search (null: all),
-- `relative_time_words`, `asks_for_time`, `identifier_words`, `exact_items` and `asks_assistant`. `query_vector` is NULL if the search
-- goes by words alone, and `allowed` is NULL without WHERE.
--
-- A search over all tables collects the questions and remarks of users apart, so that many of them leave statements their places. Copies
-- are left out. What an assistant said comes last, and has at most a third of the places and three, unless nothing else is found or
-- the query asks for it (`asks_assistant`).
CREATE OR REPLACE FUNCTION rem_search(of_tenant text, owners text[], request jsonb, query_vector halfvec, allowed uuid[])
RETURNS json LANGUAGE plpgsql STABLE
-- Planning the ranking again for every query would take longer than the ranking.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  query_text text := request ->> 'text';
  mode text := request ->> 'mode';
  min_similarity real := request ->> 'min_similarity';
  max_hits integer := request ->> 'limit';
  of_field text := request ->> 'field';
  of_types text[] := CASE WHEN request -> 'types' <> 'null' THEN ARRAY(SELECT jsonb_array_elements_text(request -> 'types')) END;
  span tstzrange := CASE WHEN coalesce(request ->> 'since', request ->> 'until') IS NOT NULL
    THEN tstzrange((request ->> 'since')::timestamptz, (request ->> 'until')::timestamptz) END;
  has_asides boolean := request ->> 'table' IS NULL;
  asks_assistant boolean := (request ->> 'asks_assistant')::boolean;
  of_kinds text[];
  portion_share integer;
  by_session boolean := coalesce(request ->> 'table' = 'sessions', false);
  query_names text[] := regexp_split_to_array(lower(query_text), '[^[:alpha:]]+');
  query_terms sparsevec := '{}/1000000000';
  full_weight real;
  model rem.embedding_models;
  of_model smallint;
  of_owner text;
  owned_passages bigint;
  messages bigint;
  moments bigint;
  small_owners text[] := '{}';
  owners_with_moments text[] := '{}';
  has_session_messages boolean := false;
  max_candidates integer;
  portion rem.passage_score[];
  candidates rem.passage_score[] := '{}';
  of_moments rem.passage_score[] := '{}';
  exact_matches rem.passage_score[] := '{}';
  all_passages bigint := 0;
  has_sessions boolean;
  hits json;
  steps json[];
  started timestamptz := clock_timestamp();
BEGIN
  SELECT * INTO model FROM rem.embedding_models WHERE is_current;
  IF vector_dims(query_vector) = model.dimension THEN
    of_model := model.id;
  END IF;
  IF mode <> 'vector' THEN
    SELECT t.terms, t.full_weight INTO query_terms, full_weight
    FROM rem.rem_query_terms(of_tenant, query_text || ' ' || (request ->> 'identifier_words'), request ->> 'relative_time_words',
                             request ->> 'synonyms') t;
  END IF;
  steps := steps || rem.rem_step('words', started, NULL);

  FOR of_kinds, portion_share IN
    SELECT '{statement,answer}'::text[], 1 WHERE has_asides UNION ALL SELECT '{question,remark}', 4 WHERE has_asides
    UNION ALL SELECT NULL, 1 WHERE NOT has_asides
  LOOP
    -- Only messages are questions or remarks: without any, reading all passages once more would find nothing.
    EXIT WHEN portion_share > 1 AND NOT has_session_messages;
    -- Collect candidates: large owners by indexes, all others by one scan.
    small_owners := '{}';
    FOR of_owner, owned_passages, messages, moments IN
      SELECT * FROM rem.rem_owner_passage_counts(of_tenant, owners, of_types)
    LOOP
      has_session_messages := has_session_messages OR messages > 0;
      all_passages := all_passages + CASE portion_share WHEN 1 THEN owned_passages ELSE 0 END;
      IF portion_share = 1 AND moments BETWEEN 1 AND 20000 THEN
        owners_with_moments := owners_with_moments || of_owner;
      END IF;
      CONTINUE WHEN portion_share > 1 AND messages = 0;
      -- Few messages among far more passages: the index of the vectors would pass all else before it reaches one.
      IF owned_passages <= (CASE WHEN allowed IS NULL AND span IS NULL THEN 20000 ELSE 200000 END)
         OR portion_share > 1 AND messages <= 2000 THEN
        small_owners := small_owners || of_owner;
        CONTINUE;
      END IF;
      IF of_model IS NOT NULL THEN
        started := clock_timestamp();
        portion := rem.rem_nearest_passages(of_tenant, of_owner, of_types, of_field, allowed, by_session, span,
                                            of_kinds, of_model, model.dimension, query_vector, query_terms,
                                            greatest(30, max_hits * 2) / portion_share);
        steps := steps || rem.rem_step('probe by meaning', started, cardinality(portion));
        -- The index ends its search after hnsw.max_scan_tuples passages. If too few of them are the owner's, all others are compared.
        IF cardinality(portion) < greatest(30, max_hits * 2) / portion_share AND owned_passages <= 200000 THEN
          small_owners := small_owners || of_owner;
          CONTINUE;
        END IF;
        candidates := candidates || portion;
      END IF;
      IF mode <> 'vector' THEN
        started := clock_timestamp();
        portion := rem.rem_passages_with_rare_words(of_tenant, of_owner, of_types, of_field, allowed, by_session, span,
                                                    of_kinds, of_model, query_vector, query_terms, owned_passages,
                                                    greatest(40, max_hits * 2) / portion_share);
        candidates := candidates
          || ARRAY(SELECT p FROM unnest(portion) p WHERE p.id NOT IN (SELECT c.id FROM unnest(candidates) c));
        steps := steps || rem.rem_step('probe by words', started, cardinality(portion));
      END IF;
    END LOOP;
    IF small_owners <> '{}' THEN
      started := clock_timestamp();
      -- The neighbours of a message count as well, so messages need more candidates.
      max_candidates := greatest(CASE WHEN has_session_messages THEN 400 ELSE 120 END, max_hits * 4) / portion_share;
      LOOP
        portion := rem.rem_scan_passages(
          of_tenant, small_owners, of_types, of_field, allowed, by_session, span, of_kinds, of_model, query_vector, query_terms,
          CASE mode WHEN 'vector' THEN 0 ELSE (SELECT w.candidate_word FROM rem.rem_search_weights() w) END, max_candidates);
        -- All of them can be passages of a few long texts. Then more are needed for enough entities.
        EXIT WHEN cardinality(portion) < max_candidates OR max_hits / portion_share <= (
          SELECT count(DISTINCT coalesce(CASE WHEN by_session THEN p.group_id END, p.entity_id)) FROM unnest(portion) p);
        max_candidates := max_candidates * 8;
      END LOOP;
      candidates := candidates || portion;
      steps := steps || rem.rem_step('scan', started, cardinality(portion));
    END IF;

    -- Texts with the identifiers and quoted phrases of the query come first, wherever they are.
    IF request -> 'exact_items' <> '[]' AND mode <> 'vector' THEN
      started := clock_timestamp();
      portion := rem.rem_find_exact_matches(of_tenant, owners, of_types, of_field, allowed, by_session, span, of_kinds,
                                            request -> 'exact_items', query_terms, all_passages);
      candidates := candidates || rem.rem_missing_passages(
        of_tenant, owners, allowed, by_session, span, of_kinds, of_model, query_vector, query_terms, portion, candidates);
      exact_matches := exact_matches || portion;
      steps := steps || rem.rem_step('exact', started, cardinality(portion));
    END IF;
  END LOOP;

  -- A search for messages or sessions does not return moments, but moments help to find the messages they were derived from.
  IF owners_with_moments <> '{}' AND has_session_messages AND 'messages' = ANY (of_types) AND of_field IS NULL
     AND mode <> 'vector' THEN
    started := clock_timestamp();
    of_moments := rem.rem_messages_of_best_moments(of_tenant, owners_with_moments, of_model, query_vector, query_terms);
    candidates := candidates || rem.rem_missing_passages(
      of_tenant, owners, allowed, by_session, span, NULL, of_model, query_vector, query_terms,
      ARRAY(SELECT m FROM unnest(of_moments) m WHERE m.id IS NOT NULL), candidates);
    steps := steps || rem.rem_step('moments', started, cardinality(of_moments));
  END IF;

  -- Rank the entities, and load the records of the best.
  started := clock_timestamp();
  has_sessions := EXISTS (SELECT FROM unnest(candidates) c WHERE c.group_id IS NOT NULL);
  WITH found AS (
    SELECT e.entity_type, e.entity_id, e.passage_id, e.similarity, e.weight, a.is_answer,
           CASE mode WHEN 'vector' THEN e.similarity - coalesce(e.loss, 0) ELSE e.score END AS score
    FROM rem.rem_rank_entities(candidates, of_moments, exact_matches, full_weight, min_similarity,
                               rem.rem_message_meaning(CASE WHEN of_model IS NOT NULL THEN model.name END), query_names,
                               (request -> 'asks_for_time')::boolean, has_sessions, by_session, has_asides) e
    CROSS JOIN LATERAL (SELECT NOT asks_assistant AND coalesce(e.kind = 'answer', false) AS is_answer) a
    -- A passage without a vector has exactly 0 as its similarity, and is no hit by meaning.
    WHERE e.weight > 0 AND mode <> 'vector'
       OR e.similarity <> 0 AND (e.similarity >= min_similarity OR min_similarity = 0)
  ), placed AS (
    SELECT f.*, row_number() OVER (PARTITION BY f.is_answer ORDER BY f.score DESC, f.passage_id, f.entity_id) AS place,
           count(*) FILTER (WHERE NOT f.is_answer) OVER () AS others
    FROM found f
  ), best AS MATERIALIZED (
    SELECT * FROM placed p
    WHERE NOT p.is_answer OR p.place <= greatest(least(max_hits / 3, 3), max_hits - p.others)
    ORDER BY p.score DESC, p.passage_id, p.entity_id LIMIT max_hits
  )
  SELECT json_agg(json_build_object(
      'table', r.entity_type, 'key', h.record ->> 'key',
      'score', r.score, 'similarity', CASE WHEN of_model IS NOT NULL THEN r.similarity END,
      -- Two digits only: the exact weight would tell how many passages of other users have a word.
      'weight', round(r.weight::numeric, 2),
      'passage', json_build_object('table', p.entity_type, 'key', s.record ->> 'key', 'field', p.field, 'start', p.starts,
        'end', p.ends, 'text', rem.rem_part(s.record ->> p.field, p.starts, p.ends),
        -- For an encrypted text: it is opened only beside the id of its row.
        'entity_id', p.entity_id),
      'said_by', CASE p.kind WHEN 'answer' THEN 'assistant' END,
      'record', h.record)
      ORDER BY r.is_answer, r.score DESC, r.passage_id, r.entity_id)
    INTO hits
    FROM best r
    JOIN rem.passages p ON (p.tenant_id, p.id) = (of_tenant, r.passage_id)
    CROSS JOIN LATERAL (SELECT rem.rem_record(p.entity_type, of_tenant, p.entity_id) AS record OFFSET 0) s
    CROSS JOIN LATERAL (
      SELECT CASE WHEN r.entity_id = p.entity_id THEN s.record ELSE rem.rem_record(r.entity_type, of_tenant, r.entity_id) END
             AS record OFFSET 0) h
    -- The index may lag behind: the row itself decides whether it is deleted or expired.
    WHERE h.record ->> 'deleted_at' IS NULL AND coalesce((h.record ->> 'expires_at')::timestamptz > now(), true)
      -- Before the records are built: they may be large.
      AND (SELECT rem.rem_check_rows_fit(of_tenant, array_agg(b.entity_type), array_agg(b.entity_id)) FROM best b);
  PERFORM rem.rem_check_result_bytes(octet_length(hits::text), json_array_length(hits));
  steps := steps || rem.rem_step('rank', started, json_array_length(hits));
  RETURN json_build_object('hits', coalesce(hits, '[]'), 'steps', array_to_json(steps),
    'model', CASE WHEN model.id IS NOT NULL
      THEN json_build_object('id', model.id, 'name', model.name, 'dimension', model.dimension) END,
    'waiting', EXISTS (
        SELECT FROM rem.search_queue q WHERE q.tenant_id = of_tenant AND q.owner = ANY (owners) AND NOT rem.rem_is_set_aside(q.failures))
      OR query_vector IS NOT NULL AND EXISTS (
        SELECT FROM rem.passages p WHERE p.tenant_id = of_tenant AND p.owner = ANY (owners) AND p.embedding IS NULL
          AND p.entity_type <> 'records' AND NOT rem.rem_is_set_aside(p.embedding_failures)));
END $$;

-- Return one step for `steps`: its name, the milliseconds since it started, and the number of rows it gave.
CREATE OR REPLACE FUNCTION rem_step(name text, started timestamptz, row_count integer) RETURNS json LANGUAGE sql VOLATILE
RETURN json_build_array(name, extract(epoch FROM clock_timestamp() - started)::real * 1000, row_count);
