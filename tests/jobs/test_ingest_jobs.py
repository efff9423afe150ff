"""No file waits for ever: whatever becomes of its job, its row says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import FetchError
from rem.ingest.models import IngestOptions
from rem.ingest.queue import QueuedFile, enqueue_files, fail_stranded_files
from rem.jobs.queue import JobQueue
from rem.models import File
from rem.settings import Settings
from rem.worker.handlers import HandlerContext
from rem.worker.worker import Worker

TEXT = b"# Boats\n\nThe harbour has twelve berths.\n"


async def handed(store: Store, name: str = "boats.md", data: bytes = TEXT) -> File:
    (file,) = await enqueue_files(store, [QueuedFile(name, f"upload:///{name}", data)], IngestOptions())
    return file


async def state(store: Store, file: File) -> tuple[str, str | None]:
    row = await store.get(File, file.id)
    return row.processing_status, row.metadata.get("error")


async def uploads(rem: Rem) -> int:
    async with rem.database.connection() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM rem.uploads"))


async def test_a_job_that_is_cancelled_fails_its_file(rem: Rem, jobs: JobQueue, alice: Store) -> None:
    file, other = await handed(alice), await handed(alice, "other.md")
    job = next(job for job in await jobs.list() if job.payload["file_id"] == str(file.id))
    await jobs.cancel([job.id])
    status, error = await state(alice, file)
    assert (status, error) == ("failed", "It was cancelled before it was read: upload it again.")
    assert await state(alice, other) == ("pending", None)
    assert await uploads(rem) == 1
    again = await handed(alice)
    assert (again.id, await state(alice, again)) == (file.id, ("pending", None))


@pytest.mark.parametrize(
    ("name", "data", "why"), [("broken.pdf", b"%PDF-1.7\nnothing", "broken.pdf"), ("e.txt", b"", "e.txt is empty")]
)
async def test_a_file_that_cannot_be_read_is_failed_and_its_job_is_done(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings, name: str, data: bytes, why: str
) -> None:
    file = await handed(alice, name, data)
    await Worker(rem, None, settings).run(once=True)
    assert await jobs.list() == []
    status, error = await state(alice, file)
    assert (status, why in str(error)) == ("failed", True), error


async def test_a_job_that_is_given_up_fails_its_file_until_it_is_tried_again(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings
) -> None:
    async def fails(_work: HandlerContext, _payload: Mapping[str, Any]) -> None:
        raise FetchError("The disk is on holiday.")

    file = await handed(alice)
    once = settings.model_copy(update={"worker": settings.worker.model_copy(update={"attempts": 1})})
    await Worker(rem, None, once, handlers={"ingest": fails}).run(once=True)
    (job,) = await jobs.list(state="dead")
    status, error = await state(alice, file)
    assert status == "failed"
    assert str(error).startswith(f"The disk is on holiday. It has used up its attempts: `rem jobs retry {job.id}`")
    await jobs.retry([job.id])
    assert await state(alice, file) == ("pending", None)
    await Worker(rem, None, once).run(once=True)
    assert await state(alice, file) == ("completed", None)
    assert await uploads(rem) == 0


async def test_a_job_whose_workers_were_killed_fails_its_file(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings
) -> None:
    file = await handed(alice)
    async with rem.database.connection() as connection:
        await connection.execute("UPDATE rem_jobs.pgqueuer SET attempts = $1", settings.worker.attempts)
    await Worker(rem, None, settings).run(once=True)
    status, error = await state(alice, file)
    assert status == "failed"
    assert "Its worker was lost" in str(error)
    await jobs.cancel([job.id for job in await jobs.list()])
    assert await uploads(rem) == 0


async def test_a_file_without_a_job_is_found_by_the_hourly_look(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings
) -> None:
    file, waiting, loaded = await handed(alice), await handed(alice, "b.md"), await alice.upsert(File(name="by hand"))
    async with rem.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            "DELETE FROM rem_jobs.pgqueuer WHERE rem.rem_ingest_job_file_id(payload) = $1", file.id
        )
    assert await fail_stranded_files(rem.database) == 0
    async with rem.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            "UPDATE rem.files SET (created_at, updated_at) = (now() - interval '3 hours', now() - interval '2 hours')"
        )
    await jobs.enqueue("prune", {})
    await Worker(rem, None, settings, kinds=["prune"]).run(once=True)
    assert await state(alice, file) == (
        "failed",
        "It was never read, and it has no job: upload it again.",
    )
    assert await state(alice, waiting) == ("pending", None)
    assert await state(alice, loaded) == ("pending", None)
    await jobs.cancel([job.id for job in await jobs.list()])
