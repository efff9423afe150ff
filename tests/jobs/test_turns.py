"""Turns: no owner delays another by more than the jobs that run, and no owner fills the queue."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from rem.app import Rem
from rem.db.sql import query
from rem.errors import InvalidInputError, QueueFullError
from rem.ingest.models import FetchedFile, IngestOptions
from rem.ingest.queue import enqueue_files
from rem.jobs.handlers import HandlerContext, Payload
from rem.jobs.queue import JobQueue
from rem.jobs.worker import Worker
from rem.models import Resource
from rem.settings import Settings, WorkerSettings
from tests.jobs.conftest import take

ALICE = {"tenant_id": "acme", "user_id": "alice"}
BOB = {"tenant_id": "acme", "user_id": "bob"}
CAROL = {"tenant_id": "acme", "user_id": "carol"}


async def put(jobs: JobQueue, owner: dict[str, str], number: int = 1, **options: Any) -> list[int]:
    ids = [await jobs.enqueue("slow", owner, **options) for _ in range(number)]
    return [job_id for job_id in ids if job_id is not None]


async def end(sql: Any, *ids: int) -> None:
    await sql.execute("DELETE FROM rem_jobs.jobs WHERE id = ANY ($1)", ids)


@pytest.mark.parametrize("slots", [1, 2, 3])
async def test_600_jobs_of_one_owner_delay_another_by_those_that_run(jobs: JobQueue, sql: Any, slots: int) -> None:
    await put(jobs, ALICE, 600)
    worker, owner_slots = uuid4(), max(1, slots - 1)
    running = await take(sql, "slow", slots, owner_slots, worker)
    assert len(running) == owner_slots
    (small,) = await put(jobs, BOB)
    if owner_slots == slots:
        await end(sql, running[0])
    assert await take(sql, "slow", 1, owner_slots, worker) == [small]


async def test_owners_take_turns(jobs: JobQueue, sql: Any) -> None:
    mine = await put(jobs, ALICE, 4)
    others = [*await put(jobs, BOB, 2), *await put(jobs, CAROL, 2)]
    taken = []
    for _ in range(8):
        (job,) = await take(sql, "slow", 1)
        taken.append(job)
        await end(sql, job)
    assert taken == [mine[0], others[0], others[2], mine[1], others[1], others[3], mine[2], mine[3]]


async def test_owner_who_comes_back_keeps_its_place(jobs: JobQueue, sql: Any) -> None:
    """One job at a time does not come before an owner who waits for longer."""
    mine = await put(jobs, ALICE, 3)
    (theirs,) = await put(jobs, BOB)
    for expected in (mine[0], theirs):
        assert await take(sql, "slow", 1) == [expected]
        await end(sql, expected)
    (theirs,) = await put(jobs, BOB)
    for expected in (mine[1], theirs, mine[2]):
        assert await take(sql, "slow", 1) == [expected]
        await end(sql, expected)


async def test_owner_with_fewest_running_jobs_is_next(jobs: JobQueue, sql: Any) -> None:
    """A long job of Alice holds a slot: the other slot is Bob's, as long as he has jobs."""
    await put(jobs, ALICE, 3)
    theirs = await put(jobs, BOB, 3)
    assert len(await take(sql, "slow", 1)) == 1
    for job in theirs:
        assert await take(sql, "slow", 1) == [job]
        await end(sql, job)


async def test_higher_priority_of_any_owner_comes_first(jobs: JobQueue, sql: Any) -> None:
    nightly = await put(jobs, ALICE, 2, priority=-1)
    theirs = await put(jobs, BOB, 2)
    assert await take(sql, "slow", 3) == [*theirs, nightly[0]]


async def test_jobs_of_the_system_are_not_limited(jobs: JobQueue, sql: Any) -> None:
    ids = [await jobs.enqueue("slow", {}) for _ in range(3)]
    assert await take(sql, "slow", 3, 1) == ids


async def test_job_that_is_delayed_takes_no_turn(jobs: JobQueue, sql: Any) -> None:
    await put(jobs, ALICE, 2, delay=timedelta(hours=1))
    (theirs,) = await put(jobs, BOB)
    assert await take(sql, "slow") == [theirs]
    await sql.execute("UPDATE rem_jobs.jobs SET due_at = now() WHERE user_id = 'alice'")
    assert len(await take(sql, "slow")) == 2
    assert await sql.fetchval("SELECT count(*) FROM rem_jobs.turns WHERE is_waiting") == 0


async def test_job_of_a_transaction_that_ends_after_the_last_one_was_taken_has_a_turn(
    rem: Rem, jobs: JobQueue, sql: Any
) -> None:
    """The worker finds the owner without jobs while another one is about to come."""
    (first,) = await put(jobs, ALICE)
    async with rem.database.transaction() as transaction, transaction.connection() as connection:
        second = await jobs.enqueue("slow", ALICE, connection=connection)
        assert await take(sql, "slow") == [first]
        assert await take(sql, "slow") == []
    assert await take(sql, "slow") == [second]


async def test_workers_take_jobs_of_many_owners_at_the_same_time(rem: Rem, jobs: JobQueue) -> None:
    """No deadlock, no job twice and none forgotten."""
    owners = [{"tenant_id": "acme", "user_id": f"user-{number}"} for number in range(10)]
    taken: list[int] = []

    async def enqueue(number: int) -> None:
        for owner in owners[number:] + owners[:number]:
            await put(jobs, owner, 3)

    async def work() -> None:
        async with rem.database.unpooled_connection() as sql:
            worker, idle = uuid4(), 0
            while idle < 20:
                ids = await take(sql, "slow", 3, 2, worker)
                runs = [len(ids) * [value] for value in (worker, "done", 0.0, 0, 0, None)]
                await sql.fetch(query("jobs/jobs", "end"), ids, *runs)
                taken.extend(ids)
                idle = 0 if ids else idle + 1
                await asyncio.sleep(0.01)

    await asyncio.gather(*(enqueue(number) for number in range(4)), *(work() for _ in range(3)))
    assert len(taken) == len(set(taken)) == 120
    assert await jobs.list() == []


def limited(settings: Settings, number: int) -> Settings:
    return settings.model_copy(update={"worker": WorkerSettings(max_waiting=number)})


async def test_owner_may_have_so_many_waiting_jobs(settings: Settings, rem: Rem) -> None:
    async with Rem.open(limited(settings, 3)) as opened:
        jobs = JobQueue(opened.database)
        ids = await put(jobs, ALICE, 2, delay=timedelta(hours=1))
        ids += await put(jobs, ALICE, 1, dedupe="same")
        with pytest.raises(QueueFullError) as refused:
            await put(jobs, ALICE)
        assert refused.value.retry_after > 0
        # One that is equal to a waiting one adds nothing. Others, and the system, have a limit of their own, or none.
        assert await put(jobs, ALICE, dedupe="same") == []
        assert len(await put(jobs, BOB)) == 1
        assert len([await jobs.enqueue("sweep", {}) for _ in range(5)]) == 5
        assert len(await put(jobs, ALICE, is_limited=False)) == 1
        await jobs.cancel(ids[:2])
        assert len(await put(jobs, ALICE)) == 1


async def test_nightly_dreams_are_not_refused(settings: Settings, rem: Rem) -> None:
    async with Rem.open(limited(settings, 1)) as opened:
        jobs = JobQueue(opened.database)
        await opened.for_user("alice").store.upsert(Resource(name="Note", content="The harbour has twelve berths."))
        await jobs.enqueue("later", {"tenant_id": "default", "user_id": "alice"})
        await jobs.enqueue("dream-all", {})
        await Worker(opened, settings, kinds=["dream-all"]).run(once=True)
        assert sorted(job.kind for job in await jobs.list()) == ["dream", "later"]


async def test_files_that_exceed_the_limit_are_all_refused(settings: Settings, rem: Rem) -> None:
    async with Rem.open(limited(settings, 3)) as opened:
        store = opened.for_user("alice").store
        files = [FetchedFile(f"{number}.md", f"upload:///{number}.md", b"Tea.") for number in range(4)]
        with pytest.raises(InvalidInputError, match="at most 3 files"):
            await enqueue_files(store, files, IngestOptions())
        await enqueue_files(store, files[:2], IngestOptions())
        with pytest.raises(QueueFullError):
            await enqueue_files(store, files[2:], IngestOptions())
        assert len(await JobQueue(opened.database).list()) == 2


async def test_long_jobs_of_one_owner_leave_a_slot_for_others(rem: Rem, jobs: JobQueue, settings: Settings) -> None:
    """Alice's long jobs run until Bob's short ones have ended."""
    running: set[str] = set()
    most = 0
    release = asyncio.Event()

    async def long(_context: HandlerContext, payload: Payload) -> None:
        nonlocal most
        running.add(payload["name"])
        most = max(most, len(running))
        await release.wait()
        running.discard(payload["name"])

    async def short(_context: HandlerContext, payload: Payload) -> None:
        if payload["name"] == "9":
            release.set()

    for number in range(5):
        await jobs.enqueue("long", {**ALICE, "name": str(number)})
    for number in range(10):
        await jobs.enqueue("short", {**BOB, "name": str(number)})
    async with asyncio.timeout(60):
        await Worker(rem, settings, handlers={"long": long, "short": short}).run(once=True)
    assert most == settings.worker.concurrency - 1
