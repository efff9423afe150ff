"""The tool parse_and_ingest_file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rem.agents.catalog import AgentCatalog
from rem.app import Rem
from rem.db.store import Store
from rem.errors import DeletedError, FetchForbiddenError, InvalidInputError, MemoryDisabledError
from rem.models import Schema
from rem.settings import IngestSettings, Settings
from rem.tools.binding import get_traits
from rem.tools.registry import TOOLS
from rem.tools.remember import parse_and_ingest_file
from tests.ingest.helpers import PAGE, contents, only_file
from tests.ingest.test_ingester import AGENT
from tests.tools.tool_env import RecordingClient, env_for

ALICE = "alice@example.com"


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """A server that may read one folder."""
    (tmp_path / "open").mkdir()
    return settings.model_copy(update={"ingest": IngestSettings(paths=[tmp_path / "open"])})


async def test_file_is_stored_for_the_caller(rem: Rem, alice: Store, bob: Store, tmp_path: Path) -> None:
    path = tmp_path / "open" / "guide.md"
    path.write_text(PAGE, encoding="utf-8")
    client = RecordingClient()
    env = env_for(rem, ALICE, emit=client.emit)
    answer = await parse_and_ingest_file(env, str(path), category="manual", tags=["x"])
    steps = [(event["step"], event["label"], event.get("status")) for event in client.seen_events]
    assert steps == [
        (1, f"Fetching {path}", None),
        (1, f"Fetching {path}", "completed"),
        (2, "Reading and storing the text", None),
        (2, "Reading and storing the text", "completed"),
        (3, "Indexing the text", None),
        (3, "Indexing the text", "completed"),
    ]
    assert (await rem.index_backlog()).rows == 0
    assert answer == {
        "status": "added",
        "file": "guide.md",
        "uri": path.as_uri(),
        "chunks": 3,
        "keys": ["guide.md#1", "guide.md#2", "guide.md#3"],
    }
    assert (await parse_and_ingest_file(env, path.as_uri()))["status"] == "unchanged"
    assert len(await contents(alice)) == 3
    assert await contents(bob) == {}
    await alice.delete(await only_file(alice))
    with pytest.raises(DeletedError, match="restore"):
        await parse_and_ingest_file(env, str(path))


async def test_other_files_of_the_server_are_not_read(rem: Rem, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret", encoding="utf-8")
    (tmp_path / "open" / "link.md").symlink_to(tmp_path / "secret.md")
    for path in (tmp_path / "secret.md", tmp_path / "open" / "link.md", tmp_path / "open" / ".." / "secret.md"):
        with pytest.raises(FetchForbiddenError):
            await parse_and_ingest_file(env_for(rem, ALICE), str(path))


async def test_file_without_text_is_an_error(rem: Rem, tmp_path: Path) -> None:
    (tmp_path / "open" / "x.txt").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"x\.txt is empty"):
        await parse_and_ingest_file(env_for(rem, ALICE), str(tmp_path / "open" / "x.txt"))


async def test_agent_definition_becomes_an_agent_of_the_caller(
    rem: Rem, alice: Store, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "open" / "a.yaml").write_text(AGENT, encoding="utf-8")
    env = env_for(rem, ALICE, agents=AgentCatalog(settings, rem))
    assert (await parse_and_ingest_file(env, str(tmp_path / "open" / "a.yaml")))["chunks"] == 0
    assert [row.name for row in await alice.find(Schema)] == ["release-helper"]


async def test_tool_is_not_read_only() -> None:
    assert TOOLS["parse_and_ingest_file"] is parse_and_ingest_file
    assert not get_traits(parse_and_ingest_file).is_read_only
    with pytest.raises(MemoryDisabledError):
        await parse_and_ingest_file(env_for(None, ALICE), "https://example.com/x")
