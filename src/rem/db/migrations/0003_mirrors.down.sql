SELECT rem_drop_mirrors();
DROP TABLE edges, kv_store;
DROP FUNCTION rem_index_embeddings(integer);
