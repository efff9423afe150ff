"""The routes below /files: upload, fetch, list and delete files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.db.store import Store
from rem.errors import FetchError
from rem.ingest.ingester import Ingester, ReadResult
from rem.ingest.models import FetchedFile, FileSource, IngestOptions, Source
from rem.ingest.queue import JOB_KIND, enqueue_files, process_queued_file
from rem.jobs.queue import JobQueue
from rem.models import File, Ontology, Resource
from rem.models.file import ProcessingStatus
from rem.settings import IngestSettings, Settings, WorkerSettings
from tests.api.live_server import client, served
from tests.ingest.helpers import PAGE, contents

ALICE = "alice@example.com"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder that the server may read."""
    folder = tmp_path / "open"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(settings: Settings, folder: Path) -> Settings:
    """Return the settings of a server without a worker that may read one folder."""
    ingest = IngestSettings(paths=[folder], max_bytes=100_000)
    return settings.model_copy(update={"ingest": ingest, "worker": WorkerSettings(in_process=False)})


@pytest.fixture
async def as_alice(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """Alice's client."""
    async with served(create_app(settings)) as address, client(address, ALICE) as opened:
        yield opened


def multipart(*files: tuple[str, bytes]) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("files", (name, data, "application/octet-stream")) for name, data in files]


async def process_queue(rem: Rem) -> list[str]:
    """Process all queued files as a worker does, and return the outcomes."""
    outcomes: list[str] = []
    for job in await JobQueue(rem.database).list(kind=JOB_KIND):
        file_id, tenant = UUID(job.payload["file_id"]), job.payload["tenant_id"]
        outcome = await process_queued_file(
            rem.database, lambda scope: rem.for_user(scope).ingester(), 60, tenant, file_id
        )
        await JobQueue(rem.database).cancel([job.id])
        outcomes.append(outcome.status if outcome else "nothing")
    return outcomes


async def test_upload_is_stored_at_once_and_read_later(
    as_alice: httpx2.AsyncClient, rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    files = multipart(("guide.md", PAGE.encode()), ("../../note.txt", b"Call Bob."))
    answer = await as_alice.post("/api/v1/files", files=files, data={"category": "manual", "tags": "a, b"})
    assert answer.status_code == 202
    guide, note = answer.json()["data"]
    assert (guide["key"], guide["status"], guide["chunks"]) == ("guide.md", "pending", 0)
    assert note["uri"] == "upload:///note.txt"
    assert await sql.fetchval("SELECT count(*) FROM rem.uploads") == 2
    assert sorted(await process_queue(rem)) == ["added", "added"]
    assert await sql.fetchval("SELECT count(*) FROM rem.uploads") == 0
    now = (await as_alice.get(f"/api/v1/files/{guide['id']}")).json()
    assert (now["status"], now["chunks"], now["title"], now["tags"]) == ("completed", 3, "Guide", ["a", "b"])
    assert {row.category for row in await alice.find(Resource)} == {"manual"}
    assert (await contents(alice))["note.txt#1"] == "Call Bob."
    again = await as_alice.post("/api/v1/files", files=files)
    assert again.status_code == 200
    assert [file["status"] for file in again.json()["data"]] == ["completed", "completed"]
    assert await process_queue(rem) == []


async def test_new_version_replaces_the_old_one_when_it_is_read(
    as_alice: httpx2.AsyncClient, rem: Rem, alice: Store
) -> None:
    for text in (PAGE, "# Guide\n\nNew."):
        await as_alice.post("/api/v1/files", files=multipart(("guide.md", text.encode())))
        if text != PAGE:
            assert len(await contents(alice)) == 3
        await process_queue(rem)
    assert await contents(alice) == {"guide.md#1": "# Guide\n\nNew."}


async def test_file_keeps_its_form_unless_another_is_requested(
    as_alice: httpx2.AsyncClient, rem: Rem, alice: Store, folder: Path
) -> None:
    async def upload(text: str, **fields: str) -> list[str]:
        answer = await as_alice.post("/api/v1/files", files=multipart(("guide.md", text.encode())), data=fields)
        assert answer.status_code in (200, 202)
        return await process_queue(rem)

    assert await upload(PAGE) == ["added"]
    assert await upload(PAGE, form="ontology") == ["changed"]
    assert await upload(PAGE) == []
    assert await upload(f"{PAGE}\nMore.\n") == ["changed"]
    assert (await alice.count(Ontology), await contents(alice)) == (1, {})
    # The same while it waits.
    page = folder / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    for more in ({"form": "ontology"}, {}):
        await as_alice.post("/api/v1/files/uri", json={"uri": str(page), **more})
    await process_queue(rem)
    assert (await alice.count(Ontology), await contents(alice)) == (2, {})
    assert await upload(PAGE, form="resource") == ["changed"]
    assert (await alice.count(Ontology), len(await contents(alice))) == (1, 3)


async def test_unreadable_upload_has_an_error(
    as_alice: httpx2.AsyncClient, rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    answer = await as_alice.post("/api/v1/files", files=multipart(("bad.txt", b"\0\1\2\3" * 50)))
    file_id = answer.json()["data"][0]["id"]
    assert await process_queue(rem) == ["failed"]
    now = (await as_alice.get(f"/api/v1/files/{file_id}")).json()
    assert now["status"] == "failed"
    assert "bad.txt" in now["error"]
    assert await sql.fetchval("SELECT count(*) FROM rem.uploads") == 0
    assert await contents(alice) == {}
    listed = (await as_alice.get("/api/v1/files", params={"status": "failed"})).json()["data"]
    assert [file["id"] for file in listed] == [file_id]
    await as_alice.post("/api/v1/files", files=multipart(("bad.txt", b"Now it is text.")))
    assert await process_queue(rem) == ["added"]
    assert (await as_alice.get(f"/api/v1/files/{file_id}")).json()["error"] is None


async def test_uri_is_fetched_only_if_the_policy_allows_it(
    as_alice: httpx2.AsyncClient, rem: Rem, alice: Store, folder: Path, tmp_path: Path
) -> None:
    (folder / "guide.md").write_text(PAGE, encoding="utf-8")
    (tmp_path / "secret.md").write_text("secret", encoding="utf-8")
    answer = await as_alice.post("/api/v1/files/uri", json={"uri": str(folder / "guide.md"), "tags": ["x"]})
    assert answer.status_code == 202
    assert await process_queue(rem) == ["added"]
    assert len(await contents(alice)) == 3
    for place in (tmp_path / "secret.md", tmp_path / "missing.md", "/etc/passwd", "http://127.0.0.1:1/x", "ftp://x/y"):
        refused = await as_alice.post("/api/v1/files/uri", json={"uri": str(place)})
        assert refused.status_code == 403, refused.text
    assert await alice.count(Resource) == 3


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:1",
        "localhost",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "169.254.169.254",
        "[ff02::1]",
        "[::]",
        "[::ffff:10.0.0.1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
    ],
)
async def test_forbidden_address_is_refused_at_once(as_alice: httpx2.AsyncClient, alice: Store, host: str) -> None:
    refused = await as_alice.post("/api/v1/files/uri", json={"uri": f"http://{host}/"})
    assert refused.status_code in (400, 403), refused.text
    assert await alice.count(File) == 0


async def test_unreachable_uri_is_retried_with_an_error(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    answer = await as_alice.post("/api/v1/files/uri", json={"uri": "https://nowhere.invalid/guide.md"})
    file_id = answer.json()["id"]
    with pytest.raises(FetchError):
        await process_queue(rem)
    now = (await as_alice.get(f"/api/v1/files/{file_id}")).json()
    assert now["status"] == "pending"
    assert now["error"].endswith("REM will retry.")
    # Nobody waits for that, and it is not forgotten if the place is named again.
    body = {"uri": "https://nowhere.invalid/guide.md"}
    again = await as_alice.post("/api/v1/files/uri", json=body, params={"wait": 25})
    assert (again.status_code, again.json()["error"]) == (202, now["error"])


async def test_only_the_owner_deletes_a_file_with_its_chunks(
    as_alice: httpx2.AsyncClient, rem: Rem, alice: Store
) -> None:
    answer = await as_alice.post("/api/v1/files", files=multipart(("guide.md", PAGE.encode())))
    place = f"/api/v1/files/{answer.json()['data'][0]['id']}"
    await process_queue(rem)
    bob = {"X-User-Id": "bob@example.com"}
    assert (await as_alice.get(place, headers=bob)).status_code == 404
    assert (await as_alice.delete(place, headers=bob)).status_code == 404
    assert (await as_alice.delete(place)).status_code == 204
    assert await contents(alice) == {}
    refused = await as_alice.post("/api/v1/files", files=multipart(("guide.md", b"again"), ("other.md", b"text")))
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "deleted")
    # All or none.
    assert await alice.count(File) == 0
    assert (await as_alice.delete(place, params={"erase": True})).status_code == 204
    assert await alice.count(Resource, with_deleted=True) == 0


async def test_file_deleted_while_pending_is_not_read(
    as_alice: httpx2.AsyncClient, rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    answer = await as_alice.post("/api/v1/files", files=multipart(("guide.md", PAGE.encode())))
    await as_alice.delete(f"/api/v1/files/{answer.json()['data'][0]['id']}")
    assert await process_queue(rem) == ["nothing"]
    assert await contents(alice) == {}
    # Nor is it lost: restored, it is read; erased, nothing is left.
    row = await alice.restore(File, UUID(answer.json()["data"][0]["id"]))
    assert row.processing_status == "pending"
    assert await process_queue(rem) == ["added"]
    assert await contents(alice) != {}
    await alice.erase(row)
    answer = await as_alice.post("/api/v1/files", files=multipart(("guide.md", PAGE.encode())))
    place = f"/api/v1/files/{answer.json()['data'][0]['id']}"
    await as_alice.delete(place)
    await as_alice.delete(place, params={"erase": True})
    assert await sql.fetchval("SELECT count(*) FROM rem.uploads") == 0


async def test_uploads_keep_their_paths(as_alice: httpx2.AsyncClient, rem: Rem, alice: Store) -> None:
    answer = await as_alice.post(
        "/api/v1/files",
        files=multipart(("a/readme.md", b"# One"), ("b/../readme.md", b"# Two"), ("C:\\me\\c.md", b"# Three")),
        data={"tags": ["x, y", "z"]},
    )
    assert [file["uri"] for file in answer.json()["data"]] == [
        "upload:///a/readme.md",
        "upload:///b/readme.md",
        "upload:///c.md",
    ]
    assert await process_queue(rem) == ["added"] * 3
    assert sorted((await contents(alice)).values()) == ["# One", "# Three", "# Two"]
    assert {tuple(row.tags) for row in await alice.find(File)} == {("x", "y", "z")}
    refused = await as_alice.post("/api/v1/files", files=multipart(("a/x.md", b"# One"), ("a\\x.md", b"# Two")))
    assert refused.status_code in (400, 422)
    assert "a/x.md" in refused.json()["error"]["message"]
    assert await alice.count(File) == 3


async def test_too_large_upload_is_rejected(as_alice: httpx2.AsyncClient, alice: Store) -> None:
    for size in (100_001, 2_000_000):
        answer = await as_alice.post("/api/v1/files", files=multipart(("big.txt", b"x" * size)))
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert await alice.count(File) == 0


class InterruptedIngester(Ingester):
    """An ingester that calls a function once after it has read a file."""

    def __init__(self, rem: Rem, store: Store, callback: Callable[[], Awaitable[object]]) -> None:
        super().__init__(store, rem.settings)
        self.callbacks = [callback]

    async def read(self, source: Source, options: IngestOptions) -> ReadResult:
        """Read the file, and then call the function."""
        result = await super().read(source, options)
        if self.callbacks:
            await self.callbacks.pop()()
        return result


@pytest.mark.parametrize("comes", ["other bytes", "other options", "both"])
@pytest.mark.parametrize("is_named", [False, True])
async def test_upload_during_processing_is_read_too(
    rem: Rem, alice: Store, folder: Path, comes: str, is_named: bool
) -> None:
    path = folder / "a.md"
    uri = path.as_uri() if is_named else "upload:///a.md"

    async def enqueue(number: int, options: IngestOptions) -> File:
        data = f"# Version {number}".encode()
        path.write_bytes(data)
        file = FileSource(uri, "a.md") if is_named else FetchedFile("a.md", uri, data)
        (row,) = await enqueue_files(alice, [file], options)
        return row

    first, second = IngestOptions(tags=("one",)), IngestOptions(tags=("two",), category="manual")
    row = await enqueue(1, first)
    number, options = (1 if comes == "other options" else 2), (first if comes == "other bytes" else second)
    ingester = InterruptedIngester(rem, alice, lambda: enqueue(number, options))
    await process_queued_file(rem.database, lambda _scope: ingester, 60, "default", row.id)
    assert await contents(alice) == {"a.md#1": f"# Version {number}"}
    stored = await alice.get(File, row.id)
    assert (stored.processing_status, set(options.tags or ()) <= set(stored.tags)) == ("completed", True)
    assert {row.category for row in await alice.find(Resource)} == {options.category}
    assert "wanted" not in stored.metadata


async def test_caller_with_too_many_waiting_files_is_asked_to_wait(settings: Settings, rem: Rem, alice: Store) -> None:
    """A few hundred files of a client that waits as it is told end complete, and nobody else is refused."""
    worker = WorkerSettings(in_process=False, max_waiting=5)
    limited = settings.model_copy(update={"worker": worker})
    async with (
        served(create_app(limited)) as address,
        client(address, ALICE) as as_alice,
        client(address, "bob@example.com") as as_bob,
    ):
        for number in range(5):
            answer = await as_alice.post("/api/v1/files", files=multipart((f"{number}.md", b"Tea at five.")))
            assert answer.status_code == 202
        refused = await as_alice.post("/api/v1/files", files=multipart(("more.md", b"Tea at five.")))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) == refused.json()["error"]["details"]["retry_after"] > 0
        assert await alice.count(File) == 5
        # Something that waits already, and the files of others, are accepted.
        again = await as_alice.post("/api/v1/files", files=multipart(("4.md", b"Tea at six.")))
        assert again.status_code == 202
        other = await as_bob.post("/api/v1/files", files=multipart(("small.md", b"Tea.")))
        assert other.status_code == 202
        batch = await as_bob.post("/api/v1/files", files=multipart(*((f"{n}.md", b"Tea.") for n in range(6))))
        assert (batch.status_code, batch.json()["error"]["code"]) == (400, "invalid_input")


async def test_hundreds_of_files_end_complete_with_a_small_limit(settings: Settings, alice: Store) -> None:
    """Clients that wait as they are told lose none."""
    serving = settings.model_copy(update={"worker": WorkerSettings(in_process=True, max_waiting=5)})
    waiting = iter(range(200))
    refusals = 0

    async def upload_next(http: httpx2.AsyncClient) -> None:
        nonlocal refusals
        for number in waiting:
            files = multipart((f"{number}.md", f"Note {number}".encode()))
            while (answer := await http.post("/api/v1/files", files=files)).status_code == 429:
                refusals += 1
                await asyncio.sleep(int(answer.headers["retry-after"]) / 4)
            assert answer.status_code in (200, 202)  # 200: it is read already

    async def count_completed() -> int:
        return len(await alice.find(File, {"processing_status": ProcessingStatus.COMPLETED}, limit=500))

    async with served(create_app(serving)) as address, client(address, ALICE) as http, asyncio.timeout(300):
        await asyncio.gather(*(upload_next(http) for _ in range(12)))
        while await count_completed() < 200:  # noqa: ASYNC110  # the other side is a worker
            await asyncio.sleep(0.1)
    assert refusals > 0


async def test_server_reads_uploads_itself(settings: Settings, alice: Store) -> None:
    serving = settings.model_copy(update={"worker": WorkerSettings(in_process=True)})
    async with served(create_app(serving)) as address, client(address, ALICE) as as_alice:
        files = multipart(("guide.md", PAGE.encode()))
        answer = await as_alice.post("/api/v1/files", files=files, params={"wait": 20})
        assert answer.status_code == 200
        assert answer.json()["data"][0]["chunks"] == 3
    assert len(await contents(alice)) == 3
