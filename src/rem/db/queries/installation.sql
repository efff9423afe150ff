-- name: index_key
SELECT i.index_key FROM rem.installation i

-- name: set_index_key
-- Store the secret of the search index, unless there is one.
UPDATE rem.installation SET index_key = $1 WHERE index_key IS NULL RETURNING index_key

-- name: replace_index_key
UPDATE rem.installation SET index_key = $2 WHERE index_key = $1

-- name: clear_index_key
UPDATE rem.installation SET index_key = NULL
