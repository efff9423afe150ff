"""Workers as real processes: they share jobs, fail, are killed and stopped, and every job ends."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

from rem.db.sql import query
from rem.jobs.queue import JobQueue
from tests.jobs.conftest import StartWorker, Traces, eventually, take

ALICE = {"tenant_id": "acme", "user_id": "alice"}


async def put(jobs: JobQueue, kind: str, name: str, **payload: object) -> int:
    job_id = await jobs.enqueue(kind, {**ALICE, "name": name, **payload})
    assert job_id is not None
    return job_id


async def is_empty(jobs: JobQueue) -> bool:
    counts = await jobs.counts()
    return counts["queued"] == counts["running"] == 0


async def test_two_workers_run_every_job_once(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    workers = [start_worker(), start_worker()]
    for number in range(60):
        await put(jobs, "slow", f"job-{number}", seconds=0.02)
    await eventually(lambda: is_empty(jobs))
    rows = await traces.rows()
    assert sorted(row["name"] for row in rows if row["what"] == "done") == sorted(f"job-{n}" for n in range(60))
    assert len(rows) == 120
    assert {row["pid"] for row in rows} == {worker.pid for worker in workers}


async def test_worker_respects_its_concurrency(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker, sql: Any
) -> None:
    for number in range(4):
        await put(jobs, "slow", f"job-{number}", seconds=0.2)
    start_worker(WORKER__CONCURRENCY="1")
    await eventually(lambda: is_empty(jobs))
    assert [row["what"] for row in await traces.rows()] == ["begun", "done"] * 4


async def test_job_with_higher_priority_runs_first(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    for name, priority in (("usual", 0), ("urgent", 10), ("whenever", -10)):
        await jobs.enqueue("slow", {**ALICE, "name": name}, priority=priority)
    start_worker(WORKER__CONCURRENCY="1", TEST_ONCE="1").wait(20)
    rows = [row["name"] for row in await traces.rows() if row["what"] == "begun"]
    assert rows == ["urgent", "usual", "whenever"]


async def test_job_of_a_killed_worker_is_taken_over(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    victim = start_worker()
    job_id = await put(jobs, "slow", "report", seconds=1.5)
    await eventually(lambda: traces.events("report"))
    victim.kill()
    other = start_worker()
    await eventually(lambda: is_empty(jobs), 60)
    assert await traces.events("report") == ["begun", "begun", "done"]
    assert other.poll() is None
    assert job_id not in {job.id for job in await jobs.list()}


async def test_job_that_kills_its_process_twice_is_set_aside(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    """The first time it takes its worker along, and the job beside it, which succeeds later. Then it takes nothing."""
    job_id = await put(jobs, "kills", "bomb")
    beside = await put(jobs, "slow", "beside", seconds=1)
    assert start_worker(WORKER__ATTEMPTS="9").wait(20) == -signal.SIGKILL
    survivor = start_worker(WORKER__ATTEMPTS="9")
    await eventually(lambda: jobs.list(state="dead"), 60)
    await eventually(lambda: is_empty(jobs), 60)
    (dead,) = await jobs.list()
    assert (dead.id, dead.attempts, dead.losses) == (job_id, 2, 2)
    assert dead.error is not None
    assert dead.error.kind == "WorkerLost"
    assert await traces.events("bomb") == ["begun"] * 2
    assert (await traces.events("beside"))[-1] == "done"
    assert beside not in {job.id for job in await jobs.list()}
    assert survivor.poll() is None
    # Even when it is retried, it ends only its own process.
    await jobs.retry([job_id])
    await eventually(lambda: jobs.list(state="dead"), 60)
    assert survivor.poll() is None


async def test_job_whose_workers_are_killed_twice_is_set_aside(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    job_id = await put(jobs, "slow", "report", seconds=60)
    for number in range(2):
        worker = start_worker(WORKER__ATTEMPTS="9")
        await eventually(partial(_has_begun, traces, "report", number + 1), 60)
        worker.kill()
    start_worker(WORKER__ATTEMPTS="9")
    await eventually(lambda: jobs.list(state="dead"), 60)
    dead = await jobs.get(job_id)
    assert dead.error is not None
    assert (dead.error.kind, dead.losses, dead.attempts) == ("WorkerLost", 2, 2)


async def test_job_that_freezes_its_process_is_set_aside(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker, sql: Any
) -> None:
    start_worker(WORKER__HEARTBEAT_SECONDS="3")
    # As if it had frozen a worker before.
    job_id = await jobs.enqueue("freezes", {**ALICE, "name": "frozen"}, delay=timedelta(hours=1))
    assert job_id is not None
    await sql.execute("UPDATE rem_jobs.jobs SET losses = 1, is_due = true WHERE id = $1", job_id)
    await eventually(lambda: jobs.list(state="dead"), 60)
    assert (await jobs.get(job_id)).losses == 2
    assert await traces.events("frozen") == ["begun"]


async def test_only_jobs_inside_the_lost_process_are_blamed(jobs: JobQueue, sql: Any) -> None:
    worker = uuid4()
    inside, apart = [await put(jobs, "slow", name) for name in ("inside", "apart")]
    await sql.execute("UPDATE rem_jobs.jobs SET losses = 1 WHERE id = $1", apart)
    assert await take(sql, "slow", worker=worker) == [inside, apart]
    beat_at = await sql.fetchval("SELECT beat_at FROM rem_jobs.workers")
    await sql.fetch(query("jobs/jobs", "lose_worker"), worker, beat_at, 5, 2)
    assert {job.id: (job.state, job.losses, job.attempts) for job in await jobs.list()} == {
        inside: ("queued", 1, 1),
        apart: ("queued", 1, 1),
    }


async def test_failed_job_is_retried_with_growing_delays(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    await put(jobs, "fails", "flaky", times=2)
    start_worker(WORKER__RETRY_SECONDS="0.3")
    await eventually(lambda: is_empty(jobs))
    assert await jobs.list() == []
    at = [row["at"] for row in await traces.rows()]
    assert len(at) == 3
    first, second = (later - earlier for earlier, later in pairwise(at))
    assert first.total_seconds() >= 0.24
    assert second.total_seconds() >= 0.48


async def test_job_is_dead_after_all_attempts_and_can_be_retried(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    job_id = await put(jobs, "fails", "hopeless", times=4)
    start_worker()
    await eventually(lambda: jobs.list(state="dead"))
    dead = await jobs.get(job_id)
    assert dead.attempts == 3
    assert dead.error is not None
    assert dead.error.kind == "RuntimeError"
    # What was said is told, the password is not.
    assert dead.error.message == "RuntimeError: the service at postgresql://me:***@host/db says no to hopeless"
    assert dead.error.where[-1].startswith("tests/jobs/worker_process.py:")
    assert await traces.events("hopeless") == ["tried"] * 3
    assert await jobs.retry([job_id]) == [job_id]
    await eventually(lambda: is_empty(jobs))
    assert await jobs.list() == []
    assert await traces.events("hopeless") == ["tried"] * 5


async def test_permanent_error_makes_a_job_dead_at_once(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    job_id = await put(jobs, "refuses", "locked")
    start_worker()
    await eventually(lambda: jobs.list(state="dead"))
    dead = await jobs.get(job_id)
    assert dead.error is not None
    assert dead.error.message == "This file is encrypted: store it without a password."
    assert await traces.events("locked") == ["tried"]


async def test_unknown_kind_stays_queued(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    unknown = await put(jobs, "of-the-future", "later")
    await put(jobs, "slow", "now")
    start_worker(TEST_ONCE="1").wait(20)
    assert [(job.id, job.state) for job in await jobs.list()] == [(unknown, "queued")]
    assert await traces.events("now") == ["begun", "done"]


async def test_stopped_worker_finishes_its_jobs_first(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    worker = start_worker()
    await put(jobs, "slow", "short", seconds=0.7)
    await eventually(lambda: traces.events("short"))
    worker.terminate()
    await put(jobs, "slow", "next")
    assert await asyncio.to_thread(worker.wait, 10) == 0
    assert await traces.events("short") == ["begun", "done"]
    assert [job.state for job in await jobs.list()] == ["queued"]


async def test_job_that_does_not_end_in_time_is_queued_again(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    worker = start_worker(WORKER__SHUTDOWN_SECONDS="0.3", WORKER__HEARTBEAT_SECONDS="60")
    job_id = await put(jobs, "slow", "long", seconds=30)
    clinging = await put(jobs, "blocks", "clinging")
    await eventually(lambda: traces.events("long"))
    await eventually(lambda: traces.events("clinging"))
    started = time.monotonic()
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 10) == 0
    assert time.monotonic() - started < 5
    assert await traces.events("clinging") == ["begun", "clinging"]
    # No attempt is used up, and nobody has to wait for a heartbeat.
    assert {(job.id, job.state, job.attempts) for job in await jobs.list()} == {
        (job_id, "queued", 0),
        (clinging, "queued", 0),
    }


async def test_second_signal_interrupts_at_once(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    worker = start_worker(WORKER__SHUTDOWN_SECONDS="60")
    await put(jobs, "slow", "long", seconds=30)
    await eventually(lambda: traces.events("long"))
    worker.terminate()
    await asyncio.sleep(0.3)
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 10) == 0
    assert [job.state for job in await jobs.list()] == ["queued"]


async def test_running_job_can_be_cancelled(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    worker = start_worker()
    job_id = await put(jobs, "slow", "long", seconds=30)
    await eventually(lambda: traces.events("long"))
    assert await jobs.cancel([job_id]) == [job_id]
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 5) == 0
    assert await traces.events("long") == ["begun"]
    assert await jobs.list() == []


async def test_erasing_a_user_stops_their_jobs(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    worker = start_worker()
    await put(jobs, "slow", "long", seconds=30)
    await eventually(lambda: traces.events("long"))
    assert await jobs.erase_owner("acme", "alice") == 1
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 5) == 0
    assert await jobs.erase_owner("acme", "alice") == 0


async def test_equal_jobs_never_run_at_the_same_time(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> None:
    start_worker()
    start_worker()
    assert await jobs.enqueue("slow", {**ALICE, "name": "same", "seconds": 0.5}, dedupe="same") is not None
    await eventually(lambda: traces.events("same"))
    # What changed after the first one had looked is seen by the second.
    assert await jobs.enqueue("slow", {**ALICE, "name": "same", "seconds": 0.5}, dedupe="same") is not None
    await eventually(lambda: is_empty(jobs))
    assert await traces.events("same") == ["begun", "done", "begun", "done"]


async def test_schedule_fires_once_with_many_workers(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker, sql: Any
) -> None:
    workers = [start_worker(TEST_SCHEDULE="* * * * * */2") for _ in range(3)]
    await eventually(lambda: _fired(traces, 2))
    for worker in workers:
        worker.terminate()
        await asyncio.to_thread(worker.wait, 10)
    at = [row["at"] for row in await traces.rows() if row["what"] == "begun"]
    # Every two seconds, in all workers together.
    assert all((later - earlier).total_seconds() > 0.9 for earlier, later in pairwise(at))
    assert [planned.kind for planned in await jobs.schedules()] == ["slow"]


async def _fired(traces: Traces, times: int) -> bool:
    return len([row for row in await traces.rows() if row["what"] == "done"]) >= times


async def _has_begun(traces: Traces, name: str, times: int) -> bool:
    return (await traces.events(name)).count("begun") >= times
