"""The command `rem agents`, and the examples of docs/agents.md."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from rem.agents.catalog import load_built_in_agents
from rem.agents.schema import AgentExtra
from rem.agents.tool_gaps import ToolGapReport, store_tool_gaps
from rem.app import Rem
from tests.agents.sample_agents import COMPLETE, minimal
from tests.conftest import settings_for
from tests.rem_command import REPOSITORY, Settings, output, rem
from tests.test_docs import DOCS, read_commands

_DOCS = (REPOSITORY / "docs" / "agents.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w*\n(.*?)```", _DOCS, re.DOTALL))


@pytest.fixture
def here(dsn: str, tmp_path: Path) -> Settings:
    return {"POSTGRES__CONNECTION_STRING": dsn, "REM_HOME": str(tmp_path / "home")}


@pytest.fixture
def nowhere(tmp_path: Path) -> Settings:
    """Settings without a database that could be used."""
    return {"POSTGRES__CONNECTION_STRING": "postgresql://127.0.0.1:9/none", "REM_HOME": str(tmp_path / "home")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "release-helper.yaml"
    path.write_text(COMPLETE, encoding="utf-8")
    return path


def test_agent_is_saved_shown_listed_and_deleted(here: Settings, file: Path) -> None:
    alice = ("--user", "alice@example.com")
    assert "Saved release-helper 2.1.0" in output("agents", "save", str(file), *alice, settings=here)
    shown = output("agents", "show", "release-helper", *alice, settings=here)
    assert "description: |\n  You help with releases." in shown
    again = file.with_name("again.yaml")
    again.write_text(shown, encoding="utf-8")
    assert "is valid" in output("agents", "validate", str(again), settings=here)
    assert re.search(r"^release-helper +database$", output("agents", "list", *alice, settings=here), re.MULTILINE)
    assert "release-helper" not in output("agents", "list", settings=here)
    assert rem("agents", "show", "release-helper", settings=here).returncode == 3
    assert "Deleted release-helper" in output("agents", "delete", "release-helper", *alice, settings=here)
    gone = rem("agents", "show", "release-helper", *alice, settings=here)
    assert gone.returncode == 3
    assert "`rem agents list` shows them all" in gone.stderr


def test_deleted_agent_is_restored_by_the_printed_command(here: Settings, file: Path) -> None:
    output("agents", "save", str(file), settings=here)
    message = output("agents", "delete", "release-helper", settings=here)
    (command,) = re.findall(r"`\S*rem (restore [^`]+)`", message)
    output(*command.split(), settings=here)
    assert "release-helper" in output("agents", "list", settings=here)


def test_every_command_has_json_output(here: Settings, file: Path) -> None:
    saved = json.loads(output("agents", "save", str(file), "--json", settings=here))
    assert saved == {"name": "release-helper", "version": "2.1.0", "kind": "agent", "source": "database"}
    listed = {row["name"]: row for row in json.loads(output("agents", "list", "--json", settings=here))}
    assert listed["rem"]["source"] == "built in"
    assert listed["release-helper"]["tools"] == ["search_rem", "register_metadata", "read_resource"]
    shown = json.loads(output("agents", "show", "release-helper", "--json", settings=here))
    assert shown["json_schema_extra"]["name"] == "release-helper"
    deleted = json.loads(output("agents", "delete", "release-helper", "--json", settings=here))
    assert deleted == {"name": "release-helper", "deleted": True}


def test_validate_needs_no_database_and_names_every_error(nowhere: Settings, file: Path, tmp_path: Path) -> None:
    assert output("agents", "validate", str(file), settings=nowhere) == f"{file}: release-helper 2.1.0 is valid.\n"
    bad = tmp_path / "bad.yaml"
    bad.write_text(minimal("Bad Name") + "  retries: -1\n  tols: []\n", encoding="utf-8")
    missing = tmp_path / "missing.yaml"
    done = rem("agents", "validate", str(bad), str(file), str(missing), settings=nowhere)
    assert done.returncode == 2
    assert "release-helper 2.1.0 is valid." in done.stdout
    assert f"{bad}, line 3: json_schema_extra.name: must be in kebab case" in done.stderr
    assert f"{bad}, line 4: json_schema_extra.retries: must be greater" in done.stderr
    assert f"{bad}, line 5: json_schema_extra.tols: there is no such field. Did you mean tools?" in done.stderr
    assert f"{missing}: cannot be read: No such file or directory" in done.stderr
    reports = json.loads(rem("agents", "validate", str(bad), str(file), "--json", settings=nowhere).stdout)
    assert [(report["valid"], len(report["problems"])) for report in reports] == [(False, 3), (True, 0)]
    assert reports[0]["problems"][1]["line"] == 4


def test_validate_reads_standard_input(nowhere: Settings) -> None:
    done = rem("agents", "validate", "-", settings=nowhere, stdin=minimal())
    assert (done.returncode, done.stdout) == (0, "-: my-agent 1.0.0 is valid.\n")


def test_invalid_agent_is_not_saved(nowhere: Settings, here: Settings, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(minimal() + "  retries: -1\n", encoding="utf-8")
    done = rem("agents", "save", str(bad), settings=nowhere)
    assert done.returncode == 2
    assert f"{bad}, line 4: json_schema_extra.retries" in done.stderr
    bad.write_text(minimal("rem"), encoding="utf-8")
    done = rem("agents", "save", str(bad), settings=here)
    assert done.returncode == 4
    assert "belongs to an agent that is built in" in done.stderr


def test_folder_is_listed_with_errors_of_invalid_files(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.yaml").write_text(minimal("from-folder"), encoding="utf-8")
    (folder / "b.yaml").write_text("a: [", encoding="utf-8")
    settings = {"POSTGRES__ENABLED": "false", "AGENTS__PATH": str(folder), "REM_HOME": str(tmp_path / "home")}
    done = rem("agents", "list", settings=settings)
    assert done.returncode == 0
    assert re.search(rf"^from-folder +{re.escape(str(folder / 'a.yaml'))}$", done.stdout, re.MULTILINE)
    assert f"Cannot be used: {folder / 'b.yaml'}, line" in done.stderr
    assert rem("agents", "show", "b", settings=settings).returncode == 2
    off = rem("agents", "save", str(folder / "a.yaml"), settings=settings)
    assert off.returncode != 0


def test_docs_example_is_valid_and_its_error_is_shown(nowhere: Settings, tmp_path: Path) -> None:
    path = tmp_path / "release-helper.yaml"
    path.write_text(_EXAMPLES["agent"], encoding="utf-8")
    output("agents", "validate", path.name, settings=nowhere, cwd=tmp_path)
    path.write_text(_EXAMPLES["agent"].replace("temperature:", "temprature:"), encoding="utf-8")
    done = rem("agents", "validate", path.name, settings=nowhere, cwd=tmp_path)
    assert done.stderr == f"Error: {_EXAMPLES['mistake']}"


def test_docs_list_every_field_and_built_in_agent() -> None:
    for name in AgentExtra.model_fields:
        assert f"`json_schema_extra.{name}`" in _DOCS or f", `{name}`" in _DOCS, name
    section = _DOCS.partition("## Built-in agents")[2].partition("## Models")[0]
    table = set(re.findall(r"^\| `([a-z-]+)` \|", section, re.M))
    assert table == {agent.name for agent in load_built_in_agents()}


def test_missing_tools_are_listed_for_one_user_and_for_all(here: Settings, dsn: str) -> None:
    assert rem("agents", "gaps", settings=here).stderr.endswith("No agent has called a tool that it does not have.\n")
    report = ToolGapReport(agent="rem", missing_tools=["send_email"], attempted_task="Send it to Sarah.")

    async def store() -> None:
        async with Rem.open(settings_for(dsn)) as opened:
            for user in ("alice@example.com", "bob@example.com", "alice@example.com"):
                await store_tool_gaps(opened.for_user(user).store, [report], None)

    asyncio.run(store())
    of_alice, of_all = (output(*command, settings=here) for command in read_commands(DOCS / "agents.md", "gaps"))
    assert re.search(r"rem +send_email +2 .*Send it", of_alice)
    assert re.search(r"rem +send_email +3 +2 ", of_all)
    assert "Sarah" not in of_all, "tasks are messages of the users"
    (row,) = json.loads(output("agents", "gaps", "--json", "--user", "bob@example.com", settings=here))
    assert (row["missing_tools"], row["occurrences"]) == (["send_email"], 1)
