"""The tagger finds people, organisations and places in ordinary notes, and its files are those of the manifest."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from bench.names import PARTS, load_texts, score

from rem.errors import EmbeddingMisconfiguredError
from rem.knowledge.tagger import ORGANIZATION, PERSON, PLACE, get_tagger
from rem.search.models.files import FOLDER, TAGGER, WORDS, read_file, read_manifest
from tests.rem_command import REPOSITORY
from tests.test_docs import read_example

MAX_PACKAGE_BYTES = 60_000_000


@pytest.mark.parametrize("part", PARTS)
async def test_names_in_ordinary_notes_are_found(part: str) -> None:
    figures, errors = await score(part)
    shown = errors if part == "open" else "the errors of the held-out texts are not to be read"
    assert figures["all"]["precision"] >= 0.9, shown
    assert figures[PERSON]["precision"] >= 0.92, shown
    assert figures[PERSON]["recall"] >= 0.83, shown
    assert figures[PLACE]["precision"] >= 0.9, shown


def test_labelled_texts_are_many_and_different() -> None:
    cases = [text for part in PARTS for _, text, _ in load_texts(part)]
    assert len(set(cases)) == len(cases) >= 150
    for part in PARTS:
        assert {kind for _, _, spans in load_texts(part) for _, _, kind in spans} == {PERSON, ORGANIZATION, PLACE}


async def test_names_have_offsets_and_confidence() -> None:
    text = "Yesterday I met Kasper Holm in Lisbon, and he told me that he works at Siemens."
    (names,) = await get_tagger().find_names([text])
    assert [(name.text, name.kind) for name in names] == [
        ("Kasper Holm", PERSON),
        ("Lisbon", PLACE),
        ("Siemens", ORGANIZATION),
    ]
    for name in names:
        assert text[name.start : name.end] == name.text
        assert 0.5 < name.confidence <= 1


async def test_result_depends_on_no_other_text() -> None:
    texts = ["i told priya that sarah chen wants the slides", "Ok.", "Zoë & Jörg fahren nach Köln " * 40]
    together = await get_tagger().find_names(texts)
    for text, names in zip(texts, together, strict=True):
        (alone,) = await get_tagger().find_names([text])
        assert [(name.text, name.start) for name in alone] == [(name.text, name.start) for name in names]


async def test_unusual_texts_are_read() -> None:
    texts = [
        "",
        " \n\t",
        "…!?",
        "😀" * 300,
        "a" * 5000,
        "田中さんに伝えてください。",
        "\x00\ud7ff",
        "Anna " * 3000,
    ]
    found = await get_tagger().find_names(texts)
    assert len(found) == len(texts)
    assert found[:3] == [[], [], []]
    assert len(found[-1]) > 100


def test_example_in_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(read_example(REPOSITORY / "docs" / "models.md", "tagger"), "models.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["person Kasper Holm 16 27", "place Lisbon 31 37", "organization Siemens 51 58"]


def test_files_match_the_manifest_and_are_small() -> None:
    files = read_manifest()["files"]
    assert set(files) == {path.name for path in FOLDER.iterdir() if path.suffix in (".npy", ".onnx", ".json")} - {
        "manifest.json"
    }
    for name, entry in files.items():
        content = (FOLDER / name).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (entry["sha256"], entry["bytes"])
        assert entry["licence"]
    assert sum(entry["bytes"] for entry in files.values()) < MAX_PACKAGE_BYTES


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "manifest.json", tmp_path)
    (tmp_path / TAGGER).write_bytes(b"other")
    for name, reason in ((TAGGER, "is not the file of this release"), (WORDS, "cannot be read")):
        with pytest.raises(EmbeddingMisconfiguredError, match=reason):
            read_file(name, tmp_path)


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"files": {}}', None])
def test_damaged_manifest_is_refused(tmp_path: Path, manifest: str | None) -> None:
    shutil.copy(FOLDER / TAGGER, tmp_path)
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(
        EmbeddingMisconfiguredError, match=r"manifest\.json does not name tagger\.onnx: install REM again"
    ):
        read_file(TAGGER, tmp_path)
