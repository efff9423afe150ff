"""Measure jobs per second and latency with 1, 2 and 4 worker processes, compared with a loop over a plain table."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from bench.measure import Result, median, print_progress
from rem import Rem, Settings
from rem.db.sql import query
from rem.jobs.handlers import HandlerContext, Payload
from rem.jobs.queue import JobQueue

JOBS = 3000
WORKERS = (1, 2, 4)
_LATENCIES = 200
_REPEATS = 3
_PAUSE_SECONDS = 0.01
_KIND = "nothing"
_PUT = "WITH put AS (INSERT INTO rem.bare_jobs (payload) VALUES ('{}')) SELECT pg_notify('bare_jobs', '')"
_WAITING = """
INSERT INTO rem_jobs.jobs (kind, tenant_id, user_id)
SELECT 'nothing', 'default', CASE WHEN number > $1 THEN 'user-' || number ELSE 'busy' END
FROM generate_series(1, $1::integer + $2::integer) AS number
"""
_TAKE = """
DELETE FROM rem.bare_jobs WHERE id = (SELECT id FROM rem.bare_jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING payload
"""


async def run(settings: Settings, jobs: int = JOBS, latencies: int = _LATENCIES) -> Result:
    """Process the same number of jobs in every way, several times in turn."""
    result = Result("jobs")
    async with Rem.open(settings) as rem:
        await _make_bare_table(rem)
        bare_rate, bare_wait = [], []
        rates: dict[int, list[float]] = {number: [] for number in WORKERS}
        waits: dict[int, list[float]] = {number: [] for number in WORKERS}
        for _ in range(_REPEATS):
            bare_rate.append(await _bare_rate(rem, jobs))
            bare_wait += await _bare_waits(rem, latencies)
            for number in WORKERS:
                rate, waited = await _measure(rem, settings, number, jobs, latencies)
                rates[number].append(rate)
                waits[number] += waited
                print_progress(f"{number} workers: {rate:,.0f} jobs/s, p50 {median(waited) * 1000:.1f} ms")
        few, many = await _turn_seconds(rem, 10, 10), await _turn_seconds(rem, 100_000, 10_000)
        await rem.database.pool.execute("DROP TABLE rem.bare_jobs")
    result.figures = {"jobs": jobs, "bare_jobs_per_second": round(median(bare_rate)), **_spread("bare", bare_wait)}
    for number in WORKERS:
        result.figures[f"workers_{number}_jobs_per_second"] = round(median(rates[number]))
        result.figures |= _spread(f"workers_{number}", waits[number])
    result.figures |= {
        "turn_p50_ms": round(median(few) * 1000, 2),
        "turn_of_10000_owners_p50_ms": round(median(many) * 1000, 2),
    }
    result.check("the choice of a job among 110,000 of 10,000 owners against 20 of 10", median(many) / median(few), 3.0)
    result.check("a bare loop's jobs per second against one worker's", median(bare_rate) / median(rates[1]), 2.0)
    result.check("latency of one worker against a bare listener", median(waits[1]) / median(bare_wait), 4.0)
    result.check("jobs per second of one worker against four", median(rates[1]) / median(rates[4]), 1.0)
    return result


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    return {
        f"{name}_latency_p50_ms": round(median(seconds) * 1000, 2),
        f"{name}_latency_p95_ms": round(statistics.quantiles(seconds, n=20)[-1] * 1000, 2),
    }


async def _make_bare_table(rem: Rem) -> None:
    await rem.database.pool.execute("DROP TABLE IF EXISTS rem.bare_jobs")
    await rem.database.pool.execute("CREATE TABLE rem.bare_jobs (id bigserial PRIMARY KEY, payload bytea)")


async def _bare_rate(rem: Rem, jobs: int) -> float:
    async with rem.database.connection() as connection:
        await connection.execute(
            "INSERT INTO rem.bare_jobs (payload) SELECT '{}'::bytea FROM generate_series(1, $1)", jobs
        )
        started = time.perf_counter()
        while await connection.fetchval(_TAKE) is not None:
            pass
        return jobs / (time.perf_counter() - started)


async def _bare_waits(rem: Rem, latencies: int) -> list[float]:
    """Return the seconds from before each INSERT until a listener has the row."""
    waits: list[float] = []
    async with rem.database.unpooled_connection() as listener, rem.database.connection() as connection:
        woken: asyncio.Queue[None] = asyncio.Queue()

        def wake(*_notification: object) -> None:
            woken.put_nowait(None)

        await listener.add_listener("bare_jobs", wake)
        for _ in range(latencies):
            started = time.time()
            await connection.execute(_PUT)
            await woken.get()
            await listener.fetchval(_TAKE)
            waits.append(time.time() - started)
            await asyncio.sleep(_PAUSE_SECONDS)
        await listener.remove_listener("bare_jobs", wake)
    return waits


async def _measure(rem: Rem, settings: Settings, number: int, count: int, latencies: int) -> tuple[float, list[float]]:
    jobs = JobQueue(rem.database)
    async with _workers(settings, number) as workers:
        async with rem.database.transaction() as transaction, transaction.connection() as connection:
            for _ in range(count):
                await jobs.enqueue(_KIND, {}, connection=connection)
        started = time.perf_counter()
        await _until_empty(rem)
        rate = count / (time.perf_counter() - started)
        await asyncio.sleep(0.5)
        for _ in range(latencies):
            await jobs.enqueue(_KIND, {"at": time.time()})
            await asyncio.sleep(_PAUSE_SECONDS)
        await _until_empty(rem)
        waits = []
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            output, _ = await worker.communicate()
            waits += json.loads(output)
    assert len(waits) == latencies
    return rate, waits


async def _turn_seconds(rem: Rem, jobs: int, owners: int) -> list[float]:
    """Return the seconds of each choice of a job, if one owner has many jobs and other owners have one each."""
    worker, seconds = uuid4(), []
    async with rem.database.connection() as connection:
        await connection.execute(_WAITING, jobs, owners)
        await connection.execute("ANALYZE rem_jobs.jobs, rem_jobs.turns")
        await connection.execute("INSERT INTO rem_jobs.workers (id) VALUES ($1)", worker)
        for _ in range(10 + min(jobs, _LATENCIES)):
            started = time.perf_counter()
            (row,) = await connection.fetch(query("jobs/jobs", "take"), worker, [_KIND], 1, 1)
            seconds.append(time.perf_counter() - started)
            await connection.execute("DELETE FROM rem_jobs.jobs WHERE id = $1", row["id"])
        await connection.execute("TRUNCATE rem_jobs.jobs, rem_jobs.turns, rem_jobs.workers")
    return seconds[10:]


async def _until_empty(rem: Rem) -> None:
    async with rem.database.connection() as connection:
        while await connection.fetchval("SELECT EXISTS (SELECT FROM rem_jobs.jobs)"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _workers(settings: Settings, number: int) -> AsyncIterator[list[Process]]:
    environment = {**os.environ, "REM_HOME": str(settings.rem_home), "WORKER__CONCURRENCY": "10"}
    command = (sys.executable, "-m", "bench.jobs")
    started = [await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE) for _ in range(number)]
    try:
        for worker in started:
            assert worker.stdout is not None
            assert await worker.stdout.readline() == b"ready\n"
        yield started
    finally:
        for worker in started:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


async def _work() -> None:
    """Run one worker process whose handler does nothing, and print how long each job with a start time waited."""
    from loguru import logger

    from rem.jobs.worker import Worker
    from rem.settings import get_settings

    logger.remove()
    waits: list[float] = []

    async def nothing(_work: HandlerContext, payload: Payload) -> None:
        if "at" in payload:
            waits.append(time.time() - payload["at"])

    async with Rem.open() as rem:
        worker = Worker(rem, get_settings(), handlers={_KIND: nothing}, schedules={})
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        asyncio.get_running_loop().call_later(0.3, lambda: print("ready", flush=True))
        await worker.run()
    print(json.dumps(waits))


if __name__ == "__main__":
    asyncio.run(_work())
