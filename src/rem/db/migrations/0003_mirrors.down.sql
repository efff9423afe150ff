DROP TABLE edges, kv_store;
DROP FUNCTION rem_index_embeddings(integer);
