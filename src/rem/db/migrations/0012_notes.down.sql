DROP TABLE ingest_run_files;
DROP TABLE ingest_runs;
UPDATE entity_types SET alias_expression = NULL WHERE name = 'files';
ALTER TABLE entity_types DROP COLUMN exact_key_expression, DROP COLUMN weak_key_expression;
