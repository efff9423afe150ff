-- name: table_sizes
SELECT * FROM rem.rem_table_sizes()

-- name: check_mirrors
SELECT keys, edges, wrong_keys, wrong_edges FROM rem.rem_check_mirrors()
