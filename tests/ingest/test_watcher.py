"""Rem.watch: a folder and the memory are kept in step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.ingest.models import IngestReport
from rem.models import File, Resource

ALICE = "alice@example.com"
PATIENCE_SECONDS = 30


class Reports:
    """The reports of a watcher that runs in the background."""

    def __init__(self, reports: AsyncIterator[IngestReport]) -> None:
        self._reports = reports

    async def next_report(self) -> IngestReport:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await anext(self._reports)

    async def next(self) -> list[tuple[str, str]]:
        """Return the status and name of each file in the next report."""
        report = await self.next_report()
        return sorted((file.status, file.name) for file in report.files)


@asynccontextmanager
async def watching(rem: Rem, *places: Path) -> AsyncIterator[Reports]:
    reports = rem.for_user(ALICE).watch(*places)
    try:
        yield Reports(reports)
    finally:
        await reports.aclose()  # type: ignore[attr-defined]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Return a folder with one note."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# Note a\n\nText.\n", encoding="utf-8")
    return folder


async def contents(store: Store) -> dict[str, str]:
    return {row.name: row.content for row in await store.find(Resource)}


async def test_new_changed_and_removed_files_are_followed(rem: Rem, notes: Path, alice: Store) -> None:
    async with watching(rem, notes) as reports:
        assert await reports.next() == [("added", "notes/a.md")]
        (notes / "b.md").write_text("# Note b\n\nText.\n", encoding="utf-8")
        (notes / "a.md").write_text("# Note a\n\nBetter.\n", encoding="utf-8")
        assert await reports.next() == [("added", "notes/b.md"), ("changed", "notes/a.md")]
        assert await contents(alice) == {"notes/a.md#1": "# Note a\n\nBetter.", "notes/b.md#1": "# Note b\n\nText."}
        (notes / "b.md").unlink()
        assert await reports.next() == [("removed", "notes/b.md")]
        assert not await alice.lookup("Note b")
        # It is there again: unlike a file that its owner deleted, it comes back.
        (notes / "b.md").write_text("# Note b\n\nText.\n", encoding="utf-8")
        assert await reports.next() == [("added", "notes/b.md")]
        assert len(await alice.lookup("Note b")) == 1


async def test_files_removed_while_nobody_watched_are_removed_at_the_start(
    rem: Rem, notes: Path, tmp_path: Path, alice: Store
) -> None:
    (notes / "b.md").write_text("# Note b\n", encoding="utf-8")
    other = tmp_path / "notes-2"
    other.mkdir()
    (other / "c.md").write_text("# Note c\n", encoding="utf-8")
    await rem.for_user(ALICE).ingest(notes, other)
    for path in (notes / "b.md", other / "c.md"):
        path.unlink()
    async with watching(rem, notes) as reports:
        assert await reports.next() == [("removed", "notes/b.md"), ("unchanged", "notes/a.md")]
    # Another folder with a similar name is none of its business.
    assert await alice.lookup("Note c")


async def test_missing_folder_keeps_its_files(rem: Rem, notes: Path, alice: Store) -> None:
    async with watching(rem, notes) as reports:
        await reports.next()
        away = notes.rename(notes.with_name("unmounted"))
        waiting = asyncio.create_task(reports.next())
        await asyncio.sleep(3)
        assert await alice.lookup("Note a")
        away.rename(notes)
        (notes / "b.md").write_text("# Note b\n", encoding="utf-8")
        assert await waiting == [("added", "notes/b.md")]


async def test_emptied_folder_keeps_its_files(rem: Rem, notes: Path, tmp_path: Path, alice: Store) -> None:
    for name in "bcd":
        (notes / f"{name}.md").write_text(f"# Note {name}\n", encoding="utf-8")
    disk = tmp_path / "disk"
    async with watching(rem, notes) as reports:
        await reports.next()
        notes.rename(disk)
        notes.mkdir()
        report = await reports.next_report()
        assert (report.files, len(report.notes)) == ([], 1)
        assert "Its 4 files stay in memory" in report.notes[0]
        # A file in the place of the disk does not mean that the others were removed.
        (notes / "e.md").write_text("# Note e\n", encoding="utf-8")
        assert await reports.next() == [("added", "notes/e.md")]
        (notes / "e.md").unlink()
        assert await reports.next() == [("removed", "notes/e.md")]
        assert len(await alice.lookup("Note a", "Note b", "Note c", "Note d")) == 4
        # The disk is there again: its files are watched as before.
        notes.rmdir()
        disk.rename(notes)
        assert [status for status, _ in await reports.next()] == ["unchanged"] * 4
        (notes / "b.md").unlink()
        assert await reports.next() == [("removed", "notes/b.md")]


async def test_folder_that_is_empty_at_the_start_keeps_its_files(
    rem: Rem, notes: Path, tmp_path: Path, alice: Store
) -> None:
    for name in "bcd":
        (notes / f"{name}.md").write_text(f"# Note {name}\n", encoding="utf-8")
    await rem.for_user(ALICE).ingest(notes)
    notes.rename(tmp_path / "disk")
    notes.mkdir()
    async with watching(rem, notes) as reports:
        report = await reports.next_report()
    assert (report.files, len(report.notes)) == ([], 1)
    assert len(await alice.lookup("Note a", "Note b", "Note c", "Note d")) == 4


async def test_files_that_are_all_moved_to_a_subfolder_are_followed(rem: Rem, notes: Path) -> None:
    for name in "bcd":
        (notes / f"{name}.md").write_text(f"# Note {name}\n", encoding="utf-8")
    async with watching(rem, notes) as reports:
        await reports.next()
        away = notes.with_name("away")
        away.mkdir()
        for name in "abcd":
            (notes / f"{name}.md").rename(away / f"{name}.md")
        away.rename(notes / "2026")
        found: list[str] = []
        while len(found) < 8:
            found += [status for status, _ in await reports.next()]
        assert sorted(found) == ["added"] * 4 + ["removed"] * 4


async def test_deleted_by_its_owner_stays_deleted(rem: Rem, notes: Path, alice: Store) -> None:
    async with watching(rem, notes) as reports:
        await reports.next()
        (file,) = await alice.lookup("Note a")
        await alice.delete(file)
        (notes / "a.md").write_text("# Note a\n\nAgain.\n", encoding="utf-8")
        assert await reports.next() == [("deleted", "notes/a.md")]
    # The same if it had been removed and restored before.
    assert (await rem.for_user(ALICE).ingest(notes)).counts == {"deleted": 1}
    await alice.restore(File, file.id)
    async with watching(rem, notes) as reports:
        await reports.next()
        (notes / "a.md").unlink()
        assert await reports.next() == [("removed", "notes/a.md")]
    await alice.restore(File, file.id)
    await alice.delete(file)
    (notes / "a.md").write_text("# Note a\n\nOnce more.\n", encoding="utf-8")
    assert (await rem.for_user(ALICE).ingest(notes)).counts == {"deleted": 1}


@pytest.mark.parametrize("place", ["https://example.com/", "s3://bucket/", "/no/such/folder"])
async def test_only_existing_local_places_can_be_watched(rem: Rem, place: str) -> None:
    with pytest.raises(InvalidInputError, match="watch"):
        await anext(rem.for_user(ALICE).watch(place))
