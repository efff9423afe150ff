"""LOOKUP of a file returns its text, from its chunks in order."""

from __future__ import annotations

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.ingest.models import FetchedFile
from rem.models import File, Resource
from rem.query.file_text import MAX_FILE_TEXT_CHARS, read_file_texts
from rem.query.tree import Lookup

ALICE = "alice@example.com"
TEXT = (
    "# Guide\n\nHello.\n\n## Install\n\nRun make.\n- first\n- second\n\n## Use\n\n" + "Type rem again and again. " * 100
)


@pytest.fixture
async def guide(rem: Rem) -> str:
    """Ingest a note of several chunks, and return its title."""
    await rem.for_user(ALICE).ingester().ingest(FetchedFile("docs/guide.md", "file:///docs/guide.md", TEXT.encode()))
    return "Guide"


async def test_lookup_of_a_file_returns_its_text(rem: Rem, guide: str) -> None:
    result = await rem.for_user(ALICE).query(f'LOOKUP "{guide}"')
    (row,) = result.list_rows()
    assert (row["table"], row["key"]) == ("files", "docs/guide.md")
    # White space at the end of the file is not stored.
    assert row["record"]["content"].split() == TEXT.split()
    assert row["record"]["content"].startswith("# Guide\n\nHello.\n\n## Install\n\nRun make.\n- first")
    assert not result.notes


async def test_other_users_do_not_see_the_text(rem: Rem, guide: str, alice: Store, bob: Store) -> None:
    (file,) = await alice.lookup(guide)
    assert (await read_file_texts(alice, [file.id]))[file.id].text.split() == TEXT.split()
    assert await read_file_texts(bob, [file.id]) == {}
    assert not (await rem.for_user("bob@example.com").query(f'LOOKUP "{guide}"')).list_rows()


async def test_shared_file_and_knowledge_entry_have_their_text(rem: Rem, bob: Store) -> None:
    file = FetchedFile("wiki.md", "file:///wiki.md", b"# Wiki\n\nA page.\n")
    await rem.for_user().ingester().ingest(file, form="ontology")
    (row,) = (await rem.for_user("bob@example.com").query('LOOKUP "wiki.md" IN files')).list_rows()
    assert row["record"]["content"] == "# Wiki\n\nA page.\n"


async def test_long_text_is_cut_and_says_where_it_goes_on(rem: Rem, alice: Store) -> None:
    words = " ".join(f"word{number}" for number in range(MAX_FILE_TEXT_CHARS // 8))
    await rem.for_user(ALICE).ingester().ingest(FetchedFile("long.md", "file:///long.md", words.encode()))
    result = await rem.for_user(ALICE).query('LOOKUP "long"')
    content = result.list_rows()[0]["record"]["content"]
    assert len(content) <= MAX_FILE_TEXT_CHARS + 100
    (note,) = result.notes
    key = note.text.split('"')[1]
    (chunk,) = await alice.lookup(key)
    assert isinstance(chunk, Resource)
    assert words.startswith(" ".join([*content.split(), *chunk.content.split()]))


async def test_text_leaves_out_what_its_owner_deleted(rem: Rem, guide: str, alice: Store) -> None:
    (chunk,) = await alice.lookup("docs/guide.md#2")
    await alice.delete(chunk)
    content = (await rem.for_user(ALICE).query(f'LOOKUP "{guide}"')).list_rows()[0]["record"]["content"]
    assert "Hello." in content
    assert "make" not in content


async def test_file_without_text_has_no_content(rem: Rem, alice: Store) -> None:
    await alice.upsert(File(name="pending.pdf", uri="file:///pending.pdf"))
    (row,) = (await rem.for_user(ALICE).query(Lookup(("pending.pdf",)))).list_rows()
    assert "content" not in row["record"]


async def test_hostile_metadata_does_not_break_the_text(rem: Rem, guide: str, alice: Store) -> None:
    (chunk,) = await alice.lookup("docs/guide.md#2")
    chunk.metadata = {**chunk.metadata, "start": "soon", "end": {"a": 1}}
    await alice.upsert(chunk)
    content = (await rem.for_user(ALICE).query(f'LOOKUP "{guide}"')).list_rows()[0]["record"]["content"]
    assert "Run make." in content


@pytest.mark.parametrize("written_at", ["soon", "2024-01-01", 7, None])
async def test_time_of_a_file_is_when_it_was_written(rem: Rem, alice: Store, written_at: object) -> None:
    text = "---\ncreated: 2025-03-04\n---\n# Dated\n"
    await rem.for_user(ALICE).ingester().ingest(FetchedFile("dated.md", "file:///dated.md", text.encode()))
    (row,) = (await rem.for_user(ALICE).query('LOOKUP "Dated"')).list_rows()
    assert row["happened_at"] == "2025-03-04T00:00:00+00:00"
    # Users can write anything into the metadata.
    (file,) = await alice.lookup("Dated")
    file.metadata = {**file.metadata, "written_at": written_at}
    await alice.upsert(file)
    (hit,) = (await rem.for_user(ALICE).query('LOOKUP "Dated"')).hits
    assert hit.happened_at == hit.entity.created_at
