DROP TABLE dream_progress, statement_sources, statements, dream_runs, uploads;
DROP INDEX resources_file;
ALTER TABLE entity_types DROP COLUMN alias_expression;
DROP FUNCTION rem_keys_of(jsonb);
