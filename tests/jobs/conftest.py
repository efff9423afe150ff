"""Start worker processes, and read the table in which their handlers write traces."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.jobs.queue import JobQueue
from tests.forked_process import ForkedProcess
from tests.rem_command import REPOSITORY, environment

TRACES = "CREATE TABLE public.traces (name text, what text, pid integer, at timestamptz DEFAULT clock_timestamp())"
_QUICK = {"WORKER__HEARTBEAT_SECONDS": "1", "WORKER__RETRY_SECONDS": "0.1", "WORKER__ATTEMPTS": "3"}


class StartWorker(Protocol):
    """Starts a worker process on the test's database and waits until it is ready."""

    def __call__(self, address: str | None = None, **settings: str) -> ForkedProcess: ...


@pytest.fixture
def start_worker(dsn: str, tmp_path: Path) -> Iterator[StartWorker]:
    """Return a function that starts workers, which end with the test."""
    processes: list[ForkedProcess] = []

    def start(address: str | None = None, **settings: str) -> ForkedProcess:
        where = {"POSTGRES__CONNECTION_STRING": address or dsn} if "REM_HOME" not in settings else {}
        with (tmp_path / f"worker-{len(processes)}.log").open("w") as log:
            process = ForkedProcess(
                ["-m", "tests.jobs.worker_process"],
                environment=environment({**_QUICK, **where, **settings}),
                folder=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", (tmp_path / log.name).read_text()
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Traces:
    """The traces that the handlers have written."""

    def __init__(self, rem: Rem) -> None:
        self._rem = rem

    async def events(self, name: str) -> list[str]:
        """Return the events of a job in order."""
        return [row["what"] for row in await self.rows("WHERE name = $1 ORDER BY at", name)]

    async def rows(self, condition: str = "ORDER BY at", *values: object) -> list[dict[str, Any]]:
        """Return the traces as rows."""
        async with self._rem.database.connection() as connection:
            return [dict(row) for row in await connection.fetch(f"SELECT * FROM public.traces {condition}", *values)]


@pytest.fixture
async def traces(rem: Rem) -> Traces:
    """Return the traces of this test."""
    async with rem.database.connection() as connection:
        await connection.execute(TRACES)
    return Traces(rem)


@pytest.fixture
def jobs(rem: Rem) -> JobQueue:
    """Return the queue of the test's database."""
    return JobQueue(rem.database)


@pytest.fixture
async def no_jobs_left(jobs: JobQueue) -> AsyncIterator[None]:
    """Check that no job is queued or running at the end of the test."""
    yield
    counts = await jobs.counts()
    assert (counts["queued"], counts["running"]) == (0, 0)


async def eventually(condition: Callable[[], Awaitable[object]], seconds: float = 20.0) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while True:
        # The server may be restarting, so the condition may raise for a while.
        with suppress(Exception):
            if await condition():
                return
        assert time.monotonic() < deadline, "the condition never became true"
        await asyncio.sleep(0.02)


async def take(sql: Any, kind: str, slots: int = 100, owner_slots: int = 100, worker: UUID | None = None) -> list[int]:
    """Return the ids of the jobs that a worker gets, in order."""
    worker = worker or uuid4()
    await sql.execute("INSERT INTO rem_jobs.workers (id) VALUES ($1) ON CONFLICT DO NOTHING", worker)
    rows = await sql.fetch("SELECT id FROM rem.rem_take_jobs($1, $2, $3, $4)", worker, [kind], slots, owner_slots)
    return [row["id"] for row in rows]
