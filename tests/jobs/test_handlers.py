"""The handlers of REM, run by a real worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rem.app import Rem
from rem.ingest.models import FetchedFile, IngestOptions
from rem.ingest.queue import enqueue_files
from rem.jobs.handlers import HANDLERS
from rem.jobs.queue import JobQueue
from rem.jobs.worker import Worker
from rem.models import File, Resource
from rem.models.field_types import utc_now
from rem.models.file import ProcessingStatus
from rem.settings import Settings


async def work(rem: Rem, settings: Settings) -> None:
    """Do all that waits; what fails has failed."""
    once = settings.model_copy(update={"worker": settings.worker.model_copy(update={"attempts": 1})})
    await Worker(rem, once).run(once=True)


async def test_uploaded_file_is_read(rem: Rem, jobs: JobQueue, settings: Settings) -> None:
    store = rem.for_user("alice@example.com").store
    text = b"# Boats\n\nThe harbour has twelve berths.\n"
    (file,) = await enqueue_files(store, [FetchedFile("boats.md", "upload://boats.md", text)], IngestOptions())
    assert (await jobs.counts())["queued"] == 1
    await work(rem, settings)
    assert await jobs.list() == []
    assert (await store.get(File, file.id)).processing_status == ProcessingStatus.COMPLETED
    found = await rem.for_user("alice@example.com").query('SEARCH "berths in the harbour"')
    assert any("twelve berths" in str(row) for row in found.hits)


async def test_dream_all_enqueues_one_dream_per_owner(rem: Rem, jobs: JobQueue, settings: Settings) -> None:
    for user in ("alice", "bob"):
        await rem.for_user(user).store.upsert(Resource(name="Note", content="The harbour has twelve berths."))
    for _ in range(2):
        await jobs.enqueue("dream-all", {})
    await Worker(rem, settings, kinds=["dream-all"]).run(once=True)
    dreams = [(job.kind, job.user_id) for job in await jobs.list()]
    assert sorted(dreams, key=str) == [("dream", "alice"), ("dream", "bob")]
    await work(rem, settings)
    assert await jobs.list() == []


async def test_sweep_erases_expired_rows(rem: Rem, jobs: JobQueue, settings: Settings) -> None:
    store = rem.for_user("alice").store
    await store.upsert(Resource(name="Kept", content="The harbour has twelve berths."))
    await store.upsert(Resource(name="Lapsed", content="Today only.", expires_at=utc_now() - timedelta(minutes=1)))
    await jobs.enqueue("sweep", {})
    await work(rem, settings)
    async with rem.database.connection() as connection:
        names = [row["name"] for row in await connection.fetch("SELECT name FROM rem.resources")]
    assert names == ["Kept"]
    assert await jobs.list() == []


async def test_log_is_kept_for_a_week(rem: Rem, jobs: JobQueue, settings: Settings) -> None:
    for kind in ("sweep", "prune"):
        await jobs.enqueue(kind, {})
        await work(rem, settings)
        if kind == "sweep":
            async with rem.database.connection() as connection:
                await connection.execute("UPDATE rem_jobs.log SET ended_at = ended_at - interval '8 days'")
    assert [kind.kind for kind in await jobs.stats()] == ["prune"]


@pytest.mark.parametrize("kind", ["dream", "ingest"])
@pytest.mark.parametrize("payload", [{}, {"tenant_id": 7}, {"tenant_id": "acme", "user_id": 7}, {"tenant_id": ""}])
async def test_job_without_owner_is_dead(
    rem: Rem, jobs: JobQueue, settings: Settings, kind: str, payload: dict[str, object]
) -> None:
    await jobs.enqueue(kind, payload)
    await work(rem, settings)
    (dead,) = await jobs.list(state="dead")
    assert dead.error is not None
    assert dead.error.kind == "InvalidInputError"
    assert dead.attempts == 1


def test_every_kind_has_a_handler() -> None:
    assert set(HANDLERS) == {"dream", "dream-all", "ingest", "prune", "sweep"}
