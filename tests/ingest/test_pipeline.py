"""Rem.ingest: files, folders and URLs are ingested, indexed and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from rem.app import Rem
from rem.errors import InvalidInputError
from rem.ingest.models import FileOutcome
from rem.models import Resource
from rem.settings import EmbeddingSettings, Settings
from tests.ingest.helpers import PAGE

ALICE = "alice@example.com"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Return a folder with two readable files and a binary one."""
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "guide.md").write_text(PAGE, encoding="utf-8")
    (folder / "deep" / "note.txt").write_text("Call Bob about the harbour.", encoding="utf-8")
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 20)
    return folder


async def test_folder_is_ingested_indexed_and_reported(rem: Rem, docs: Path) -> None:
    calls: list[tuple[str, int]] = []

    def on_file(outcome: FileOutcome, total: int) -> None:
        calls.append((outcome.name, total))

    report = await rem.for_user(ALICE).ingest(docs, str(docs / "missing.md"), tags=["team"], on_file=on_file)
    assert report.counts == {"added": 2, "failed": 2}
    assert report.chunks == 4
    assert calls == [("docs/binary.txt", 4), ("docs/deep/note.txt", 4), ("docs/guide.md", 4), (calls[-1][0], 4)]
    assert report.index_error is None
    assert (await rem.index_backlog()).rows == 0
    hits = await rem.for_user(ALICE).query('SEARCH "who should be called" LIMIT 1')
    assert hits.hits[0].key == "docs/deep/note.txt#1"


async def test_without_recursive_subfolders_are_skipped(rem: Rem, docs: Path) -> None:
    report = await rem.for_user(ALICE).ingest(docs, recursive=False)
    assert {file.name for file in report.files} == {"docs/guide.md", "docs/binary.txt"}


async def test_failing_embedder_is_reported_and_all_files_are_stored(settings: Settings, docs: Path) -> None:
    closed_port = EmbeddingSettings(provider="ollama", base_url="http://127.0.0.1:9", max_retries=0)
    async with Rem.open(settings.model_copy(update={"embedding": closed_port})) as rem:
        report = await rem.for_user(ALICE).ingest(docs)
        assert report.counts["added"] == 2
        assert "127.0.0.1:9" in str(report.index_error)
        assert len(await rem.for_user(ALICE).store.find(Resource)) == report.chunks


async def test_invalid_arguments_are_reported(rem: Rem, docs: Path) -> None:
    with pytest.raises(InvalidInputError, match="one of resource, ontology, schema, not 'bogus'"):
        await rem.for_user(ALICE).ingest(docs, form="bogus")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="Tags are a list"):
        await rem.for_user(ALICE).ingest(docs, tags="team")


async def test_path_that_is_no_text_fails_alone(rem: Rem, docs: Path) -> None:
    report = await rem.for_user(ALICE).ingest("\ud800", docs / "guide.md")
    assert report.counts == {"added": 1, "failed": 1}
    assert "is not a valid path" in str(report.files[-1].error)
