-- name: known_words
-- Return which of the words $3 a statement of the owners $2 has, in any language of the tenant's texts.
WITH languages AS MATERIALIZED (
  SELECT language FROM rem.passage_totals WHERE tenant_id = $1 AND owner IS NULL
  UNION SELECT language FROM rem.passage_total_deltas WHERE tenant_id = $1 AND owner IS NULL)
SELECT g.word FROM unnest($3::text[]) AS g (word)
WHERE EXISTS (
  SELECT FROM languages l CROSS JOIN LATERAL rem.rem_terms(l.language, g.word) t CROSS JOIN unnest($2::text[]) AS o (owner)
  CROSS JOIN LATERAL (
    SELECT FROM rem.passages p
    WHERE rem.rem_postings(p.tenant_id, p.owner, p.terms) && ARRAY[rem.rem_posting($1, o.owner, t.term)]
      -- Appending '' hides these columns from their index: see rem_passages_with_rare_words.
      AND p.owner || '' = o.owner AND p.tenant_id || '' = $1 AND p.kind = 'statement'
    LIMIT 1) found)
