-- name: table_sizes
SELECT * FROM rem.rem_table_sizes()
