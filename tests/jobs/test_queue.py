"""JobQueue: jobs are queued once, have an owner, and can be listed and cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rem.app import Rem
from rem.errors import InvalidInputError, NotFoundError
from rem.jobs.queue import JobQueue
from tests.conftest import settings_for
from tests.jobs.conftest import take

ALICE = {"tenant_id": "acme", "user_id": "alice"}
BOB = {"tenant_id": "acme", "user_id": "bob"}


async def test_queued_job_has_all_its_data(jobs: JobQueue) -> None:
    job_id = await jobs.enqueue("ingest", {**ALICE, "file": "Überblick\0.pdf"}, priority=7)
    assert job_id is not None
    job = await jobs.get(job_id)
    assert (job.kind, job.state, job.priority, job.attempts, job.error) == ("ingest", "queued", 7, 0, None)
    assert (job.tenant_id, job.user_id) == ("acme", "alice")
    assert job.payload == {**ALICE, "file": "Überblick\0.pdf"}
    assert await jobs.counts() == {"queued": 1, "running": 0, "dead": 0}


async def test_job_can_be_delayed(jobs: JobQueue) -> None:
    job_id = await jobs.enqueue("dream", ALICE, delay=timedelta(hours=1))
    assert job_id is not None
    assert (await jobs.get(job_id)).due_at > datetime.now(UTC) + timedelta(minutes=59)


async def test_equal_jobs_are_queued_once(jobs: JobQueue) -> None:
    assert await jobs.enqueue("dream", ALICE, dedupe="nightly") is not None
    assert await jobs.enqueue("dream", ALICE, dedupe="nightly") is None
    # Another owner's, another kind, another key, and none at all are not equal.
    assert await jobs.enqueue("dream", BOB, dedupe="nightly") is not None
    assert await jobs.enqueue("sweep", ALICE, dedupe="nightly") is not None
    assert await jobs.enqueue("dream", ALICE, dedupe="now") is not None
    assert await jobs.enqueue("dream", ALICE) is not None
    assert await jobs.enqueue("dream", ALICE, dedupe="x" * 10_000) is not None
    assert await jobs.enqueue("dream", ALICE, dedupe="x" * 10_000) is None
    assert (await jobs.counts())["queued"] == 6


async def test_one_of_many_concurrent_callers_enqueues_the_job(jobs: JobQueue) -> None:
    ids = await asyncio.gather(*(jobs.enqueue("dream", ALICE, dedupe="nightly") for _ in range(20)))
    assert sum(job_id is not None for job_id in ids) == 1


async def test_equal_job_waits_for_the_running_one(jobs: JobQueue, sql: Any) -> None:
    running = await jobs.enqueue("dream", ALICE, dedupe="nightly")
    await sql.execute("UPDATE rem_jobs.jobs SET state = 'running', worker = gen_random_uuid()")
    second = await jobs.enqueue("dream", ALICE, dedupe="nightly")
    assert second is not None
    assert second != running
    assert await jobs.enqueue("dream", ALICE, dedupe="nightly") is None


async def test_equal_job_does_not_start_before_the_caller_has_stored_its_change(
    rem: Rem, jobs: JobQueue, sql: Any
) -> None:
    """It would miss what this caller stores, and nothing would run for this caller."""
    waiting = await jobs.enqueue("ingest", ALICE, dedupe="file")
    async with rem.database.transaction() as transaction, transaction.connection() as connection:
        assert await jobs.enqueue("ingest", ALICE, dedupe="file", connection=connection) is None
        assert await take(sql, "ingest") == []
    assert await take(sql, "ingest") == [waiting]


async def test_job_is_part_of_the_callers_transaction(rem: Rem, jobs: JobQueue) -> None:
    with pytest.raises(KeyError):
        async with rem.database.transaction() as transaction, transaction.connection() as connection:
            assert await jobs.enqueue("ingest", ALICE, connection=connection) is not None
            raise KeyError
    assert (await jobs.counts())["queued"] == 0
    async with rem.database.transaction() as transaction, transaction.connection() as connection:
        await jobs.enqueue("ingest", ALICE, connection=connection)
        assert (await jobs.counts())["queued"] == 0
    assert (await jobs.counts())["queued"] == 1


async def test_connection_of_another_pool_works(jobs: JobQueue, sql: Any) -> None:
    assert await jobs.enqueue("ingest", ALICE, connection=sql) is not None


@pytest.mark.parametrize(
    ("kind", "payload", "message"),
    [
        ("", {}, "not a valid kind of job"),
        ("Dream All", {}, "not a valid kind of job"),
        ("ingest", {"file": object()}, "must be JSON"),
        ("ingest", {"text": "x" * 1_000_001}, "at most 1 MB"),
    ],
)
async def test_invalid_job_is_rejected(jobs: JobQueue, kind: str, payload: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        await jobs.enqueue(kind, payload)


async def test_jobs_are_listed_by_state_and_kind(jobs: JobQueue, sql: Any) -> None:
    first, second, third = [await jobs.enqueue(kind, ALICE) for kind in ("ingest", "dream", "dream")]
    await sql.execute("UPDATE rem_jobs.jobs SET state = 'dead' WHERE id = $1", second)
    assert [job.id for job in await jobs.list()] == [third, second, first]
    assert [job.id for job in await jobs.list(state="dead")] == [second]
    assert [job.id for job in await jobs.list(state="queued", kind="dream")] == [third]
    assert [job.id for job in await jobs.list(limit=1)] == [third]
    counts = {kind.kind: (kind.queued, kind.dead) for kind in await jobs.stats()}
    assert counts == {"dream": (1, 1), "ingest": (1, 0)}


async def test_dead_jobs_are_retried_even_if_an_equal_one_is_queued(jobs: JobQueue, sql: Any) -> None:
    async def die() -> int | None:
        job_id = await jobs.enqueue("dream", ALICE, dedupe="nightly")
        await sql.execute("UPDATE rem_jobs.jobs SET state = 'dead', attempts = 5 WHERE id = $1", job_id)
        return job_id

    first, second, third = [await die() for _ in range(3)]
    assert first is not None
    waiting = await jobs.enqueue("dream", ALICE, dedupe="nightly")
    assert await jobs.retry([first, waiting or 0, 2**70, -1]) == [first]
    assert (await jobs.get(first)).attempts == 0
    assert await jobs.retry() == [second, third]
    assert await jobs.retry() == []
    assert (await jobs.counts())["queued"] == 4


async def test_cancelled_job_is_removed(jobs: JobQueue) -> None:
    job_id = await jobs.enqueue("ingest", ALICE)
    assert job_id is not None
    assert await jobs.cancel([job_id, job_id + 1, 2**70]) == [job_id]
    with pytest.raises(NotFoundError, match="rem jobs list"):
        await jobs.get(job_id)


async def test_erasing_an_owner_leaves_no_jobs(jobs: JobQueue, sql: Any) -> None:
    mine = [await jobs.enqueue("ingest", {**ALICE, "text": "private"}, dedupe=name) for name in ("a", "b", "c")]
    await sql.execute("UPDATE rem_jobs.jobs SET state = 'dead' WHERE id = $1", mine[1])
    elsewhere = {"tenant_id": "other", "user_id": "alice"}
    others = [await jobs.enqueue("ingest", BOB), await jobs.enqueue("ingest", elsewhere)]
    shared = await jobs.enqueue("ingest", {"tenant_id": "acme"})
    assert await jobs.erase_owner("acme", "alice") == 3
    assert await jobs.erase_owner("acme", "alice") == 0
    for table in ("jobs", "turns", "log", "schedules", "workers"):
        rows = await sql.fetch(f"SELECT row_to_json(t)::text FROM rem_jobs.{table} t")
        assert not any("alice" in row[0] and "acme" in row[0] for row in rows)
    assert not await sql.fetch("SELECT FROM rem_jobs.log WHERE job_id = ANY ($1)", mine)
    assert {job.id for job in await jobs.list()} == {*others, shared}
    assert await jobs.erase_owner("acme", None) == 1


async def test_sql_verb_has_no_access_to_jobs(rem: Rem, jobs: JobQueue) -> None:
    await jobs.enqueue("ingest", {"tenant_id": "default", "user_id": "bob", "text": "private"})
    for table in ("rem_jobs.jobs", "rem_jobs.turns", "rem_jobs.log"):
        with pytest.raises(InvalidInputError):
            await rem.for_user("alice").query(f"SQL SELECT * FROM {table}")
    async with rem.database.connection() as connection:
        role = await connection.fetchval("SELECT role_name FROM rem.sql_access")
        assert role is not None
        assert not await connection.fetchval("SELECT has_schema_privilege($1::text, 'rem_jobs', 'USAGE')", role)


async def test_enqueue_does_not_import_the_worker(dsn: str) -> None:
    probe = """
import asyncio, sys
from rem.app import Rem
from rem.jobs.queue import JobQueue
from tests.jobs.conftest import take
import rem.cli.main
async def main():
    async with Rem.open() as rem:
        assert await JobQueue(rem.database).enqueue("ingest", {}) is not None
asyncio.run(main())
print(sorted({"rem.jobs.worker", "croniter"} & set(sys.modules)))
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", probe],
        env={"POSTGRES__CONNECTION_STRING": dsn},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


async def test_migrating_down_removes_the_jobs(dsn: str) -> None:
    from rem.db.database import Database, migrate_schema
    from rem.db.migrator import Migrator, builtin_migrations
    from rem.db.preflight import read_server_info

    settings = settings_for(dsn)
    async with Database(settings).unpooled_connection() as connection:
        await Migrator(connection).rollback(len(builtin_migrations()))
        assert await connection.fetchval("SELECT to_regnamespace('rem_jobs')") is None
        await migrate_schema(connection, settings, await read_server_info(connection))
    async with Rem.open(settings) as rem:
        assert await JobQueue(rem.database).enqueue("ingest", {}) is not None
