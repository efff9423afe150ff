-- Questions and quotations no longer count for the rarity of words (rem_count_passages): count again, and compute all means again.
DELETE FROM term_count_deltas;
DELETE FROM term_counts;
INSERT INTO term_counts (tenant_id, term, passages)
SELECT p.tenant_id, t.term, count(*) FROM passages p CROSS JOIN LATERAL rem_sparse_terms(p.terms) t
WHERE p.is_statement OR p.position IS NOT NULL GROUP BY p.tenant_id, t.term;
DELETE FROM passage_total_deltas WHERE owner IS NULL;
DELETE FROM passage_totals WHERE owner IS NULL;
INSERT INTO passage_totals (tenant_id, owner, language, entity_type, passages)
SELECT tenant_id, NULL, language, entity_type, count(*) FROM passages
WHERE l2_norm(terms) > 0 AND (is_statement OR position IS NOT NULL) GROUP BY tenant_id, language, entity_type;
-- With this number of passages, the next change of an owner's texts computes the mean.
UPDATE embedding_means SET passages = 0;
