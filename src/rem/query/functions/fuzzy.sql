-- FUZZY: find entities with a key like a text, then entities with a summary that contains something like it.

-- Return a JSON list of [type, key, score, 'key' or 'summary', record]: the best keys, then the best summaries of other entities.
-- The score is greatest(similarity, word_similarity). The index only filters by word_similarity: the other is larger by a few hundredths
-- at most, in one pair of words among millions. The setting is declared at the function so that PostgreSQL restores its old value: the pool
-- reuses connections without a reset.
CREATE OR REPLACE FUNCTION rem_fuzzy(
  of_tenant text, of_user text, of_text text, threshold double precision, of_limit integer, of_type text) RETURNS text
LANGUAGE plpgsql STABLE SET pg_trgm.word_similarity_threshold = 0.6 AS $$
DECLARE
  query_key text := rem.rem_key(of_text);
  key_text text := rem.rem_trigram_text(query_key);
  summary_text text := rem.rem_trigram_text(of_text);
  owners text[] := rem.rem_owner(of_tenant, of_user) || rem.rem_owner(of_tenant, NULL);
  by_key text;
  by_summary text;
  found_ids uuid[];
BEGIN
  -- Scores are float4, where 0.7 is a little less than 0.7.
  PERFORM set_config('pg_trgm.word_similarity_threshold', greatest(threshold - 1e-6, 0)::text, true);
  WITH matches AS (
    SELECT k.entity_type, k.entity_id, k.entity_key, k.key_rank, k.user_id IS NOT NULL AS is_own, k.record,
           similarity(key_text, rem.rem_trigram_text(k.entity_key)) AS key_similarity,
           word_similarity(key_text, rem.rem_trigram_text(k.entity_key)) AS word_similarity
    FROM rem.kv_store k
    WHERE show_trgm(key_text) <> '{}'
      AND rem.rem_owner(k.tenant_id, k.user_id) && owners AND key_text <% rem.rem_trigram_text(k.entity_key)
      AND k.tenant_id = of_tenant AND (k.user_id = of_user OR k.user_id IS NULL)
      AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
      AND k.key_rank < rem.rem_exact_key_rank()
    UNION ALL
    -- An equal key always matches, even if it has no letters and thus no trigrams.
    SELECT k.entity_type, k.entity_id, k.entity_key, k.key_rank, k.is_own, k.record, 1, 1
    FROM rem.rem_resolve_key(of_tenant, of_user, query_key, of_type) k
  ), entities AS (
    SELECT DISTINCT ON (m.entity_type, m.entity_id) m.*, greatest(m.key_similarity, m.word_similarity) AS score FROM matches m
    WHERE greatest(m.key_similarity, m.word_similarity) > 0
    ORDER BY m.entity_type, m.entity_id, greatest(m.key_similarity, m.word_similarity) DESC, m.key_similarity DESC, m.key_rank
  ), best AS (
    SELECT * FROM entities e ORDER BY e.score DESC, e.key_similarity DESC, e.is_own DESC, e.entity_key, e.entity_type, e.entity_id
    LIMIT of_limit
  )
  SELECT string_agg(rem.rem_fuzzy_match(b.entity_type, b.entity_key, b.score, 'key',
                      coalesce(b.record, rem.rem_record(b.entity_type, of_tenant, b.entity_id)::text)), ','
           ORDER BY b.score DESC, b.key_similarity DESC, b.is_own DESC, b.entity_key, b.entity_type, b.entity_id),
         coalesce(array_agg(b.entity_id), '{}')
    INTO by_key, found_ids FROM best b
    WHERE (SELECT rem.rem_check_rows_fit(of_tenant, array_agg(l.entity_type), array_agg(l.entity_id)) FROM best l WHERE l.record IS NULL);
  IF cardinality(found_ids) < of_limit AND show_trgm(summary_text) <> '{}' THEN
    WITH matches AS (
      SELECT k.entity_type, k.entity_id, k.entity_key, k.user_id IS NOT NULL AS is_own, k.record,
             greatest(similarity(summary_text, rem.rem_trigram_text(k.content_summary)),
                      word_similarity(summary_text, rem.rem_trigram_text(k.content_summary))) AS score,
             -- What an assistant said is no evidence: it comes last.
             k.entity_type = 'messages' AND EXISTS (
               SELECT FROM rem.messages a WHERE (a.tenant_id, a.id) = (k.tenant_id, k.entity_id) AND a.kind = 'answer'
             ) AS is_answer
      FROM rem.kv_store k
      WHERE rem.rem_owner(k.tenant_id, k.user_id) && owners AND summary_text <% rem.rem_trigram_text(k.content_summary)
        AND k.tenant_id = of_tenant AND (k.user_id = of_user OR k.user_id IS NULL) AND k.key_rank = 1
        AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
        -- A question names what is looked for, and `rem:local` repeats it. They are no answers, as in SEARCH.
        AND (of_type IS NOT NULL OR k.entity_type <> 'messages' OR NOT EXISTS (
          SELECT FROM rem.messages q WHERE (q.tenant_id, q.id) = (k.tenant_id, k.entity_id)
            AND (q.kind IN ('question', 'command', 'small_talk', 'quotation') OR q.model = 'rem:local')))
    ), best AS (
      SELECT * FROM matches m WHERE m.score > 0 AND m.entity_id <> ALL (found_ids)
      ORDER BY m.is_answer, m.score DESC, m.is_own DESC, m.entity_key, m.entity_type, m.entity_id
      LIMIT of_limit - cardinality(found_ids)
    )
    SELECT string_agg(rem.rem_fuzzy_match(b.entity_type, b.entity_key, b.score, 'summary',
                        coalesce(b.record, rem.rem_record(b.entity_type, of_tenant, b.entity_id)::text)), ','
             ORDER BY b.is_answer, b.score DESC, b.is_own DESC, b.entity_key, b.entity_type, b.entity_id)
      INTO by_summary FROM best b
      WHERE (SELECT rem.rem_check_rows_fit(of_tenant, array_agg(l.entity_type), array_agg(l.entity_id)) FROM best l WHERE l.record IS NULL);
  END IF;
  PERFORM rem.rem_check_result_bytes(coalesce(octet_length(by_key), 0) + coalesce(octet_length(by_summary), 0), of_limit);
  RETURN '[' || concat_ws(',', by_key, by_summary) || ']';
END $$;

-- Return one item of that list.
CREATE OR REPLACE FUNCTION rem_fuzzy_match(entity_type text, entity_key text, score real, matched text, record text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '["' || entity_type || '",' || to_json(entity_key)::text || ',' || round(score::numeric, 4)::text || ',"' || matched || '",'
  || record || ']';
