"""The status of a file follows its job: no file stays pending without one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import uvloop

from rem.app import Rem
from rem.db.store import Store
from rem.errors import FetchError
from rem.ingest.models import FetchedFile, FileSource, IngestOptions
from rem.ingest.queue import enqueue_files, fail_stranded_files
from rem.ingest.sources.policy import FetchPolicy
from rem.jobs.handlers import MAX_IN_PROCESS_BYTES, HandlerContext, ingest
from rem.jobs.job_process import run_in_own_process
from rem.jobs.queue import JobQueue
from rem.jobs.worker import Worker
from rem.models import File
from rem.settings import IngestSettings, Settings
from tests.jobs.conftest import take

TEXT = b"# Boats\n\nThe harbour has twelve berths.\n"


async def upload(store: Store, name: str = "boats.md", data: bytes = TEXT) -> File:
    (file,) = await enqueue_files(store, [FetchedFile(name, f"upload:///{name}", data)], IngestOptions())
    return file


async def read_status(store: Store, file: File) -> tuple[str, str | None]:
    row = await store.get(File, file.id)
    return row.processing_status, row.metadata.get("error")


async def count_uploads(rem: Rem) -> int:
    async with rem.database.connection() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM rem.uploads"))


async def test_cancelled_job_fails_its_file(rem: Rem, jobs: JobQueue, alice: Store) -> None:
    file, other = await upload(alice), await upload(alice, "other.md")
    job = next(job for job in await jobs.list() if job.payload["file_id"] == str(file.id))
    await jobs.cancel([job.id])
    status, error = await read_status(alice, file)
    assert (status, error) == ("failed", "It was cancelled before it was read: upload it again.")
    assert await read_status(alice, other) == ("pending", None)
    assert await count_uploads(rem) == 1
    again = await upload(alice)
    assert (again.id, await read_status(alice, again)) == (file.id, ("pending", None))


@pytest.mark.parametrize(
    ("name", "data", "why"), [("broken.pdf", b"%PDF-1.7\nnothing", "broken.pdf"), ("e.txt", b"", "e.txt is empty")]
)
async def test_unreadable_file_fails_and_its_job_succeeds(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings, name: str, data: bytes, why: str
) -> None:
    file = await upload(alice, name, data)
    await Worker(rem, settings).run(once=True)
    assert await jobs.list() == []
    status, error = await read_status(alice, file)
    assert (status, why in str(error)) == ("failed", True), error


async def test_dead_job_fails_its_file_until_it_is_retried(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings
) -> None:
    async def fails(_work: HandlerContext, _payload: Mapping[str, Any]) -> None:
        raise FetchError("The disk is on holiday.")

    file = await upload(alice)
    once = settings.model_copy(update={"worker": settings.worker.model_copy(update={"attempts": 1})})
    await Worker(rem, once, handlers={"ingest": fails}).run(once=True)
    (job,) = await jobs.list(state="dead")
    status, error = await read_status(alice, file)
    assert status == "failed"
    assert str(error).startswith(f"The disk is on holiday. It has used up its attempts: `rem jobs retry {job.id}`")
    await jobs.retry([job.id])
    assert await read_status(alice, file) == ("pending", None)
    await Worker(rem, once).run(once=True)
    assert await read_status(alice, file) == ("completed", None)
    assert await count_uploads(rem) == 0


async def test_job_with_lost_workers_fails_its_file(rem: Rem, jobs: JobQueue, alice: Store, settings: Settings) -> None:
    file = await upload(alice)
    worker = uuid4()
    async with rem.database.connection() as connection:
        await connection.execute("UPDATE rem_jobs.jobs SET losses = 1")
        await take(connection, "ingest", worker=worker)
        await connection.execute("SELECT rem.rem_lose_worker(id, beat_at, 5, 2) FROM rem_jobs.workers")
    status, error = await read_status(alice, file)
    assert status == "failed"
    assert "ended or froze" in str(error)
    await jobs.cancel([job.id for job in await jobs.list()])
    assert await count_uploads(rem) == 0


async def test_prune_fails_files_without_a_job(rem: Rem, jobs: JobQueue, alice: Store, settings: Settings) -> None:
    file, waiting, loaded = await upload(alice), await upload(alice, "b.md"), await alice.upsert(File(name="by hand"))
    async with rem.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute("DELETE FROM rem_jobs.jobs WHERE rem.rem_ingest_job_file_id(payload) = $1", file.id)
    assert await fail_stranded_files(rem.database) == 0
    async with rem.database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(
            "UPDATE rem.files SET (created_at, updated_at) = (now() - interval '3 hours', now() - interval '2 hours')"
        )
    await jobs.enqueue("prune", {})
    await Worker(rem, settings, kinds=["prune"]).run(once=True)
    assert await read_status(alice, file) == (
        "failed",
        "It was never read, and it has no job: upload it again.",
    )
    assert await read_status(alice, waiting) == ("pending", None)
    assert await read_status(alice, loaded) == ("pending", None)
    await jobs.cancel([job.id for job in await jobs.list()])


async def test_job_is_left_to_a_server_that_may_read_the_source(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings, tmp_path: Path
) -> None:
    source = tmp_path / "boats.md"
    source.write_bytes(TEXT)
    allowed = settings.model_copy(update={"ingest": IngestSettings(paths=[tmp_path])})
    queued = [FileSource(source.as_uri(), "boats.md")]
    (file,) = await enqueue_files(alice, queued, IngestOptions(), FetchPolicy.from_settings(allowed.ingest))

    for _ in range(settings.worker.attempts + 1):
        await run_due_jobs(rem, settings)
    status, error = await read_status(alice, file)
    assert status == "pending"
    assert str(error).endswith("REM waits for a server that may read it.")
    (job,) = await jobs.list()
    assert (job.state, job.attempts) == ("queued", 0)

    await run_due_jobs(rem, allowed)
    assert await read_status(alice, file) == ("completed", None)
    assert await jobs.list() == []


async def test_source_that_its_own_server_may_not_read_fails(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings, tmp_path: Path
) -> None:
    queued = [FileSource((tmp_path / "boats.md").as_uri(), "boats.md")]
    (file,) = await enqueue_files(alice, queued, IngestOptions(), FetchPolicy.from_settings(settings.ingest))
    await run_due_jobs(rem, settings)
    assert (await read_status(alice, file))[0] == "failed"
    assert await jobs.list() == []


async def test_large_file_is_processed_in_a_process_of_its_own(
    rem: Rem, jobs: JobQueue, alice: Store, settings: Settings
) -> None:
    text = b"# Boats\n\n" + b"The harbour has twelve berths. " * 10_000
    assert len(text) > MAX_IN_PROCESS_BYTES
    file, broken = await upload(alice, data=text), await upload(alice, "broken.pdf", b"%PDF-1.7\n" + b"x" * 300_000)
    await Worker(rem, settings).run(once=True)
    assert await read_status(alice, file) == ("completed", None)
    status, error = await read_status(alice, broken)
    assert (status, "broken.pdf cannot be read as PDF" in str(error)) == ("failed", True), error
    assert await jobs.list() == []
    assert await count_uploads(rem) == 0


async def test_file_that_takes_too_long_has_failed(rem: Rem, jobs: JobQueue, alice: Store, settings: Settings) -> None:
    table = await upload(alice, "rows.csv", b"name,value\n" + b"anna,1\n" * 300_000)
    ingest = settings.ingest.model_copy(update={"process_seconds": 1.0})
    limited = settings.model_copy(update={"ingest": ingest})
    await Worker(rem, limited).run(once=True)
    status, error = await read_status(alice, table)
    assert (status, "within 1 s (INGEST__PROCESS_SECONDS)" in str(error)) == ("failed", True), error
    assert await jobs.list() == []
    assert await count_uploads(rem) == 0


async def run_due_jobs(rem: Rem, settings: Settings) -> None:
    """Run the queued jobs now, also those that wait for their next attempt."""
    async with rem.database.connection() as connection:
        await connection.execute("UPDATE rem_jobs.jobs SET due_at = now()")
    await Worker(rem, settings).run(once=True)


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_interrupted_file_process_leaves_no_open_pipe(settings: Settings, seconds: float) -> None:
    """The server's event loop could not be closed otherwise, and `rem serve` ended with an error."""

    async def interrupt_twice() -> None:
        running = asyncio.create_task(run_in_own_process(settings, ingest, {}))
        await asyncio.sleep(seconds)
        for _ in range(2):
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(interrupt_twice())
