DO $$
DECLARE
  entity text;
BEGIN
  FOR entity IN SELECT name FROM rem.entity_types WHERE is_builtin LOOP
    EXECUTE format('DROP INDEX rem.%I', entity || '_expires');
  END LOOP;
END $$;
DROP TABLE dream_progress, statement_sources, statements, dream_runs, uploads;
DROP INDEX resources_file, ontologies_file;
ALTER TABLE entity_types DROP COLUMN alias_expression;
DROP FUNCTION rem_keys_of(jsonb);
