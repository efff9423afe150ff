"""The commands `rem worker` and `rem jobs`, and the worker inside `rem serve`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from rem.cli.output import shorten
from rem.jobs.queue import JobQueue
from tests.cli.test_serve import serving
from tests.jobs.conftest import StartWorker, Traces, eventually
from tests.rem_command import REM, environment, output, rem, start_rem

ALICE = {"tenant_id": "acme", "user_id": "alice"}


@pytest.fixture
def settings_of(dsn: str) -> dict[str, str]:
    """The environment of the commands."""
    return {"POSTGRES__CONNECTION_STRING": dsn}


@pytest.fixture
async def dead(jobs: JobQueue, traces: Traces, start_worker: StartWorker) -> int:
    """A job that was set aside."""
    job_id = await jobs.enqueue("refuses", {**ALICE, "name": "locked"})
    assert job_id is not None
    start_worker(TEST_ONCE="1").wait(20)
    return job_id


async def test_rem_worker_once_empties_the_queue_and_ends(jobs: JobQueue, settings_of: dict[str, str]) -> None:
    await jobs.enqueue("prune", {})
    done = await asyncio.to_thread(rem, "worker", "--once", settings=settings_of)
    assert (done.returncode, done.stdout) == (0, "")
    assert "(prune) took" in done.stderr
    assert await jobs.list() == []


async def test_rem_worker_ends_cleanly_on_a_signal(jobs: JobQueue, settings_of: dict[str, str]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        worker = subprocess.Popen([str(REM), "worker", "--concurrency", "1"], env=environment(settings_of), stderr=-1)
        assert worker.stderr is not None
        assert b"Stop with Ctrl-C" in await asyncio.to_thread(worker.stderr.readline)
        await jobs.enqueue("prune", {})
        await eventually(lambda: _is_empty(jobs))
        worker.send_signal(number)
        assert await asyncio.to_thread(worker.wait, 10) == 0
        worker.stderr.close()


async def test_frozen_rem_worker_is_replaced(jobs: JobQueue, settings_of: dict[str, str]) -> None:
    settings = {**settings_of, "WORKER__HEARTBEAT_SECONDS": "3"}
    worker = start_rem("worker", settings=settings, stderr=subprocess.PIPE)
    try:
        assert worker.stderr is not None
        assert "Stop with Ctrl-C" in await asyncio.to_thread(worker.stderr.readline)
        await jobs.enqueue("prune", {})
        await eventually(lambda: _is_empty(jobs))
        (first,) = psutil.Process(worker.pid).children()
        first.suspend()
        await jobs.enqueue("prune", {})
        await eventually(lambda: _is_empty(jobs), 180)
        (second,) = psutil.Process(worker.pid).children()
        assert second.pid != first.pid
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 60) == 0
    finally:
        worker.kill_with_children() if worker.poll() is None else None
        assert worker.stderr is not None
        worker.stderr.close()


async def test_rem_worker_processes_only_the_given_kinds(jobs: JobQueue, settings_of: dict[str, str]) -> None:
    refused = await asyncio.to_thread(rem, "worker", "--once", "--kinds", "prune,cooking", settings=settings_of)
    assert refused.returncode == 2
    assert "Unknown kinds of jobs: cooking. Known kinds: " in refused.stderr
    waiting = await jobs.enqueue("of-the-future", {})
    await jobs.enqueue("prune", {})
    await asyncio.to_thread(output, "worker", "--once", "--kinds", "prune", settings=settings_of)
    assert [job.id for job in await jobs.list()] == [waiting]


async def test_dead_job_is_shown_with_its_error(dead: int, settings_of: dict[str, str]) -> None:
    listed = await asyncio.to_thread(output, "jobs", "list", "--state", "dead", settings=settings_of)
    assert "refuses" in listed
    assert "encrypted" in listed
    (as_json,) = json.loads(await asyncio.to_thread(output, "jobs", "list", "--json", settings=settings_of))
    assert (as_json["id"], as_json["state"], as_json["user_id"]) == (dead, "dead", "alice")
    assert as_json["error"]["message"] == "This file is encrypted: store it without a password."
    shown = await asyncio.to_thread(output, "jobs", "show", str(dead), settings=settings_of)
    assert "error     This file is encrypted: store it without a password." in shown
    assert "worker_process.py" in shown
    assert f"rem jobs retry {dead}" in shown
    shown = await asyncio.to_thread(output, "jobs", "show", str(dead), "--json", settings=settings_of)
    assert json.loads(shown)["payload"] == {**ALICE, "name": "locked"}
    doctor = await asyncio.to_thread(rem, "doctor", settings=settings_of)
    assert "0 queued, 0 running, 1 dead: see `rem jobs list --state dead`" in doctor.stdout


async def test_dead_job_can_be_retried_or_cancelled(dead: int, jobs: JobQueue, settings_of: dict[str, str]) -> None:
    assert await asyncio.to_thread(output, "jobs", "retry", str(dead), settings=settings_of) == (
        "1 job will be retried.\n"
    )
    again = await asyncio.to_thread(rem, "jobs", "retry", str(dead), settings=settings_of)
    assert (again.returncode, again.stdout) == (3, "0 jobs will be retried.\n")
    assert f"No job with the id {dead} is dead" in again.stderr
    nothing = await asyncio.to_thread(output, "jobs", "retry", "--all", "--json", settings=settings_of)
    assert json.loads(nothing) == {"retried": []}
    assert (await jobs.get(dead)).state == "queued"
    assert await asyncio.to_thread(output, "jobs", "cancel", str(dead), settings=settings_of) == "1 job cancelled.\n"
    missing = await asyncio.to_thread(rem, "jobs", "show", str(dead), settings=settings_of)
    assert missing.returncode == 3
    assert "There is no job" in missing.stderr


def test_retry_needs_ids_or_all(settings_of: dict[str, str]) -> None:
    for arguments in ((), ("1", "--all")):
        refused = rem("jobs", "retry", *arguments, settings=settings_of)
        assert refused.returncode == 2
        assert "or --all" in refused.stderr


async def test_jobs_are_counted(jobs: JobQueue, settings_of: dict[str, str]) -> None:
    assert "There are no jobs" in await asyncio.to_thread(output, "jobs", "stats", settings=settings_of)
    assert "no queued, running or dead" in await asyncio.to_thread(output, "jobs", "list", settings=settings_of)
    await jobs.enqueue("prune", {})
    await asyncio.to_thread(output, "worker", "--once", settings=settings_of)
    await jobs.enqueue("prune", {})
    stats = json.loads(await asyncio.to_thread(output, "jobs", "stats", "--json", settings=settings_of))
    (prune,) = stats["kinds"]
    assert (prune["kind"], prune["queued"], prune["done_lately"]) == ("prune", 1, 1)
    assert "prune" in await asyncio.to_thread(output, "jobs", "stats", settings=settings_of)


def test_invalid_schedule_prevents_the_start(settings_of: dict[str, str]) -> None:
    for command in (("worker", "--once"), ("serve",)):
        refused = rem(*command, settings={**settings_of, "DREAMING__SCHEDULE": "every night"})
        assert refused.returncode == 2
        assert "DREAMING__SCHEDULE" in refused.stderr
        assert "'every night' is not a cron expression" in refused.stderr
    # A day that never comes would stop all other jobs as well.
    refused = rem("worker", "--once", settings={**settings_of, "DREAMING__SCHEDULE": "0 0 31 2 *"})
    assert (refused.returncode, "with a future time" in refused.stderr) == (2, True)
    assert rem("worker", "--once", settings={**settings_of, "DREAMING__SCHEDULE": "never"}).returncode == 0


async def test_rem_serve_processes_jobs(jobs: JobQueue, settings_of: dict[str, str]) -> None:
    with serving(settings=settings_of):
        await jobs.enqueue("prune", {})
        await eventually(lambda: _is_empty(jobs))
        schedules = {planned.kind for planned in await jobs.schedules()}
    assert "prune" in schedules


async def test_rem_serve_without_in_process_worker_leaves_jobs_queued(
    jobs: JobQueue, settings_of: dict[str, str]
) -> None:
    await jobs.enqueue("prune", {})
    with serving(settings={**settings_of, "WORKER__IN_PROCESS": "false"}):
        await asyncio.sleep(1.5)
        assert (await jobs.counts())["queued"] == 1


async def test_failing_worker_does_not_stop_the_server(jobs: JobQueue, settings_of: dict[str, str], sql: Any) -> None:
    await sql.execute("ALTER TABLE rem_jobs.jobs RENAME TO elsewhere")
    with serving(settings=settings_of) as (address, process):
        time.sleep(2)
        assert process.poll() is None
        assert httpx.get(f"{address}/health/ready").status_code == 200
        # And it goes on by itself when what was missing is there again.
        await sql.execute("ALTER TABLE rem_jobs.elsewhere RENAME TO jobs")
        await jobs.enqueue("prune", {})
        await eventually(lambda: _is_empty(jobs))


async def _is_empty(jobs: JobQueue) -> bool:
    counts = await jobs.counts()
    return counts["queued"] == counts["running"] == 0


def test_long_error_is_cut_between_words() -> None:
    assert shorten("This file is encrypted", 60) == "This file is encrypted"
    assert shorten("This file is encrypted", 12) == "This file…"
    assert shorten("https://example.com/file", 12) == "https://exa…"
