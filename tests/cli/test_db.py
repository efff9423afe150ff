"""The `rem` command, as a user calls it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rem_command import REM, environment, output, rem

_WORKSPACE = """
- table: users
  key_field: name
  rows:
    - name: Ada Lovelace
      email: ada@example.com
- table: resources
  key_field: name
  rows:
    - name: analytical-engine
      content: Notes on the analytical engine.
      graph_edges:
        - {dst: ada-lovelace, rel_type: authored_by}
        - {dst: charles-babbage, rel_type: mentions}
"""


@pytest.fixture
def here(dsn: str) -> dict[str, str]:
    """The settings of the test's own database."""
    return {"POSTGRES__CONNECTION_STRING": dsn}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small file to load."""
    path = tmp_path / "workspace.yaml"
    path.write_text(_WORKSPACE, encoding="utf-8")
    return path


def parsed(*arguments: str, settings: Mapping[str, str]) -> Any:
    return json.loads(output(*arguments, "--json", settings=settings))


def test_help_does_not_import_heavy_modules() -> None:
    assert "Commands:" in output("--help", settings={})
    probe = (
        "import sys, rem.cli.main; print(sorted({'asyncpg', 'fastapi', 'uvicorn', 'rem.models'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_version_is_printed() -> None:
    assert output("--version", settings={}).strip() == "0.1.0"


def test_load_then_lookup_by_key(here: dict[str, str], workspace: Path) -> None:
    report = parsed("db", "load", str(workspace), settings=here)
    assert report["tables"] == {"users": {"inserted": 1}, "resources": {"inserted": 1}}
    assert report["dangling"] == 1
    found = parsed("lookup", "Ada Lovelace", "AnalyticalEngine", settings=here)
    assert [(row["table"], row["key"]) for row in found] == [
        ("users", "ada-lovelace"),
        ("resources", "analytical-engine"),
    ]
    text = output("lookup", "users/ada@example.com", settings=here)
    assert "users/ada-lovelace" in text
    assert "ada@example.com" in text


def test_lookup_of_an_unknown_key_exits_with_3(here: dict[str, str]) -> None:
    missing = rem("lookup", "nobody-knows", settings=here)
    assert missing.returncode == 3
    assert missing.stderr == "Error: Nothing answers to nobody-knows.\n"
    assert missing.stdout == ""


def test_loaded_rows_belong_to_the_given_user_and_tenant(here: dict[str, str], workspace: Path) -> None:
    output("db", "load", str(workspace), "--user", "alice@example.com", settings=here)
    mine = parsed("lookup", "ada-lovelace", "--user", "ALICE@example.com ", settings=here)
    assert mine[0]["user_id"] == "edabafbb-61ad-51d6-9fd8-e976c892a731"
    assert rem("lookup", "ada-lovelace", "--user", "bob@example.com", settings=here).returncode == 3
    assert rem("lookup", "ada-lovelace", settings=here).returncode == 3
    assert (
        rem("lookup", "ada-lovelace", "--user", "alice@example.com", "--tenant", "other", settings=here).returncode == 3
    )


def test_load_error_names_file_line_row_and_field(here: dict[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "- table: resources\n  key_field: name\n  rows:\n    - name: x\n      ordinal: many\n", encoding="utf-8"
    )
    refused = rem("db", "load", str(bad), settings=here)
    assert refused.returncode == 2
    assert f"{bad}:4: resources row 1 (name 'x'): field ordinal:" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_load_reports_a_bad_file_before_starting_a_server(tmp_path: Path, home: Path) -> None:
    (tmp_path / "bad.yaml").write_text("nothing of the kind", encoding="utf-8")
    assert rem("db", "load", str(tmp_path / "bad.yaml"), settings={"REM_HOME": str(home)}).returncode == 2
    assert not home.exists()


def test_load_reads_the_output_of_dump(here: dict[str, str], workspace: Path, tmp_path: Path) -> None:
    output("db", "load", str(workspace), settings=here)
    printed = output("db", "dump", settings=here)
    blocks = yaml.safe_load(printed)
    assert [(block["table"], len(block["rows"])) for block in blocks] == [("users", 1), ("resources", 1)]
    target = tmp_path / "dump.yaml"
    assert rem("db", "dump", "--output", str(target), settings=here).stderr.endswith("2 rows.\n")
    assert target.read_text(encoding="utf-8") == printed
    report = parsed("db", "load", str(target), settings=here)
    assert report["tables"] == {"users": {"unchanged": 1}, "resources": {"unchanged": 1}}


def test_demo_loads_the_workspace_and_prints_working_commands(here: dict[str, str], tmp_path: Path) -> None:
    text = output("demo", settings=here)
    commands = [line[2:].split("  ")[0] for line in text.splitlines() if line.startswith(f"  {REM} ")]
    assert len(commands) == 7
    for command in commands:
        words = shlex.split(command)
        subprocess.run(words, env=environment(here), cwd=tmp_path, capture_output=True, check=True)
    quarterly = parsed("lookup", "quarterly-report", settings=here)[0]
    assert ("sarah-chen", "authored_by") in {(edge["dst"], edge["rel_type"]) for edge in quarterly["graph_edges"]}
    assert output("lookup", "sarah-chen", settings=here).startswith("users/sarah-chen\n")
    again = parsed("demo", settings=here)
    assert {outcome for counts in again["tables"].values() for outcome in counts} == {"unchanged"}


def test_status_shows_server_schema_and_tables(here: dict[str, str], workspace: Path) -> None:
    output("db", "load", str(workspace), settings=here)
    status = parsed("db", "status", settings=here)
    assert status["running"] is True
    assert {migration["state"] for migration in status["migrations"]} == {"applied"}
    assert {table["table"]: table["live"] for table in status["tables"]}["resources"] == 1
    text = output("db", "status", settings=here)
    assert "PostgreSQL 18" in text
    assert re.search(r"^Schema      000\d_\w+$", text, re.MULTILINE)
    assert "Own types" not in text
    assert re.search(r"^ table +rows +deleted +size $", text, re.MULTILINE)
    assert re.search(r"^ resources +1 +0 ", text, re.MULTILINE)


def test_status_lists_custom_types_apart_from_the_schema(here: dict[str, str], team: Path) -> None:
    before = output("db", "status", settings=here)
    output("db", "register", "team:Project", cwd=team, settings=here)
    after = output("db", "status", settings=here)
    assert "Own types   projects (1)\n" in after
    assert re.findall("Schema .*", after) == re.findall("Schema .*", before)


def test_commands_need_a_migrated_server(empty_dsn: str) -> None:
    here = {"POSTGRES__CONNECTION_STRING": empty_dsn}
    refused = rem("lookup", "x", settings=here)
    assert refused.returncode == 5
    assert "rem db migrate" in refused.stderr
    assert "Pending" in output("db", "status", settings=here)
    applied = parsed("db", "migrate", settings=here)["applied"]
    assert applied[0] == "0001_foundation"
    assert parsed("db", "migrate", settings=here) == {"applied": []}
    assert rem("lookup", "x", settings=here).returncode == 3
    undone = parsed("db", "rollback", "--steps", "100", "--yes", settings=here)["rolled_back"]
    assert undone == applied[::-1]


def test_rollback_asks_for_confirmation(here: dict[str, str]) -> None:
    asked = rem("db", "rollback", stdin="n\n", settings=here)
    assert asked.returncode == 1
    newest = parsed("db", "status", settings=here)["migrations"][-1]["name"]
    assert f"Undo {newest}? This drops their tables and all data in them." in asked.stderr
    assert rem("lookup", "x", settings=here).returncode == 3


def test_rebuild_cache_counts_keys_and_edges(here: dict[str, str], workspace: Path) -> None:
    output("db", "load", str(workspace), settings=here)
    # Ada by name, address and id, and the engine by name.
    assert parsed("db", "rebuild-cache", settings=here) == {"keys": 4, "edges": 2}


def test_doctor_lists_all_checks_and_fails_on_a_problem(here: dict[str, str]) -> None:
    checks = parsed("doctor", settings=here)
    assert [(check["name"], check["mark"]) for check in checks] == [
        ("python", "ok"),
        ("settings", "ok"),
        ("database", "ok"),
        ("schema", "ok"),
        ("mirrors", "ok"),
        ("search", "ok"),
        ("sql", "ok"),
        ("jobs", "ok"),
        ("model", "ok"),
        ("recordings", "ok"),
        ("agents", "ok"),
    ]
    assert re.fullmatch(r"\d migrations, all applied", checks[3]["finding"])
    broken = rem(
        "doctor",
        settings={
            "POSTGRES__CONNECTION_STRING": "postgresql://nobody@127.0.0.1:1/x",
            "POSTGRES__CONNECT_TIMEOUT_SECONDS": "1",
        },
    )
    assert broken.returncode == 1
    assert "PROBLEM" in broken.stdout


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A folder with a module in it that has an entity class."""
    (tmp_path / "team.py").write_text(
        "from rem import Entity\n\nclass Project(Entity, table='projects'):\n    name: str\n    goal: str = ''\n",
        encoding="utf-8",
    )
    return tmp_path


def test_register_creates_the_table_of_an_entity_class(here: dict[str, str], team: Path) -> None:
    planned = rem("db", "register", "team:Project", "--dry-run", cwd=team, settings=here)
    assert "CREATE TABLE" in planned.stdout
    assert planned.stderr == ""
    assert rem("lookup", "x", "--table", "projects", settings=here).returncode == 2
    applied = rem("db", "register", "team:Project", cwd=team, settings=here)
    assert (applied.stdout, applied.stderr) == (planned.stdout, "Applied custom:projects:1.\n")
    again = rem("db", "register", "team:Project", cwd=team, settings=here)
    assert (again.stdout, again.stderr) == ("-- projects is up to date.\n", "")
    assert rem("lookup", "x", "--table", "projects", settings=here).returncode == 3


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("team:Nothing", "write package.module:Class"),
        ("team", "'team' is not a class: write package.module:Class"),
        (":Project", "is not a class"),
        ("nowhere:Project", "No module named 'nowhere'"),
        ("raising:Project", "raising fails when it is imported: ZeroDivisionError: division by zero"),
        ("unfinished:Project", "unfinished fails when it is imported: SyntaxError: "),
        ("leaving:Project", "leaving fails when it is imported: SystemExit: 7"),
        ("team:Entity", "team:Entity has no table"),
        ("team:__name__", "team:__name__ is not a subclass of rem.Entity"),
    ],
)
def test_register_explains_why_a_class_cannot_be_used(team: Path, path: str, expected: str) -> None:
    (team / "raising.py").write_text("1 / 0\n", encoding="utf-8")
    (team / "unfinished.py").write_text("def f(\n", encoding="utf-8")
    (team / "leaving.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    # Told before a server is looked for.
    wrong = rem(
        "db", "register", path, cwd=team, settings={"POSTGRES__CONNECTION_STRING": "postgresql://x@127.0.0.1:1/x"}
    )
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
    assert expected in wrong.stderr


def test_error_names_the_invalid_setting() -> None:
    refused = rem("db", "status", settings={"POSTGRES__POOL_MAX_SIZE": "many"})
    assert refused.returncode == 2
    assert "POSTGRES__POOL_MAX_SIZE" in refused.stderr


def test_stop_needs_the_embedded_server(here: dict[str, str]) -> None:
    refused = rem("db", "stop", settings=here)
    assert refused.returncode == 2
    assert "POSTGRES__CONNECTION_STRING" in refused.stderr


def test_embedded_server_runs_until_it_is_stopped(home: Path) -> None:
    here = {"REM_HOME": str(home)}
    assert "not running" in output("db", "status", settings=here)
    first = rem("demo", settings=here)
    assert first.returncode == 0
    assert "Creating a new database" in first.stderr
    second = rem("lookup", "sarah-chen", settings=here)
    assert second.returncode == 0
    assert second.stderr == ""
    pid = parsed("db", "status", settings=here)["embedded"]["pid"]
    assert "running" in output("db", "start", settings=here)
    assert parsed("db", "status", settings=here)["embedded"]["pid"] == pid
    assert output("db", "stop", settings=here) == "Stopped.\n"
    assert output("db", "stop", settings=here) == "The embedded server was not running.\n"
    assert rem("lookup", "sarah-chen", settings=here).returncode == 0
    assert (
        "The next command that opens the embedded database migrates it again"
        in rem("db", "rollback", "--yes", settings=here).stderr
    )
    assert rem("lookup", "sarah-chen", settings=here).returncode == 0
