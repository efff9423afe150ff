-- SEARCH, as small steps that can be measured alone: the question's words with their rarity, the passages that fit best,
-- and the order of the entities that they stand for.

-- Who is no superuser can name pgvector's settings only after it was loaded.
DO $$ BEGIN PERFORM '[1]'::vector; END $$;

-- A question as a vector: each of its words, in every language that the tenant has texts in, with its rarity (BM25); the
-- faint words count half. `whole` is what a passage weighs that has every word, also those that no passage has.
CREATE OR REPLACE FUNCTION rem_query_terms(of_tenant text, asked text, faint text, OUT terms sparsevec, OUT whole real)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  of_language text;
  total bigint;
  faint_terms integer[];
  language_items text[];
  language_whole real;
  items text[] := '{}';
BEGIN
  FOR of_language, total IN
    SELECT t.language, sum(t.passages) FROM (
      SELECT language, passages FROM rem.passage_totals WHERE tenant_id = of_tenant AND owner IS NULL
      UNION ALL
      SELECT language, passages FROM rem.passage_total_deltas WHERE tenant_id = of_tenant AND owner IS NULL) t
    GROUP BY t.language
  LOOP
    faint_terms := CASE WHEN faint = '' THEN '{}' ELSE ARRAY(SELECT f.term FROM rem.rem_terms(of_language, faint) f) END;
    SELECT array_agg(r.term || ':' || r.rarity) FILTER (WHERE r.passages > 0), sum(r.rarity) INTO language_items, language_whole
    FROM (
      SELECT a.term, c.passages, (CASE WHEN a.term = ANY (faint_terms) THEN 0.5 ELSE 1 END
        * ln(1 + (greatest(total, c.passages) - c.passages + 0.5) / (c.passages + 0.5)))::real AS rarity
      FROM rem.rem_terms(of_language, asked) a CROSS JOIN LATERAL (
        SELECT coalesce((SELECT t.passages FROM rem.term_counts t WHERE t.tenant_id = of_tenant AND t.term = a.term), 0)
             + coalesce((SELECT sum(d.passages) FROM rem.term_count_deltas d WHERE d.tenant_id = of_tenant AND d.term = a.term), 0)
               AS passages
        -- A fence: each is to be counted once, however often it is used above.
        OFFSET 0) c) r;
    items := items || coalesce(language_items, '{}');
    -- In a language that is not the question's all of its words are rare.
    whole := least(whole, language_whole);
  END LOOP;
  -- pgvector sorts them.
  terms := ('{' || array_to_string(items, ',') || '}/1000000000')::sparsevec;
END $$;

-- How many passages some owners have of some types (all if NULL), whether messages are among them, and how many passages
-- of moments there are besides.
CREATE OR REPLACE FUNCTION rem_owner_passage_counts(of_tenant text, owners text[], of_types text[])
RETURNS TABLE (owner text, passages bigint, has_messages boolean, moments bigint) LANGUAGE sql STABLE ROWS 2 AS $$
  SELECT o.owner, coalesce(sum(t.passages) FILTER (WHERE t.is_asked), 0)::bigint,
         coalesce(sum(t.passages) FILTER (WHERE t.is_asked AND t.entity_type = 'messages'), 0) > 0,
         coalesce(sum(t.passages) FILTER (WHERE t.entity_type = 'moments'), 0)::bigint
  FROM unnest(owners) AS o (owner) LEFT JOIN LATERAL (
    SELECT c.*, of_types IS NULL OR c.entity_type = ANY (of_types) AS is_asked FROM (
      SELECT entity_type, passages FROM rem.passage_totals WHERE tenant_id = of_tenant AND owner = o.owner
      UNION ALL
      SELECT entity_type, passages FROM rem.passage_total_deltas WHERE tenant_id = of_tenant AND owner = o.owner) c) t ON true
  GROUP BY o.owner
$$;

-- How alike a passage and a question are beside what all passages of an owner have in common (the middle of their vectors,
-- if it is known); `direction` is the question without it. What is nothing but the middle is like nothing.
CREATE OR REPLACE FUNCTION rem_centred_similarity(embedding halfvec, middle halfvec, direction halfvec) RETURNS real LANGUAGE sql IMMUTABLE
RETURN CASE WHEN middle IS NULL THEN 1 - (embedding <=> direction)
  ELSE coalesce(nullif(1 - ((embedding - middle) <=> direction), 'NaN'), 0) END;

-- The middles of some owners' vectors, and the question seen from there.
CREATE OR REPLACE FUNCTION rem_owner_means(of_tenant text, owners text[], of_model smallint, asked halfvec)
RETURNS TABLE (owner text, middle halfvec, direction halfvec) LANGUAGE sql STABLE ROWS 2 AS $$
  SELECT o.owner, m.mean, coalesce(asked - m.mean, asked) FROM unnest(owners) AS o (owner)
  LEFT JOIN rem.embedding_means m ON (m.tenant_id, m.owner, m.model_id) = (of_tenant, o.owner, of_model)
$$;

-- The best passages of some owners, all of them looked at. For what is not too many it is faster than any index, and exact.
CREATE OR REPLACE FUNCTION rem_scan_passages(
  of_tenant text, owners text[], of_types text[], of_field text, allowed uuid[], by_group boolean,
  of_model smallint, asked_vector halfvec, asked_terms sparsevec, weight_share real, at_most integer
) RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  is_unfiltered boolean := of_types IS NULL AND of_field IS NULL AND allowed IS NULL;
BEGIN
  RETURN ARRAY(
    -- MATERIALIZED: they are to be read once, not for every passage.
    WITH middles AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, owners, of_model, asked_vector))
    SELECT ROW(s.id, s.entity_type, s.entity_id, s.group_id, s.position, s.prior, s.speaker, s.tells_time, s.similarity,
               CASE WHEN s.similarity = 0 THEN 0 ELSE rem.rem_centred_similarity(s.embedding, m.middle, m.direction) END,
               s.weight)::rem.passage_score
    FROM (
      SELECT * FROM (
        SELECT p.id, p.owner, p.entity_type, p.entity_id, p.group_id, p.position, p.prior, p.speaker, p.tells_time, p.embedding,
               CASE WHEN p.model_id = of_model THEN 1 - (p.embedding <=> asked_vector) ELSE 0 END AS similarity,
               -(p.terms <#> asked_terms) AS weight
        FROM rem.passages p
        WHERE p.tenant_id = of_tenant AND p.owner = ANY (owners)
          AND (is_unfiltered
               OR (of_types IS NULL OR p.entity_type = ANY (of_types)) AND (of_field IS NULL OR p.field = of_field)
                  AND (allowed IS NULL OR coalesce(CASE WHEN by_group THEN p.group_id END, p.entity_id) IN (SELECT unnest(allowed))))
          AND (p.expires_at IS NULL OR p.expires_at > now())
        -- A fence: the distances are to be computed once.
        OFFSET 0) every
      ORDER BY every.similarity + every.weight * weight_share DESC LIMIT at_most) s
    JOIN middles m ON m.owner = s.owner);
END $$;

-- The best passages of an owner who has too many to look at them all: the nearest in meaning, by the model's index ...
CREATE OR REPLACE FUNCTION rem_nearest_passages(
  of_tenant text, of_owner text, of_types text[], of_field text, allowed uuid[], by_group boolean,
  of_model smallint, dimension integer, asked_vector halfvec, asked_terms sparsevec, at_most integer
) RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE
SET hnsw.ef_search = 100 SET hnsw.iterative_scan = 'relaxed_order' AS $$
DECLARE
  found rem.passage_score[];
BEGIN
  -- The index is over vectors of one length, which must stand in the statement.
  EXECUTE format($query$
    WITH middles AS MATERIALIZED (SELECT * FROM rem.rem_owner_means($1, ARRAY[$2], %1$s::smallint, $5))
    SELECT array_agg(ROW(s.id, s.entity_type, s.entity_id, s.group_id, s.position, s.prior, s.speaker, s.tells_time, s.similarity,
        rem.rem_centred_similarity(s.embedding, m.middle, m.direction),
        -(s.terms <#> $6))::rem.passage_score)
    FROM (SELECT p.*, 1 - (p.embedding <=> $5) AS similarity FROM rem.passages p
          WHERE p.model_id = %1$s AND p.tenant_id = $1 AND p.owner = $2
            AND ($3 IS NULL OR p.entity_type = ANY ($3)) AND ($4 IS NULL OR p.field = $4)
            AND ($7 IS NULL OR coalesce(CASE WHEN $8 THEN p.group_id END, p.entity_id) IN (SELECT unnest($7)))
            AND (p.expires_at IS NULL OR p.expires_at > now())
          ORDER BY p.embedding::halfvec(%2$s) <=> $5::halfvec(%2$s) LIMIT $9) s
    CROSS JOIN middles m $query$, of_model, dimension)
    INTO found USING of_tenant, of_owner, of_types, of_field, asked_vector, asked_terms, allowed, by_group, at_most;
  RETURN coalesce(found, '{}');
END $$;

-- ... and those that hold the rarest of the question's words. Common words alone are not looked for: what has only them
-- is either near in meaning as well or no answer.
CREATE OR REPLACE FUNCTION rem_passages_with_rare_words(
  of_tenant text, of_owner text, of_types text[], of_field text, allowed uuid[], by_group boolean,
  of_model smallint, asked_vector halfvec, asked_terms sparsevec, owned bigint, at_most integer
) RETURNS rem.passage_score[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  postings integer[] := ARRAY(
    SELECT rem.rem_posting(of_tenant, of_owner, r.term) FROM (
      -- The rarity tells how many passages have the term.
      SELECT t.term, row_number() OVER rarest AS place, sum(owned * exp(-t.weight)) OVER rarest AS passages
      FROM rem.rem_sparse_terms(asked_terms) t WINDOW rarest AS (ORDER BY t.weight DESC, t.term)) r
    WHERE r.place = 1 OR r.passages <= 300);
BEGIN
  RETURN ARRAY(
    -- MATERIALIZED: they are to be read once, not for every passage.
    WITH middles AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, ARRAY[of_owner], of_model, asked_vector))
    SELECT ROW(s.id, s.entity_type, s.entity_id, s.group_id, s.position, s.prior, s.speaker, s.tells_time, s.similarity,
               CASE WHEN s.similarity = 0 THEN 0 ELSE rem.rem_centred_similarity(s.embedding, m.middle, m.direction) END,
               s.weight)::rem.passage_score
    FROM (
      SELECT *, CASE WHEN best.model_id = of_model THEN 1 - (best.embedding <=> asked_vector) ELSE 0 END AS similarity FROM (
        SELECT * FROM (
          SELECT p.*, -(p.terms <#> asked_terms) AS weight FROM rem.passages p
          WHERE rem.rem_postings(p.tenant_id, p.owner, p.terms) && postings
            -- Not in a form that an index knows: a bitmap of all that the owner has would cost more than it saves.
            AND p.owner || '' = of_owner AND p.tenant_id || '' = of_tenant
            AND (of_types IS NULL OR p.entity_type = ANY (of_types)) AND (of_field IS NULL OR p.field = of_field)
            AND (allowed IS NULL OR coalesce(CASE WHEN by_group THEN p.group_id END, p.entity_id) IN (SELECT unnest(allowed)))
            AND (p.expires_at IS NULL OR p.expires_at > now())
          OFFSET 0) every
        ORDER BY every.weight DESC LIMIT at_most) best) s
    CROSS JOIN middles m);
END $$;

-- The messages that the best ten moments of some owners call to mind: those that they were dreamt from, each with what a
-- moment and the question have in common. A moment that an affinity leads to calls its own to mind as well, for less.
-- `id` is the moment's passage; what is only related has none.
CREATE OR REPLACE FUNCTION rem_messages_of_best_moments(
  of_tenant text, owners text[], of_model smallint, asked_vector halfvec, asked_terms sparsevec
) RETURNS rem.passage_score[] LANGUAGE sql STABLE AS $$
  WITH middles AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, owners, of_model, asked_vector)
  ), best AS MATERIALIZED (
    SELECT s.id, s.entity_id, s.similarity, s.weight,
           CASE WHEN s.similarity = 0 THEN 0 ELSE rem.rem_centred_similarity(s.embedding, m.middle, m.direction) END AS distinction
    FROM (
      SELECT * FROM (
        SELECT p.id, p.owner, p.entity_id, p.embedding, -(p.terms <#> asked_terms) AS weight,
               CASE WHEN p.model_id = of_model THEN 1 - (p.embedding <=> asked_vector) ELSE 0 END AS similarity
        FROM rem.passages p
        WHERE p.tenant_id = of_tenant AND p.owner = ANY (owners) AND p.entity_type = 'moments'
          AND (p.expires_at IS NULL OR p.expires_at > now())
        -- A fence: the distances are to be computed once.
        OFFSET 0) every
      ORDER BY every.similarity + every.weight * 0.03 DESC, every.id LIMIT 10) s
    JOIN middles m ON m.owner = s.owner
  ), reached AS (
    SELECT b.id, b.entity_id AS moment_id, b.similarity, b.distinction, b.weight FROM best b
    UNION ALL
    SELECT NULL, other.source_id, NULL, b.distinction * 0.6 * s.confidence, b.weight * 0.6 * s.confidence FROM best b
    JOIN rem.statement_sources own ON (own.tenant_id, own.source_id) = (of_tenant, b.entity_id)
    JOIN rem.statements s ON (s.tenant_id, s.id) = (of_tenant, own.statement_id)
      AND s.dream = 'affinity' AND s.kind = 'edge' AND s.state = 'live'
    JOIN rem.statement_sources other ON (other.tenant_id, other.statement_id) = (of_tenant, s.id)
      AND other.source_type = 'moments' AND other.source_id <> b.entity_id
  )
  SELECT coalesce(array_agg(ROW(m.id, 'messages', m.source_id, NULL, NULL, NULL, NULL, NULL, m.similarity, m.distinction,
                                m.weight)::rem.passage_score), '{}')
  FROM (
    SELECT x.source_id, max(r.similarity) AS similarity, max(r.distinction) AS distinction, max(r.weight) AS weight,
           (array_agg(r.id ORDER BY r.similarity DESC, r.id) FILTER (WHERE r.id IS NOT NULL))[1] AS id
    FROM reached r
    -- What its owner has put into other words was dreamt from these all the same.
    JOIN rem.statements s ON (s.tenant_id, s.entity_id) = (of_tenant, r.moment_id) AND s.entity_type = 'moments'
      AND s.dream = 'moments' AND s.kind = 'row' AND s.state <> 'ended'
    JOIN rem.statement_sources x ON (x.tenant_id, x.statement_id) = (of_tenant, s.id) AND x.source_type = 'messages'
    GROUP BY x.source_id) m
$$;

-- The passages of messages that a moment calls to mind and that are not among the candidates by themselves.
CREATE OR REPLACE FUNCTION rem_missing_message_passages(
  of_tenant text, owners text[], allowed uuid[], by_group boolean, of_model smallint, asked_vector halfvec, asked_terms sparsevec,
  recalled rem.passage_score[], scored rem.passage_score[]
) RETURNS rem.passage_score[] LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    WITH middles AS MATERIALIZED (SELECT * FROM rem.rem_owner_means(of_tenant, owners, of_model, asked_vector))
    SELECT ROW(p.id, p.entity_type, p.entity_id, p.group_id, p.position, p.prior, p.speaker, p.tells_time,
               CASE WHEN p.model_id = of_model THEN 1 - (p.embedding <=> asked_vector) ELSE 0 END,
               CASE WHEN p.model_id = of_model THEN rem.rem_centred_similarity(p.embedding, m.middle, m.direction) ELSE 0 END,
               -(p.terms <#> asked_terms))::rem.passage_score
    FROM (SELECT r.entity_id FROM unnest(recalled) r WHERE r.id IS NOT NULL EXCEPT SELECT s.entity_id FROM unnest(scored) s) missing
    JOIN rem.passages p ON (p.tenant_id, p.entity_id, p.entity_type) = (of_tenant, missing.entity_id, 'messages')
    JOIN middles m ON m.owner = p.owner
    WHERE (allowed IS NULL OR CASE WHEN by_group THEN p.group_id ELSE p.entity_id END IN (SELECT unnest(allowed)))
      AND (p.expires_at IS NULL OR p.expires_at > now()))
$$;

-- The order of the entities that some passages stand for. Both legs are scaled by their best, so that they can be added;
-- what stands near a good passage in a conversation is better for it. A moment stands near all that it was dreamt from, and
-- speaks for what has nothing in common with the question itself. The weights were fitted and held against other data
-- (docs/retrieval.md).
CREATE OR REPLACE FUNCTION rem_rank_entities(
  scored rem.passage_score[], recalled rem.passage_score[], whole real, min_similarity real, asked_names text[], asks_time boolean,
  in_conversation boolean, by_group boolean
) RETURNS TABLE (entity_type text, entity_id uuid, passage_id bigint, score real, similarity real, weight real)
LANGUAGE sql STABLE ROWS 100 AS $$
  WITH legs AS (
    -- An entity is as good as its best passage, in each leg for itself.
    SELECT u.entity_type, u.entity_id, u.group_id, u.position, u.prior, u.speaker, u.tells_time,
           (array_agg(u.id ORDER BY u.distinction DESC, u.weight DESC, u.id))[1] AS passage_id,
           max(u.similarity) AS similarity, max(u.distinction) AS distinction, max(u.weight) AS weight,
           greatest(max(max(u.distinction)) OVER (), 1e-6) AS best_distinction,
           -- What has but one of the question's words is no good answer by its words, even if nothing has more of them.
           greatest(max(max(u.weight)) OVER (), CASE WHEN u.group_id IS NULL THEN 1 ELSE 0.7 END * whole, 1e-6) AS best_weight
    FROM unnest(scored) u
    GROUP BY u.entity_type, u.entity_id, u.group_id, u.position, u.prior, u.speaker, u.tells_time
  ), entities AS (
    SELECT l.entity_type, l.entity_id, l.group_id, l.position, l.prior, l.speaker, l.tells_time,
           greatest(l.distinction, 0) / l.best_distinction AS e, l.weight / l.best_weight AS b,
           least(coalesce(m.distinction, 0) / l.best_distinction, 1) AS moment_e,
           least(coalesce(m.weight, 0) / l.best_weight, 1) AS moment_b, mute.is_mute,
           CASE WHEN mute.is_mute THEN m.id ELSE l.passage_id END AS passage_id,
           CASE WHEN mute.is_mute THEN m.similarity ELSE l.similarity END AS similarity
    FROM legs l LEFT JOIN unnest(recalled) m ON m.entity_id = l.entity_id
    CROSS JOIN LATERAL (
      SELECT m.id IS NOT NULL AND l.weight = 0 AND (l.similarity = 0 OR l.similarity < min_similarity) AS is_mute) mute
  ), placed AS (
    SELECT n.*, greatest(max(b) OVER near, 0.6 * moment_b) AS near_b, max(b) OVER before AS before_b, max(b) OVER after AS after_b,
           max(b) OVER second AS second_b, greatest(max(e) OVER near, 0.6 * moment_e) AS near_e, max(e) OVER before AS before_e,
           max(e) OVER after AS after_e
    FROM entities n WHERE in_conversation
    WINDOW conversation AS (PARTITION BY coalesce(group_id, entity_id) ORDER BY coalesce(position, -1000)),
           near AS (conversation RANGE BETWEEN 4 PRECEDING AND 4 FOLLOWING),
           before AS (conversation RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING),
           after AS (conversation RANGE BETWEEN 1 FOLLOWING AND 1 FOLLOWING),
           second AS (conversation RANGE BETWEEN 2 FOLLOWING AND 2 FOLLOWING)
    UNION ALL
    SELECT n.*, b, NULL, NULL, NULL, e, NULL, NULL FROM entities n WHERE NOT in_conversation
  ), fitted AS (
    -- What is in no conversation stands in its neighbours' places itself, or it could never be as good as a message.
    -- How good an answer it makes by itself counts less where it fits well both by words and by meaning.
    SELECT p.*, 2.4 * (b + e) + prior * (1 - 0.5 * least(b, e)) + 2.0 * near_b + near_e
             + CASE WHEN group_id IS NULL THEN 0.4 * b + 1.85 * e
                    ELSE 1.35 * coalesce(after_b, 0) + 0.5 * coalesce(second_b, 0) - 0.5 * coalesce(before_b, 0)
                       + 0.6 * coalesce(before_e, 0) + 0.3 * coalesce(after_e, 0) END
             + CASE WHEN speaker = ANY (asked_names) THEN 0.6 ELSE 0 END
             + CASE WHEN asks_time AND tells_time THEN 1.1 ELSE 0 END AS fit
    FROM placed p
  ), grouped AS (
    -- A conversation is as good as its best message; whether it is a good answer by itself counts half there.
    SELECT DISTINCT ON (f.group_id) 'sessions' AS entity_type, f.group_id AS entity_id, f.passage_id, f.fit - f.prior / 2 AS fit,
           max(f.similarity) OVER g AS similarity, max(CASE WHEN f.is_mute THEN f.moment_b ELSE f.b END) OVER g AS b
    FROM fitted f WHERE by_group AND f.group_id IS NOT NULL
    WINDOW g AS (PARTITION BY f.group_id) ORDER BY f.group_id, f.fit - f.prior / 2 DESC
  )
  -- The weights add up to 16.25.
  SELECT r.entity_type, r.entity_id, r.passage_id, (r.fit / 16.25)::real, r.similarity, r.b::real
  FROM (SELECT f.entity_type, f.entity_id, f.passage_id, f.fit, f.similarity,
               CASE WHEN f.is_mute THEN f.moment_b ELSE f.b END AS b
        FROM fitted f WHERE NOT by_group
        UNION ALL SELECT * FROM grouped) r
$$;

-- What fits a question, best first, as JSON: hits with their records, what was done and how long it took, the model of
-- the vectors, and whether something waits to be indexed.
CREATE OR REPLACE FUNCTION rem_search(
  of_tenant text, owners text[], asked text, faint text, asks_time boolean, asked_vector halfvec, asked_dimension integer,
  of_types text[], of_field text, allowed uuid[], mode text, min_similarity real, wanted integer, by_group boolean
) RETURNS json LANGUAGE plpgsql STABLE
-- Planning the ranking anew for every question would take longer than the ranking.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  begun timestamptz := clock_timestamp();
  steps json[];
  model rem.embedding_models;
  of_model smallint;
  asked_terms sparsevec := '{}/1000000000';
  whole real;
  of_owner text;
  owned bigint;
  has_messages boolean;
  moments bigint;
  scanned text[] := '{}';
  dreamers text[] := '{}';
  recalled rem.passage_score[] := '{}';
  asked_names text[] := regexp_split_to_array(lower(asked), '[^[:alpha:]]+');
  leg rem.passage_score[];
  scored rem.passage_score[] := '{}';
  has_conversation boolean := false;
  in_conversation boolean;
  candidates integer;
  hits json;
BEGIN
  SELECT * INTO model FROM rem.embedding_models WHERE is_current;
  IF asked_dimension = model.dimension THEN
    of_model := model.id;
  END IF;
  IF mode <> 'vector' THEN
    SELECT a.terms, a.whole INTO asked_terms, whole FROM rem.rem_query_terms(of_tenant, asked, faint) a;
  END IF;
  steps := steps || rem.rem_step('words', begun, NULL);
  FOR of_owner, owned, has_messages, moments IN SELECT * FROM rem.rem_owner_passage_counts(of_tenant, owners, of_types) LOOP
    has_conversation := has_conversation OR has_messages;
    IF moments BETWEEN 1 AND 20000 THEN
      dreamers := dreamers || of_owner;
    END IF;
    IF owned <= (CASE WHEN allowed IS NULL THEN 20000 ELSE 200000 END) THEN
      scanned := scanned || of_owner;
    ELSE
      IF of_model IS NOT NULL THEN
        begun := clock_timestamp();
        leg := rem.rem_nearest_passages(of_tenant, of_owner, of_types, of_field, allowed, by_group, of_model,
                                     asked_dimension, asked_vector, asked_terms, greatest(30, wanted * 2));
        scored := scored || leg;
        steps := steps || rem.rem_step('probe by meaning', begun, cardinality(leg));
      END IF;
      IF mode <> 'vector' THEN
        begun := clock_timestamp();
        leg := rem.rem_passages_with_rare_words(of_tenant, of_owner, of_types, of_field, allowed, by_group, of_model, asked_vector,
                                   asked_terms, owned, greatest(40, wanted * 2));
        -- What both have found is there already.
        scored := scored || ARRAY(SELECT l FROM unnest(leg) l WHERE l.id NOT IN (SELECT s.id FROM unnest(scored) s));
        steps := steps || rem.rem_step('probe by words', begun, cardinality(leg));
      END IF;
    END IF;
  END LOOP;
  IF scanned <> '{}' THEN
    begun := clock_timestamp();
    -- A message is judged by its neighbours as well, so that more of them are needed.
    candidates := greatest(CASE WHEN has_conversation THEN 400 ELSE 120 END, wanted * 4);
    LOOP
      leg := rem.rem_scan_passages(of_tenant, scanned, of_types, of_field, allowed, by_group, of_model, asked_vector,
                                   asked_terms, CASE mode WHEN 'vector' THEN 0 ELSE 0.03 END, candidates);
      -- They may all be of one long text.
      EXIT WHEN cardinality(leg) < candidates OR wanted <= (
        SELECT count(DISTINCT coalesce(CASE WHEN by_group THEN l.group_id END, l.entity_id)) FROM unnest(leg) l);
      candidates := candidates * 8;
    END LOOP;
    scored := scored || leg;
    steps := steps || rem.rem_step('scan', begun, cardinality(leg));
  END IF;
  -- Who asks for messages or conversations does not see the moments, but what was dreamt from them counts.
  IF dreamers <> '{}' AND has_conversation AND 'messages' = ANY (of_types) AND of_field IS NULL AND mode <> 'vector' THEN
    begun := clock_timestamp();
    recalled := rem.rem_messages_of_best_moments(of_tenant, dreamers, of_model, asked_vector, asked_terms);
    scored := scored || rem.rem_missing_message_passages(of_tenant, owners, allowed, by_group, of_model, asked_vector, asked_terms,
                                                  recalled, scored);
    steps := steps || rem.rem_step('moments', begun, cardinality(recalled));
  END IF;
  begun := clock_timestamp();
  in_conversation := EXISTS (SELECT FROM unnest(scored) s WHERE s.group_id IS NOT NULL);
  SELECT json_agg(json_build_object(
      'entity_type', r.entity_type,
      'record', h.record,
      -- The exact weight would tell how many passages of other users have a word.
      'score', r.score, 'similarity', CASE WHEN of_model IS NOT NULL THEN r.similarity END, 'weight', round(r.weight::numeric, 2),
      'passage', json_build_object('table', p.entity_type, 'key', s.record ->> 'key', 'field', p.field, 'start', p.starts,
        'end', p.ends, 'text', substr(s.record ->> p.field, p.starts + 1, p.ends - p.starts)))
      ORDER BY r.score DESC, r.passage_id, r.entity_id)
    INTO hits
    FROM (SELECT k.entity_type, k.entity_id, k.passage_id, k.similarity, k.weight,
                 CASE mode WHEN 'vector' THEN k.similarity ELSE k.score END AS score
          FROM rem.rem_rank_entities(scored, recalled, whole, min_similarity, asked_names, asks_time, in_conversation, by_group) k
          -- What has no vector (yet) has exactly 0 as its similarity.
          WHERE k.weight > 0 AND mode <> 'vector'
             OR k.similarity <> 0 AND (k.similarity >= min_similarity OR min_similarity = 0)
          ORDER BY 6 DESC, 3, 2 LIMIT wanted) r
    JOIN rem.passages p ON (p.tenant_id, p.id) = (of_tenant, r.passage_id)
    CROSS JOIN LATERAL (SELECT rem.rem_record(p.entity_type, of_tenant, p.entity_id) AS record OFFSET 0) s
    CROSS JOIN LATERAL (
      SELECT CASE WHEN r.entity_id = p.entity_id THEN s.record ELSE rem.rem_record(r.entity_type, of_tenant, r.entity_id) END
             AS record OFFSET 0) h
    -- The row has the last word on whether it is there.
    WHERE h.record ->> 'deleted_at' IS NULL AND coalesce((h.record ->> 'expires_at')::timestamptz > now(), true);
  steps := steps || rem.rem_step('rank', begun, json_array_length(hits));
  RETURN json_build_object('hits', coalesce(hits, '[]'), 'steps', array_to_json(steps),
    'model', CASE WHEN model.id IS NOT NULL THEN json_build_object('id', model.id, 'name', model.name, 'dimension', model.dimension) END,
    'waiting', EXISTS (SELECT FROM rem.search_queue q WHERE q.tenant_id = of_tenant AND q.owner = ANY (owners))
      OR asked_dimension IS NOT NULL AND EXISTS (
        SELECT FROM rem.passages p WHERE p.tenant_id = of_tenant AND p.owner = ANY (owners) AND p.embedding IS NULL));
END $$;

-- What was done since a moment, how long it took in milliseconds, and how many rows it gave.
CREATE OR REPLACE FUNCTION rem_step(name text, begun timestamptz, found integer) RETURNS json LANGUAGE sql VOLATILE
RETURN json_build_array(name, extract(epoch FROM clock_timestamp() - begun)::real * 1000, found);
