"""Ingest runs: what a run added can be erased, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from rem.app import Rem
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.models import File, Resource

ALICE = "alice@example.com"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Return a folder with three notes."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.md").write_text(f"# Note {name}\n\nText of {name}.\n", encoding="utf-8")
    return folder


async def ingest(rem: Rem, *places: Path, user: str = ALICE) -> str:
    run = (await rem.for_user(user).ingest(*places)).run
    assert run is not None
    return run


async def names(store: Store) -> list[str]:
    return [file.name for file in await store.find(File, order_by="name")]


async def test_undo_erases_what_the_run_added(rem: Rem, notes: Path, alice: Store) -> None:
    first = await ingest(rem, notes / "a.md")
    second = await ingest(rem, notes)
    # A file that is ingested alone has another name, but the same address: it is the same file.
    assert await names(alice) == ["a.md", "notes/b.md", "notes/c.md"]
    report = await rem.for_user(ALICE).undo_ingest(second)
    assert report.erased == ["notes/b.md", "notes/c.md"]
    assert [report.kept_changed, report.kept_updated, report.kept_deleted] == [[], [], []]
    assert await names(alice) == ["a.md"]
    assert {row.name for row in await alice.find(Resource, with_deleted=True)} == {"a.md#1"}
    assert not await alice.lookup("Note b")
    assert (await check_mirrors(rem.database)).is_exact
    runs = await rem.for_user(ALICE).list_ingest_runs()
    assert [(run.id, run.is_undone, run.added, run.names) for run in runs] == [
        (second, True, 0, []),
        (first, False, 1, ["a.md"]),
    ]


async def test_run_without_changes_is_not_recorded(rem: Rem, notes: Path) -> None:
    await ingest(rem, notes)
    report = await rem.for_user(ALICE).ingest(notes)
    assert report.run is None
    assert len(await rem.for_user(ALICE).list_ingest_runs()) == 1


async def test_files_that_existed_before_stay_and_are_named(rem: Rem, notes: Path, alice: Store) -> None:
    await ingest(rem, notes / "a.md")
    (notes / "a.md").write_text("# Note a\n\nNew text.\n", encoding="utf-8")
    second = await ingest(rem, notes)
    report = await rem.for_user(ALICE).undo_ingest(second)
    assert report.kept_updated == ["a.md"]
    assert report.erased == ["notes/b.md", "notes/c.md"]
    (chunk,) = await alice.find(Resource)
    assert "New text" in chunk.content


async def test_files_that_changed_since_stay(rem: Rem, notes: Path, alice: Store) -> None:
    run = await ingest(rem, notes)
    (notes / "a.md").write_text("# Note a\n\nMuch better.\n", encoding="utf-8")
    await ingest(rem, notes)
    (chunk,) = await alice.lookup("notes/b.md#1")
    assert isinstance(chunk, Resource)
    chunk.content = "Edited by hand."
    await alice.upsert(chunk)
    (file,) = await alice.lookup("Note c")
    await alice.delete(file)
    report = await rem.for_user(ALICE).undo_ingest(run)
    assert (report.erased, report.kept_changed, report.kept_deleted) == (
        [],
        ["notes/a.md", "notes/b.md"],
        ["notes/c.md"],
    )
    assert await names(alice) == ["notes/a.md", "notes/b.md"]


async def test_edges_of_dreams_do_not_count_as_a_change(rem: Rem, notes: Path, alice: Store) -> None:
    run = await ingest(rem, notes / "a.md")
    (chunk,) = await alice.lookup("a.md#1")
    edge = chunk.graph_edges[0].model_copy(update={"dst": "b", "origin": "dream:affinity"})
    chunk.graph_edges = [*chunk.graph_edges, edge]
    await alice.upsert(chunk)
    assert (await rem.for_user(ALICE).undo_ingest(run)).erased == ["a.md"]


async def test_undone_files_can_be_ingested_again(rem: Rem, notes: Path, alice: Store) -> None:
    await rem.for_user(ALICE).undo_ingest(await ingest(rem, notes))
    report = await rem.for_user(ALICE).ingest(notes)
    assert report.counts == {"added": 3}
    assert await names(alice) == ["notes/a.md", "notes/b.md", "notes/c.md"]


async def test_run_is_undone_once_and_only_by_its_owner(rem: Rem, notes: Path, alice: Store) -> None:
    run = await ingest(rem, notes)
    for user in ("bob@example.com", None):
        with pytest.raises(NotFoundError, match=f"no ingest run {run}"):
            await rem.for_user(user).undo_ingest(run)
    with pytest.raises(NotFoundError):
        await rem.for_user(ALICE, tenant="other").undo_ingest(run)
    for unknown in ("00000000", "../..", "", "%"):
        with pytest.raises((NotFoundError, InvalidInputError)):
            await rem.for_user(ALICE).undo_ingest(unknown)
    assert len(await names(alice)) == 3
    await rem.for_user(ALICE).undo_ingest(run.upper())
    with pytest.raises(ConflictError, match="undone already"):
        await rem.for_user(ALICE).undo_ingest(run)


async def test_knowledge_entries_are_erased_with_their_file(rem: Rem, notes: Path, shared: Store) -> None:
    report = await rem.for_user().ingest(notes, form="ontology")
    assert await shared.lookup("Note a", table="ontologies")
    await rem.for_user().undo_ingest(str(report.run))
    assert not await shared.lookup("Note a")


async def test_erasing_a_user_erases_the_runs(rem: Rem, notes: Path) -> None:
    await ingest(rem, notes)
    report = await rem.for_user(ALICE).erase_user()
    assert report.after == 0
    assert {table.table: table.before for table in report.tables}["rem.ingest_runs"] == 1
    assert await rem.for_user(ALICE).list_ingest_runs() == []


async def test_dry_run_reports_the_same_and_stores_nothing(rem: Rem, notes: Path, alice: Store) -> None:
    await ingest(rem, notes / "a.md", notes / "b.md")
    (notes / "b.md").write_text("# Note b\n\nNew.\n", encoding="utf-8")
    (notes / "d.md").write_bytes(b"")
    (notes / "e.md").write_bytes(bytes(range(256)) * 20)
    before = [(row.name, row.updated_at) for row in await alice.find(File, order_by="name")]
    preview = await rem.for_user(ALICE).ingest(notes, dry_run=True)
    assert [(row.name, row.updated_at) for row in await alice.find(File, order_by="name")] == before
    assert preview.run is None
    report = await rem.for_user(ALICE).ingest(notes)
    assert preview.counts == report.counts == {"unchanged": 1, "changed": 1, "added": 1, "skipped": 1, "failed": 1}
    assert [(file.status, file.chunks) for file in preview.files] == [
        (file.status, file.chunks) for file in report.files
    ]


async def test_file_that_vanishes_during_a_run_is_skipped(rem: Rem, notes: Path) -> None:
    seen: list[object] = []

    def on_file(outcome: object, _total: int) -> None:
        if not seen:
            for name in ("b.md", "c.md"):
                (notes / name).unlink(missing_ok=True)
        seen.append(outcome)

    for number in range(60):
        (notes / f"a-{number:02}.md").write_text("Text.", encoding="utf-8")
    report = await rem.for_user(ALICE).ingest(notes, on_file=on_file)
    assert not report.failures
    assert report.counts == {"added": 61, "skipped": 2}
