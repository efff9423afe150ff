-- Drop the functions that have new names. The migrator replaces only functions whose names are in `functions/`, so the old
-- ones would stay in a database of an earlier version.
DO $$
DECLARE
  signature text;
BEGIN
  FOREACH signature IN ARRAY coalesce((
    SELECT array_agg(oid::regprocedure::text) FROM pg_proc
    WHERE pronamespace = 'rem'::regnamespace AND proname = ANY ('{
    rem_add_messages, rem_asked_terms, rem_bring_along, rem_combined_confidence, rem_conversation, rem_count_forgotten,
    rem_count_messages, rem_count_passages_of, rem_count_restored, rem_counted_session, rem_distinction,
    rem_dream_again, rem_dream_has_own, rem_dream_move_marks, rem_dream_notice, rem_dream_stands, rem_dream_stretch,
    rem_dreams_lapse_with, rem_dreamt_content, rem_dreamt_expiry, rem_dreamt_row, rem_enough_evidence,
    rem_enqueue_query, rem_file_of_job, rem_follow_ingest_job, rem_follow_messages, rem_follow_session,
    rem_followers_on_loss, rem_forget_counters, rem_freed_name, rem_history, rem_history_line, rem_history_tokens,
    rem_kv_store_is_whole, rem_make_session, rem_match, rem_mend_kv_store, rem_middles, rem_next_index,
    rem_own_metadata, rem_probe_meaning, rem_probe_words, rem_queue_everything, rem_rank_passages, rem_recall,
    rem_recalled_passages, rem_refuse_far_index, rem_renew_samples, rem_searchable_query, rem_sql_adopt, rem_sql_enter,
    rem_sql_faults, rem_sql_gaps, rem_use_confidence, rem_version_of, rem_wake_dreams_of_file, rem_with_part}')), '{}')
  LOOP
    EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', signature);
  END LOOP;
END $$;
