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
from pgqueuer.domain.models import Job
from pgqueuer.domain.types import QueueEntrypoint, QueueManagerId
from pgqueuer.ports.repository import EntrypointExecutionParameter

from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.jobs.queue import JobQueue
from rem.settings import Settings
from rem.worker.pgqueuer_driver import ReconnectingDriver
from rem.worker.queries import WorkerQueries
from tests.db.embedded.processes import find_postmaster
from tests.jobs.conftest import TRACES, StartWorker, Traces, eventually

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
    await jobs.enqueue("slow", {**ALICE, "name": "report", "seconds": 6})
    await eventually(lambda: traces.events("report"))
    frozen.send_signal(signal.SIGSTOP)
    other = start_worker()
    await eventually(lambda: _begun(traces, 2))
    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: _nothing_waits(jobs))
    frozen.terminate()
    assert await asyncio.to_thread(frozen.wait, 10) == 0
    rows = await traces.rows()
    assert [(row["what"], row["pid"]) for row in rows] == [
        ("begun", frozen.pid),
        ("begun", other.pid),
        ("done", other.pid),
    ]


async def test_job_taken_by_a_lost_answer_is_queued_again(rem: Rem, jobs: JobQueue, sql: Any) -> None:
    known, unknown = [await jobs.enqueue("slow", ALICE) for _ in range(2)]
    driver, queries = queries_of(rem)
    assert len(await take(queries)) == 2
    assert unknown is not None
    queries.held.pop(unknown)
    await sql.execute(OTHERS)
    assert await driver.fetch("SELECT 1 AS one") == [{"one": 1}]
    await driver.close()
    assert {job.id: job.state for job in await jobs.list()} == {known: "running", unknown: "queued"}


@pytest.mark.parametrize("status", ["successful", "failed", "canceled"])
async def test_worker_cannot_end_a_job_that_was_taken_over(rem: Rem, jobs: JobQueue, status: Any) -> None:
    job_id = await jobs.enqueue("slow", ALICE)
    assert job_id is not None
    (first_driver, first), (second_driver, second) = queries_of(rem), queries_of(rem)
    (job,) = await take(first)
    (taken,) = await take(second, heartbeat=timedelta())
    assert (job.attempts, taken.attempts) == (0, 1)
    await first.update_heartbeat([job.id])
    assert first.held[job.id] < 0
    await first.retry_job(job, timedelta(), None)
    await first.log_jobs([(job, status, None)])
    assert (await jobs.get(job_id)).state == "running"
    await second.update_heartbeat([job.id])
    assert second.held[job.id] > 0
    await second.log_jobs([(taken, "successful", None)])
    assert await jobs.list() == []
    for driver in (first_driver, second_driver):
        await driver.close()


def queries_of(rem: Rem) -> tuple[ReconnectingDriver, WorkerQueries]:
    """The statements of a worker."""
    driver = ReconnectingDriver(rem.database, 5, lambda connection: queries.requeue_unknown(connection))
    queries = WorkerQueries(driver, 10)
    return driver, queries


async def take(queries: WorkerQueries, heartbeat: timedelta = timedelta(seconds=60)) -> list[Job]:
    """What a worker gets that asks for jobs."""
    kinds = {QueueEntrypoint("slow"): EntrypointExecutionParameter(0)}
    return await queries.dequeue(10, kinds, QueueManagerId(uuid4()), None, heartbeat)


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


async def _begun(traces: Traces, times: int) -> bool:
    return len([row for row in await traces.rows() if row["what"] == "begun"]) >= times


async def _nothing_waits(jobs: JobQueue) -> bool:
    counts = await jobs.counts()
    return counts["queued"] == counts["running"] == 0
