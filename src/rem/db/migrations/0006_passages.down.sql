DROP TYPE passage_score;
DROP TABLE embedding_means, passage_total_deltas, passage_totals, term_count_deltas, term_counts, search_queue, passages,
  embedding_models;
DROP FUNCTION rem_postings(text, text, sparsevec);
DROP FUNCTION rem_posting(text, text, integer);
DROP FUNCTION rem_sparse_terms(sparsevec);
ALTER TABLE entity_types DROP COLUMN search_fields, DROP COLUMN title_field;
