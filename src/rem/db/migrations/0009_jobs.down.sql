DROP TABLE rem_jobs.pgqueuer, rem_jobs.pgqueuer_log, rem_jobs.pgqueuer_schedules, rem_jobs.pgqueuer_statistics;
DROP FUNCTION rem_jobs.fn_pgqueuer_changed(), rem_jobs.count_takeover(), rem_jobs.wake_workers(text);
DROP TYPE rem_jobs.pgqueuer_status;
-- One that an administrator made is the administrator's.
DO $$ BEGIN
  IF pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'rem_jobs'), 'USAGE') THEN
    DROP SCHEMA rem_jobs;
  END IF;
END $$;
