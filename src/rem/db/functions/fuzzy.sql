-- FUZZY: what has a key much like a text, then what has a summary with something much like it.

-- The best keys, and behind them the best summaries of what was not found by its key, as a JSON list of
-- [type, key, score, what matched, row]. The score is greatest(similarity, word_similarity). Only the latter has to pass
-- the index: it is never the smaller one by more than a few hundredths, in one pair of words among millions.
-- The setting is declared so that its old value comes back at the end: connections are used again without a reset.
CREATE OR REPLACE FUNCTION rem_fuzzy(
  of_tenant text, of_user text, of_text text, threshold double precision, of_limit integer, of_type text) RETURNS text
LANGUAGE plpgsql STABLE SET pg_trgm.word_similarity_threshold = 0.6 AS $$
DECLARE
  asked_key text := rem.rem_key(of_text);
  key_text text := rem.rem_trigram_text(asked_key);
  summary_text text := rem.rem_trigram_text(of_text);
  owners text[] := rem.rem_owner(of_tenant, of_user) || rem.rem_owner(of_tenant, NULL);
  by_key text;
  by_summary text;
  found_ids uuid[];
BEGIN
  -- A score is a float4: what is 0.7 there is a little less than 0.7.
  PERFORM set_config('pg_trgm.word_similarity_threshold', greatest(threshold - 1e-6, 0)::text, true);
  WITH matches AS (
    SELECT k.entity_type, k.entity_id, k.entity_key, k.key_rank, k.user_id IS NOT NULL AS is_own, k.record,
           similarity(key_text, rem.rem_trigram_text(k.entity_key)) AS whole,
           word_similarity(key_text, rem.rem_trigram_text(k.entity_key)) AS part
    FROM rem.kv_store k
    WHERE show_trgm(key_text) <> '{}'
      AND rem.rem_owner(k.tenant_id, k.user_id) && owners AND key_text <% rem.rem_trigram_text(k.entity_key)
      AND k.tenant_id = of_tenant AND (k.user_id = of_user OR k.user_id IS NULL)
      AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
    UNION ALL
    -- The key itself is a match, even if it has no letters to make trigrams of.
    SELECT k.entity_type, k.entity_id, k.entity_key, k.key_rank, k.is_own, k.record, 1, 1
    FROM rem.rem_resolve_key(of_tenant, of_user, asked_key, of_type) k
  ), entities AS (
    SELECT DISTINCT ON (m.entity_type, m.entity_id) m.*, greatest(m.whole, m.part) AS score FROM matches m
    WHERE greatest(m.whole, m.part) > 0
    ORDER BY m.entity_type, m.entity_id, greatest(m.whole, m.part) DESC, m.whole DESC, m.key_rank
  ), best AS (
    SELECT * FROM entities e ORDER BY e.score DESC, e.whole DESC, e.is_own DESC, e.entity_key, e.entity_type, e.entity_id
    LIMIT of_limit
  )
  SELECT string_agg(rem.rem_fuzzy_match(b.entity_type, b.entity_key, b.score, 'key',
                      coalesce(b.record, rem.rem_record(b.entity_type, of_tenant, b.entity_id)::text)), ','
           ORDER BY b.score DESC, b.whole DESC, b.is_own DESC, b.entity_key, b.entity_type, b.entity_id),
         coalesce(array_agg(b.entity_id), '{}')
    INTO by_key, found_ids FROM best b;
  IF cardinality(found_ids) < of_limit AND show_trgm(summary_text) <> '{}' THEN
    WITH matches AS (
      SELECT k.entity_type, k.entity_id, k.entity_key, k.user_id IS NOT NULL AS is_own, k.record,
             greatest(similarity(summary_text, rem.rem_trigram_text(k.content_summary)),
                      word_similarity(summary_text, rem.rem_trigram_text(k.content_summary))) AS score
      FROM rem.kv_store k
      WHERE rem.rem_owner(k.tenant_id, k.user_id) && owners AND summary_text <% rem.rem_trigram_text(k.content_summary)
        AND k.tenant_id = of_tenant AND (k.user_id = of_user OR k.user_id IS NULL) AND k.key_rank = 1
        AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
    ), best AS (
      SELECT * FROM matches m WHERE m.score > 0 AND m.entity_id <> ALL (found_ids)
      ORDER BY m.score DESC, m.is_own DESC, m.entity_key, m.entity_type, m.entity_id
      LIMIT of_limit - cardinality(found_ids)
    )
    SELECT string_agg(rem.rem_fuzzy_match(b.entity_type, b.entity_key, b.score, 'summary',
                        coalesce(b.record, rem.rem_record(b.entity_type, of_tenant, b.entity_id)::text)), ','
             ORDER BY b.score DESC, b.is_own DESC, b.entity_key, b.entity_type, b.entity_id)
      INTO by_summary FROM best b;
  END IF;
  RETURN '[' || concat_ws(',', by_key, by_summary) || ']';
END $$;

CREATE OR REPLACE FUNCTION rem_fuzzy_match(entity_type text, entity_key text, score real, matched text, record text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '["' || entity_type || '",' || to_json(entity_key)::text || ',' || round(score::numeric, 4)::text || ',"' || matched || '",'
  || record || ']';
