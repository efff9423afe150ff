"""The agent catalog: lookup order, owners, invalid definitions."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from rem.agents.catalog import AgentCatalog, load_built_in_agents, read_agent_file
from rem.app import Rem
from rem.context import Scope
from rem.errors import AgentNotFoundError, ConflictError, InvalidAgentError, MemoryDisabledError
from rem.models import Schema
from rem.settings import AgentsSettings, Settings
from rem.tools.registry import AGENT_TOOLS
from tests.agents.sample_agents import COMPLETE, minimal
from tests.cases import cases
from tests.rem_command import REPOSITORY
from tests.rem_command import rem as rem_command

ALICE, BOB, EVERYONE = Scope.for_user("alice@example.com"), Scope.for_user("bob@example.com"), Scope()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my agents"
    path.mkdir()
    return path


@pytest.fixture
def catalog(settings: Settings, rem: Rem, folder: Path) -> AgentCatalog:
    return AgentCatalog(settings.model_copy(update={"agents": AgentsSettings(path=folder)}), rem)


@pytest.fixture
def files_only(folder: Path) -> AgentCatalog:
    """The catalogue of a REM whose database is switched off."""
    return AgentCatalog(Settings(agents=AgentsSettings(path=folder)), None)


async def names(catalog: AgentCatalog, scope: Scope) -> list[str]:
    return [schema.name for schema in await catalog.list(scope)]


async def test_built_in_agents_need_neither_folder_nor_database(tmp_path: Path) -> None:
    catalog = AgentCatalog(Settings(rem_home=tmp_path / "nowhere"), None)
    assert (await names(catalog, EVERYONE))[0] == "rem"
    schema = await catalog.get("query-agent", EVERYONE)
    assert (schema.name, schema.source) == ("query-agent", "built in")
    assert (await catalog.get("rem://agents/query-agent", EVERYONE)) == schema


async def test_default_folder_is_under_rem_home(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "a.yml").write_text(minimal())
    schema = await AgentCatalog(Settings(rem_home=tmp_path), None).get("my-agent", EVERYONE)
    assert schema.source == str(tmp_path / "agents" / "a.yml")


async def test_added_changed_and_deleted_files_are_noticed(files_only: AgentCatalog, folder: Path) -> None:
    path = folder / "any-file-name.yaml"
    path.write_text(minimal(description="You are the first."))
    assert (await files_only.get("my-agent", EVERYONE)).description == "You are the first."
    path.write_text(minimal(description="You are the second."))
    assert (await files_only.get("my-agent", EVERYONE)).description == "You are the second."
    path.unlink()
    with pytest.raises(AgentNotFoundError):
        await files_only.get("my-agent", EVERYONE)


async def test_unchanged_file_is_parsed_once(files_only: AgentCatalog, folder: Path) -> None:
    (folder / "a.yaml").write_text(minimal())
    assert await files_only.get("my-agent", EVERYONE) is await files_only.get("my-agent", EVERYONE)


async def test_invalid_files_report_errors_and_do_not_hide_others(files_only: AgentCatalog, folder: Path) -> None:
    (folder / "a-broken.yaml").write_text(minimal("broken") + "  retries: -1\n")
    (folder / "b-no-yaml.yaml").write_text("a: [")
    (folder / "c-no-text.yaml").write_bytes(b"\xff\xfe\x00")
    (folder / "d-huge.yaml").write_text("#" * 400_000)
    (folder / "e-fine.yaml").write_text(minimal("fine"))
    (folder / "f.yaml").mkdir()
    (folder / "notes.txt").write_text("not an agent")
    assert "fine" in await names(files_only, EVERYONE)
    problems = {entry.name: entry.error or "" for entry in await files_only.list_entries(EVERYONE) if not entry.schema}
    assert set(problems) == {"broken", "b-no-yaml", "c-no-text", "d-huge"}
    assert f"{folder / 'a-broken.yaml'}, line 4: json_schema_extra.retries" in problems["broken"]
    assert "longer than 256 KB" in problems["d-huge"]
    for name in problems:
        with pytest.raises(InvalidAgentError) as caught:
            await files_only.get(name, EVERYONE)
        assert str(caught.value) == problems[name]


async def test_dangling_symlink_is_ignored(files_only: AgentCatalog, folder: Path) -> None:
    (folder / "gone.yaml").symlink_to(folder / "nowhere.yaml")
    (folder / "fine.yaml").write_text(minimal("fine"))
    assert "fine" in await names(files_only, EVERYONE)


async def test_first_agent_with_a_name_is_used_and_others_are_reported(files_only: AgentCatalog, folder: Path) -> None:
    (folder / "1.yaml").write_text(minimal("twin", "You are the first."))
    (folder / "2.yaml").write_text(minimal("twin", "You are the second."))
    (folder / "3.yaml").write_text(minimal("rem", "You are not REM."))
    assert (await files_only.get("twin", EVERYONE)).description == "You are the first."
    assert (await files_only.get("rem", EVERYONE)).source == "built in"
    problems = [entry.error for entry in await files_only.list_entries(EVERYONE) if entry.error]
    assert problems == [
        f"{folder / '2.yaml'}: twin is the name of an agent that is in {folder / '1.yaml'}, which is used instead.",
        f"{folder / '3.yaml'}: rem is the name of an agent that is built in, which is used instead.",
    ]


async def test_stored_agent_hidden_by_a_file_reports_an_error(catalog: AgentCatalog, folder: Path) -> None:
    await catalog.save(minimal(), ALICE)
    (folder / "a.yaml").write_text(minimal())
    (problem,) = [entry.error for entry in await catalog.list_entries(ALICE) if entry.error]
    assert problem.startswith("The stored agent my-agent: my-agent is the name of an agent that is in ")


async def test_validate_rejects_the_name_of_a_built_in_agent(folder: Path) -> None:
    path = folder / "mine.yaml"
    path.write_text(minimal("rem"))
    (problem,) = read_agent_file(path).issues
    message = f"{path}: json_schema_extra.name: rem is the name of an agent that is built in: choose another"
    assert problem.format(str(path)) == message
    checked = rem_command("agents", "validate", str(path), settings={"POSTGRES__ENABLED": "false"})
    assert (checked.returncode, checked.stderr) == (2, f"Error: {message}\n")
    path.write_text(minimal("rem-helper"))
    assert read_agent_file(path).issues == []


async def test_saved_agent_is_visible_only_to_its_owner(catalog: AgentCatalog) -> None:
    saved = await catalog.save(COMPLETE, ALICE)
    assert saved.source == "database"
    assert await catalog.get("release-helper", ALICE) == saved
    assert "release-helper" in await names(catalog, ALICE)
    for other in (BOB, EVERYONE, Scope("elsewhere", ALICE.user_id)):
        assert "release-helper" not in await names(catalog, other)
        with pytest.raises(AgentNotFoundError) as caught:
            await catalog.get("release-helper", other)
        assert "Did you mean release-helper" not in str(caught.value)


async def test_saving_again_replaces_the_agent(catalog: AgentCatalog) -> None:
    await catalog.save(minimal(description="You are the first."), ALICE)
    await catalog.get("my-agent", ALICE)
    await catalog.save(minimal(description="You are the second."), ALICE)
    assert (await catalog.get("my-agent", ALICE)).description == "You are the second."
    assert (await names(catalog, ALICE)).count("my-agent") == 1


async def test_own_agent_takes_precedence_over_shared_one(catalog: AgentCatalog) -> None:
    await catalog.save(minimal(description="You are shared."), EVERYONE)
    await catalog.save(minimal(description="You are Alice's."), ALICE)
    assert (await catalog.get("my-agent", ALICE)).description == "You are Alice's."
    assert (await catalog.get("my-agent", BOB)).description == "You are shared."
    assert (await names(catalog, ALICE)).count("my-agent") == 1


async def test_file_takes_precedence_over_database(catalog: AgentCatalog, folder: Path) -> None:
    await catalog.save(minimal(description="You are saved."), ALICE)
    (folder / "a.yaml").write_text(minimal(description="You are a file."))
    assert (await catalog.get("my-agent", ALICE)).description == "You are a file."
    with pytest.raises(ConflictError, match=r"a\.yaml: choose another"):
        await catalog.save(minimal(), ALICE)


async def test_invalid_agent_is_not_saved(catalog: AgentCatalog) -> None:
    with pytest.raises(InvalidAgentError, match=r"The agent, line 4: json_schema_extra\.retries"):
        await catalog.save(minimal() + "  retries: -1\n", ALICE)
    with pytest.raises(ConflictError, match="rem belongs to an agent that is built in"):
        await catalog.save(minimal("rem"), ALICE)
    assert "my-agent" not in await names(catalog, ALICE)


async def test_deleted_agent_can_be_saved_again(catalog: AgentCatalog) -> None:
    await catalog.save(minimal(), ALICE)
    await catalog.delete("my-agent", ALICE)
    with pytest.raises(AgentNotFoundError):
        await catalog.get("my-agent", ALICE)
    with pytest.raises(AgentNotFoundError):
        await catalog.delete("my-agent", ALICE)
    await catalog.save(minimal(description="You are back."), ALICE)
    assert (await catalog.get("my-agent", ALICE)).description == "You are back."


async def test_only_own_agents_can_be_deleted(catalog: AgentCatalog, folder: Path) -> None:
    (folder / "a.yaml").write_text(minimal("from-file"))
    await catalog.save(minimal("of-alice"), ALICE)
    await catalog.save(minimal("of-everyone"), EVERYONE)
    with pytest.raises(AgentNotFoundError, match="no agent 'of-alice'"):
        await catalog.delete("of-alice", BOB)
    with pytest.raises(AgentNotFoundError, match="is shared: only your own"):
        await catalog.delete("of-everyone", BOB)
    with pytest.raises(ConflictError, match="cannot be deleted"):
        await catalog.delete("rem", ALICE)
    with pytest.raises(ConflictError, match="delete the file"):
        await catalog.delete("from-file", ALICE)
    assert {"of-alice", "of-everyone", "from-file"} <= set(await names(catalog, ALICE))


async def test_invalid_stored_definition_is_listed_with_its_error(catalog: AgentCatalog, rem: Rem) -> None:
    await rem.for_user(ALICE).store.upsert(Schema(name="odd-one", spec={"description": "You."}))
    entry = (await catalog.list_entries(ALICE))[-1]
    assert (entry.name, entry.schema) == ("odd-one", None)
    assert entry.error == "The stored agent odd-one: json_schema_extra: is missing"
    with pytest.raises(InvalidAgentError, match="odd-one"):
        await catalog.get("odd-one", ALICE)
    assert (await catalog.get("rem", ALICE)).name == "rem"


@pytest.mark.parametrize("name", ["sumarizer", "Summarizer", "sumarizer "])
async def test_misspelt_name_suggests_the_right_one(files_only: AgentCatalog, name: str) -> None:
    with pytest.raises(AgentNotFoundError, match=r"Did you mean summarizer\? `rem agents list` shows them all"):
        await files_only.get(name, EVERYONE)


async def test_misspelt_name_of_own_agent_suggests_it(catalog: AgentCatalog) -> None:
    await catalog.save(COMPLETE, ALICE)
    with pytest.raises(AgentNotFoundError, match="Did you mean release-helper"):
        await catalog.get("relese-helper", ALICE)


@cases("name", ["", "x" * 100_000, "a\0b", "../../etc/passwd", "'; DROP TABLE schemas; --", "名前"])
async def test_any_unknown_name_is_not_found(catalog: AgentCatalog, name: str) -> None:
    with pytest.raises(AgentNotFoundError) as caught:
        await catalog.get(name, ALICE)
    assert len(str(caught.value)) < 500


async def test_error_for_unknown_name_does_not_list_many_agents(catalog: AgentCatalog) -> None:
    await asyncio.gather(*(catalog.save(minimal(f"agent-{number}"), ALICE) for number in range(20)))
    with pytest.raises(AgentNotFoundError, match=r"^There is no agent 'zzz'\. `rem agents list` shows them all\.$"):
        await catalog.get("zzz", ALICE)


async def test_concurrent_saves_of_one_agent_store_it_once(catalog: AgentCatalog) -> None:
    texts = [minimal(description=f"You are number {number}.") for number in range(8)]
    await asyncio.gather(*(catalog.save(text, ALICE) for text in texts))
    assert (await names(catalog, ALICE)).count("my-agent") == 1


async def test_save_and_delete_need_the_database(files_only: AgentCatalog) -> None:
    with pytest.raises(MemoryDisabledError):
        await files_only.save(minimal(), ALICE)
    with pytest.raises(MemoryDisabledError):
        await files_only.delete("my-agent", ALICE)


def test_docs_list_every_tool() -> None:
    docs = (REPOSITORY / "docs" / "agents.md").read_text(encoding="utf-8")
    table = docs.partition("## Tools")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(AGENT_TOOLS)


async def test_docs_example_of_an_agent_that_calls_others_is_valid(files_only: AgentCatalog, folder: Path) -> None:
    docs = (REPOSITORY / "docs" / "agents.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"<!-- example: asking -->\n```yaml\n(.*?)```", docs, re.DOTALL)
    (folder / "asking.yaml").write_text(text)
    schema = await files_only.get("release-notes", EVERYONE)
    assert schema.tool_names == ["ask_agent", "search_rem"]
    named_agents = set(re.findall(r"`([a-z-]+)`", schema.description)) - set(AGENT_TOOLS)
    assert named_agents <= {agent.name for agent in load_built_in_agents()} | {"release-helper"}
    assert named_agents
