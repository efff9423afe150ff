"""Lost connections, crashed servers and frozen processes: no job is lost or runs twice at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.db.sql import query
from rem.jobs.queue import JobQueue
from rem.settings import Settings
from tests.db.embedded.processes import find_postmaster
from tests.jobs.conftest import TRACES, StartWorker, Traces, eventually, take

ALICE = {"tenant_id": "acme", "user_id": "alice"}
OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def crash(server: EmbeddedServer) -> None:
    """As the kernel does when memory is short."""
    find_postmaster(server).kill()


def restart(server: EmbeddedServer) -> None:
    """As an administrator does."""
    server.stop()
    server.ensure_running()


@pytest.mark.parametrize("end", [crash, restart])
async def test_jobs_survive_a_restart_of_postgres(
    home: Path, start_worker: StartWorker, end: Callable[[EmbeddedServer], None]
) -> None:
    async with Rem.open(Settings(rem_home=home)) as rem:
        async with rem.database.connection() as connection:
            await connection.execute(TRACES)
        jobs, traces = JobQueue(rem.database), Traces(rem)
        for number in range(40):
            await jobs.enqueue("slow", {**ALICE, "name": f"job-{number}", "seconds": 0.1})
        workers = [start_worker(REM_HOME=str(home), WORKER__ATTEMPTS="5") for _ in range(2)]
        await eventually(lambda: _done(traces, 5))
        await asyncio.to_thread(end, EmbeddedServer(home))
        await eventually(lambda: _nothing_waits(jobs), 40)
        assert await _done(traces, 40)
        assert (await jobs.counts())["dead"] == 0
        for worker in workers:
            worker.terminate()
            assert await asyncio.to_thread(worker.wait, 10) == 0


async def test_lost_connection_does_not_disturb_a_running_job(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker, sql: Any
) -> None:
    start_worker(WORKER__HEARTBEAT_SECONDS="20")
    await jobs.enqueue("slow", {**ALICE, "name": "report", "seconds": 1})
    await eventually(lambda: traces.events("report"))
    await sql.execute(OTHERS)
    await eventually(lambda: _nothing_waits(jobs))
    assert await traces.events("report") == ["begun", "done"]
    # And what is put in afterwards is done at once, not when the worker looks again: the new connection listens, too.
    await jobs.enqueue("slow", {**ALICE, "name": "next"})
    await eventually(lambda: traces.events("next"), 2)


async def test_frozen_worker_releases_jobs_that_were_taken_over(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker
) -> None:
    frozen = start_worker()
    job_id = await jobs.enqueue("slow", {**ALICE, "name": "report", "seconds": 6})
    assert job_id is not None
    await eventually(lambda: traces.events("report"))
    frozen.send_signal(signal.SIGSTOP)
    start_worker()
    await eventually(lambda: _is_lost(jobs, job_id))
    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: _nothing_waits(jobs), 60)
    frozen.terminate()
    assert await asyncio.to_thread(frozen.wait, 10) == 0
    rows = await traces.rows()
    assert [(row["what"], row["pid"] == frozen.pid) for row in rows] == [
        ("begun", True),
        ("begun", False),
        ("done", False),
    ]


async def test_job_taken_by_a_lost_answer_is_queued_again(
    jobs: JobQueue, traces: Traces, start_worker: StartWorker, sql: Any
) -> None:
    start_worker(WORKER__HEARTBEAT_SECONDS="20")
    known = await jobs.enqueue("slow", {**ALICE, "name": "known", "seconds": 60})
    await eventually(lambda: traces.events("known"))
    # As if the worker had taken it without receiving the answer.
    unknown = await jobs.enqueue("slow", {**ALICE, "name": "unknown"}, delay=timedelta(hours=1))
    await sql.execute(
        "UPDATE rem_jobs.jobs SET state = 'running', worker = (SELECT id FROM rem_jobs.workers) WHERE id = $1", unknown
    )
    await sql.execute(OTHERS)
    await eventually(lambda: traces.events("unknown"))
    await eventually(lambda: _are(jobs, {known: "running"}))


@pytest.mark.parametrize("outcome", ["done", "dead", "queued"])
async def test_worker_cannot_end_a_job_that_was_taken_over(jobs: JobQueue, sql: Any, outcome: str) -> None:
    job_id = await jobs.enqueue("slow", ALICE)
    assert job_id is not None
    first, second = uuid4(), uuid4()
    assert await take(sql, "slow", worker=first) == [job_id]
    beat_at = await sql.fetchval("SELECT beat_at FROM rem_jobs.workers WHERE id = $1", first)
    await sql.fetch(query("jobs/jobs", "beat"), first)
    assert await sql.fetch(query("jobs/jobs", "lose_worker"), first, beat_at, 5, 2) == []
    beat_at = await sql.fetchval("SELECT beat_at FROM rem_jobs.workers WHERE id = $1", first)
    assert len(await sql.fetch(query("jobs/jobs", "lose_worker"), first, beat_at, 5, 2)) == 1
    # A lost worker gets no jobs and no heartbeat.
    assert await sql.fetch(query("jobs/jobs", "take"), first, ["slow"], 10, 10) == []
    assert await sql.fetch(query("jobs/jobs", "beat"), first) == []
    assert await take(sql, "slow", worker=second) == [job_id]
    run = [job_id], [first], [outcome], [0.0], [1], [0], ["{}"]
    await sql.fetch(query("jobs/jobs", "end"), *run)
    job = await jobs.get(job_id)
    assert (job.state, job.worker, job.attempts, job.losses) == ("running", second, 1, 1)
    await sql.fetch(query("jobs/jobs", "end"), [job_id], [second], ["done"], [0.0], [0], [0], [None])
    assert await jobs.list() == []


async def test_worker_stops_without_a_database(home: Path, start_worker: StartWorker) -> None:
    settings = Settings(rem_home=home)
    async with Rem.open(settings):
        server = EmbeddedServer(home)
        address = server.ensure_running()
    # As an external one, it is not started again by the worker.
    dsn = f"postgresql://{address.user}@/{address.database}?host={address.socket_dir}&port={address.port}"
    worker = start_worker(dsn, WORKER__SHUTDOWN_SECONDS="0.5", POSTGRES__CONNECT_TIMEOUT_SECONDS="1")
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(1)
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 10) == 0


async def _done(traces: Traces, least: int) -> bool:
    return len({row["name"] for row in await traces.rows() if row["what"] == "done"}) >= least


async def _is_lost(jobs: JobQueue, job_id: int) -> bool:
    return (await jobs.get(job_id)).losses == 1


async def _nothing_waits(jobs: JobQueue) -> bool:
    counts = await jobs.counts()
    return counts["queued"] == counts["running"] == 0


async def _are(jobs: JobQueue, states: dict[int | None, str]) -> bool:
    return {job.id: job.state for job in await jobs.list()} == states
