-- name: login
SELECT role_name, role_password FROM rem.rem_sql_login()

-- name: use_role
SELECT rem.rem_sql_use_role($1)

-- name: role_name
SELECT rem.rem_sql_role_name()

-- name: keys
SELECT inner_key, outer_key FROM rem.sql_access

-- name: is_catalog_closed
-- Return true if the catalogue is closed, and nobody has opened it again.
SELECT reopening IS NOT NULL AND NOT has_function_privilege('public', 'pg_catalog.translate(text, text, text)', 'EXECUTE')
FROM rem.sql_access

-- name: close_catalog
SELECT rem.rem_sql_close_catalog()

-- name: unsafe_rights
SELECT * FROM rem.rem_sql_unsafe_rights($1)

-- name: security_gaps
SELECT * FROM rem.rem_sql_security_gaps($1)

-- name: tables
SELECT t FROM rem.rem_sql_tables() t ORDER BY t

-- name: transaction_start
-- Return the start of the transaction in microseconds. A signature is valid only for this start and this backend.
SELECT (extract(epoch FROM now()) * 1000000)::bigint

-- name: run
SELECT line FROM rem.rem_sql_run($1, $2, $3, $4) AS lines (line)

-- name: terminate_backend
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND application_name = 'rem sql'

-- name: is_backend_running
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND application_name = 'rem sql')
