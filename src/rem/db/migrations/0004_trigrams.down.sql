DROP INDEX kv_store_key_trigrams, kv_store_summary_trigrams;
DROP FUNCTION rem_owner(text, text);
DROP FUNCTION rem_trigram_text(text);
DROP FUNCTION rem_ascii(text);
DROP INDEX edges_in;
CREATE INDEX edges_in ON edges (tenant_id, dst_key, user_id);
