-- name: index_key
SELECT i.index_key FROM rem.installation i

-- name: is_encrypted
-- Return true if texts of this database are encrypted, or were and are not all decrypted yet.
SELECT i.index_key IS NOT NULL FROM rem.installation i

-- name: end_plain_connections
-- End the connections of processes that were started without a key. They find out when they connect again.
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = current_user AND a.application_name = $1 AND a.pid <> pg_backend_pid()

-- name: set_index_key
-- Store the secret of the search index, unless there is one.
UPDATE rem.installation SET index_key = $1 WHERE index_key IS NULL RETURNING index_key

-- name: replace_index_key
UPDATE rem.installation SET index_key = $2 WHERE index_key = $1

-- name: clear_index_key
UPDATE rem.installation SET index_key = NULL
