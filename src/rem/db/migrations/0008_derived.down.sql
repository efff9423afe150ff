DO $$
DECLARE
  entity text;
BEGIN
  FOR entity IN SELECT name FROM rem.entity_types WHERE is_builtin LOOP
    EXECUTE format('DROP INDEX rem.%I', entity || '_expires');
  END LOOP;
END $$;
DROP TABLE dream_progress, statement_sources, statements, dream_runs, uploads;
DROP INDEX resources_file, ontologies_file, moments_summary;
ALTER TABLE entity_types DROP COLUMN alias_expression;
DROP FUNCTION rem_keys_of(jsonb);
CREATE OR REPLACE FUNCTION rem_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.updated_at = OLD.updated_at THEN
    -- Strictly later, so that a version is never mistaken for another.
    NEW.updated_at := greatest(clock_timestamp(), OLD.updated_at + interval '1 microsecond');
  END IF;
  RETURN NEW;
END $$;
