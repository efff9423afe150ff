-- Count the words of all passages again, as before.
DELETE FROM term_count_deltas;
DELETE FROM term_counts;
INSERT INTO term_counts (tenant_id, term, passages)
SELECT p.tenant_id, t.term, count(*) FROM passages p CROSS JOIN LATERAL rem_sparse_terms(p.terms) t GROUP BY p.tenant_id, t.term;
DELETE FROM passage_total_deltas WHERE owner IS NULL;
DELETE FROM passage_totals WHERE owner IS NULL;
INSERT INTO passage_totals (tenant_id, owner, language, entity_type, passages)
SELECT tenant_id, NULL, language, entity_type, count(*) FROM passages WHERE l2_norm(terms) > 0 GROUP BY tenant_id, language, entity_type;
UPDATE embedding_means SET passages = 0;
