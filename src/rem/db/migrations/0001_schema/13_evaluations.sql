-- Runs of experiments: their cases with the outputs, and the scores of the outputs. They are no part of the memory: no verb finds
-- them and no dream reads them.

CREATE TABLE eval_runs (
  tenant_id text NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  user_id text,
  name text NOT NULL CONSTRAINT name_is_given CHECK (name <> ''),
  -- Counts the runs of one name, from 1.
  number integer NOT NULL,
  golden_set text NOT NULL,
  -- What makes the outputs: an agent and its model, or a query.
  target jsonb NOT NULL,
  -- The definitions of the evaluators, so that a run can be resumed and read after they changed.
  evaluators jsonb NOT NULL,
  -- REM, model, prompt, schema and data of the run, for comparisons.
  versions jsonb NOT NULL,
  seed bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- NULL: cases are missing, because the run is not complete or was interrupted.
  ended_at timestamptz,
  PRIMARY KEY (tenant_id, id),
  CONSTRAINT eval_runs_number UNIQUE NULLS NOT DISTINCT (tenant_id, user_id, name, number)
);

CREATE TABLE eval_cases (
  tenant_id text NOT NULL,
  run_id uuid NOT NULL,
  position integer NOT NULL,
  user_id text,
  case_id text NOT NULL,
  -- Input, reference, metadata and history.
  golden jsonb NOT NULL,
  output jsonb,
  -- The tool calls of an agent, or the notes of a query.
  details jsonb,
  error text,
  seconds double precision,
  -- NULL: not run yet.
  ended_at timestamptz,
  PRIMARY KEY (tenant_id, run_id, position),
  CONSTRAINT eval_cases_run FOREIGN KEY (tenant_id, run_id) REFERENCES eval_runs (tenant_id, id) ON DELETE CASCADE,
  CONSTRAINT eval_cases_id UNIQUE (tenant_id, run_id, case_id)
);

CREATE TABLE eval_scores (
  tenant_id text NOT NULL,
  run_id uuid NOT NULL,
  position integer NOT NULL,
  evaluator text NOT NULL,
  user_id text,
  scores jsonb NOT NULL,
  explanation text,
  error text,
  seconds double precision NOT NULL,
  PRIMARY KEY (tenant_id, run_id, position, evaluator),
  CONSTRAINT eval_scores_case FOREIGN KEY (tenant_id, run_id, position)
    REFERENCES eval_cases (tenant_id, run_id, position) ON DELETE CASCADE
);
