-- The job queue: whose turn it is, and what happens to the jobs of a lost worker.

-- Give an owner with a due job a place in the turns, and wake the workers. No unique index makes one transaction wait for another
-- here, so two transactions may add the same place; each of them goes when it is found empty.
CREATE OR REPLACE FUNCTION rem_join_turns() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- The lock keeps a worker from removing the place until this transaction has ended.
  PERFORM FROM rem_jobs.turns t
  WHERE t.owner_key = NEW.owner_key AND t.kind = NEW.kind AND t.priority = NEW.priority AND t.is_waiting
  LIMIT 1 FOR KEY SHARE;
  IF NOT FOUND THEN
    INSERT INTO rem_jobs.turns (kind, priority, tenant_id, user_id, turn)
    SELECT NEW.kind, NEW.priority, NEW.tenant_id, NEW.user_id, coalesce(max(t.turn), 0) FROM rem_jobs.turns t
    WHERE t.owner_key = NEW.owner_key AND t.kind = NEW.kind AND t.priority = NEW.priority;
  END IF;
  PERFORM pg_notify('rem_jobs', '');
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER join_turns AFTER INSERT OR UPDATE OF state, is_due ON rem_jobs.jobs FOR EACH ROW
  WHEN (NEW.state = 'queued' AND NEW.is_due) EXECUTE FUNCTION rem_join_turns();

-- Take up to `slots` jobs for a worker, which gets nothing if it was declared lost. Priority comes first, then the owner with the
-- fewest running jobs, then the turn. An owner may hold `owner_slots` of this worker; the system is no owner. Nothing here waits
-- for a lock, except for the end of a declaration of loss.
CREATE OR REPLACE FUNCTION rem_take_jobs(of_worker uuid, kinds text[], slots integer, owner_slots integer)
RETURNS SETOF rem_jobs.jobs LANGUAGE plpgsql AS $$
DECLARE
  place rem_jobs.turns;
  job rem_jobs.jobs;
  tried bigint[] := '{}';
BEGIN
  PERFORM FROM rem_jobs.workers w WHERE w.id = of_worker FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  UPDATE rem_jobs.jobs SET is_due = true WHERE id IN (
    SELECT j.id FROM rem_jobs.jobs j WHERE j.state = 'queued' AND NOT j.is_due AND j.due_at <= now()
    ORDER BY j.due_at LIMIT 1000 FOR UPDATE SKIP LOCKED);
  WHILE slots > 0 LOOP
    WITH busy AS MATERIALIZED (
      SELECT j.owner_key, count(*) AS jobs, count(*) FILTER (WHERE j.worker = of_worker) AS own_jobs
      FROM rem_jobs.jobs j WHERE j.state = 'running' AND j.tenant_id IS NOT NULL GROUP BY j.owner_key)
    SELECT next.* INTO place FROM (
      SELECT idle.*, 0::bigint AS jobs FROM unnest(kinds) AS of_kind CROSS JOIN LATERAL (
        SELECT t.* FROM rem_jobs.turns t
        WHERE t.kind = of_kind AND t.is_waiting AND t.id <> ALL (tried) AND t.owner_key NOT IN (SELECT b.owner_key FROM busy b)
        ORDER BY t.priority DESC, t.turn, t.id LIMIT 1) idle
      UNION ALL
      SELECT t.*, b.jobs FROM busy b JOIN rem_jobs.turns t ON t.owner_key = b.owner_key
      WHERE b.own_jobs < owner_slots AND t.is_waiting AND t.kind = ANY (kinds) AND t.id <> ALL (tried)) next
    ORDER BY next.priority DESC, next.jobs, next.turn, next.id LIMIT 1;
    EXIT WHEN NOT FOUND;
    UPDATE rem_jobs.jobs SET state = 'running', worker = of_worker, changed_at = now() WHERE id = (
      SELECT j.id FROM rem_jobs.jobs j
      WHERE j.owner_key = place.owner_key AND j.kind = place.kind AND j.priority = place.priority AND j.state = 'queued' AND j.is_due
        -- Equal jobs do not run at the same time.
        AND NOT EXISTS (SELECT FROM rem_jobs.jobs r WHERE r.state = 'running' AND r.dedupe_key = j.dedupe_key)
      ORDER BY j.due_at, j.id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING * INTO job;
    IF FOUND THEN
      slots := slots - 1;
      RETURN NEXT job;
    ELSE
      tried := tried || place.id;
    END IF;
    PERFORM FROM rem_jobs.turns t WHERE t.id = place.id FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
      UPDATE rem_jobs.turns SET turn = DEFAULT, served_at = now() WHERE id = place.id;
    END IF;
    CONTINUE WHEN rem.rem_has_due_jobs(place);
    PERFORM FROM rem_jobs.turns t WHERE t.id = place.id FOR UPDATE SKIP LOCKED;
    -- Asked again, because a job may have come before the lock.
    IF FOUND AND NOT rem.rem_has_due_jobs(place) THEN
      UPDATE rem_jobs.turns SET is_waiting = false WHERE id = place.id;
      DELETE FROM rem_jobs.turns WHERE id IN (
        SELECT t.id FROM rem_jobs.turns t
        WHERE t.owner_key = place.owner_key AND t.kind = place.kind AND t.priority = place.priority AND NOT t.is_waiting
          AND t.id <> place.id FOR UPDATE SKIP LOCKED);
    END IF;
  END LOOP;
END $$;

-- Return whether an owner has due jobs of a kind and priority.
CREATE OR REPLACE FUNCTION rem_has_due_jobs(place rem_jobs.turns) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM rem_jobs.jobs j WHERE j.owner_key = place.owner_key AND j.kind = place.kind
                   AND j.priority = place.priority AND j.state = 'queued' AND j.is_due);
END $$;

-- Queue a job again that a worker holds. If an equal job waits, that one does the work and this one is removed.
CREATE OR REPLACE FUNCTION rem_requeue_job(of_job bigint, of_worker uuid, delay interval, failed integer, lost integer, why text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE rem_jobs.jobs
  SET state = 'queued', worker = NULL, is_due = delay <= '0', due_at = greatest(due_at, now() + delay), changed_at = now(),
      attempts = attempts + failed, losses = losses + lost, error = coalesce(why, error)
  WHERE id = of_job AND worker = of_worker;
EXCEPTION WHEN unique_violation THEN
  DELETE FROM rem_jobs.jobs WHERE id = of_job AND worker = of_worker;
END $$;

-- Declare a worker lost if it has given no other heartbeat than `seen`, and queue its jobs again. Each of them loses an attempt. A
-- loss is blamed on the jobs that ran inside the process, which have none so far; on the others, which ran in processes of their
-- own, only if they were alone. The second loss, or the last attempt, makes a job dead.
CREATE OR REPLACE FUNCTION rem_lose_worker(of_worker uuid, seen timestamptz, max_attempts integer, max_losses integer)
RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
  job rem_jobs.jobs;
  were_apart boolean;
  lost integer;
BEGIN
  PERFORM FROM rem_jobs.workers w WHERE w.id = of_worker AND w.beat_at = seen FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  were_apart := NOT EXISTS (SELECT FROM rem_jobs.jobs j WHERE j.worker = of_worker AND j.losses = 0);
  FOR job IN SELECT j.* FROM rem_jobs.jobs j WHERE j.worker = of_worker ORDER BY j.id FOR UPDATE LOOP
    lost := (job.losses = 0 OR were_apart)::integer;
    IF job.losses + lost >= max_losses OR job.attempts + 1 >= max_attempts THEN
      UPDATE rem_jobs.jobs SET state = 'dead', worker = NULL, attempts = attempts + 1, losses = losses + lost, changed_at = now(),
        error = json_build_object('kind', 'WorkerLost', 'at', now(), 'message', format(
          'It is set aside, because its process ended or froze while running it (%s times).', job.losses + lost))
      WHERE id = job.id;
      INSERT INTO rem_jobs.log (job_id, kind, outcome) VALUES (job.id, job.kind, 'dead');
    ELSE
      PERFORM rem.rem_requeue_job(job.id, of_worker, '0', 1, lost, NULL);
    END IF;
    RETURN NEXT job.id;
  END LOOP;
  DELETE FROM rem_jobs.workers WHERE id = of_worker;
END $$;
