"""`rem db`: load, dump, status, migrations, cache, custom types and the embedded server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rem_command import output, rem

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
def env(dsn: str) -> dict[str, str]:
    """Return the settings of the test database."""
    return {"POSTGRES__CONNECTION_STRING": dsn}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Write a small file to load, and return its path."""
    path = tmp_path / "workspace.yaml"
    path.write_text(_WORKSPACE, encoding="utf-8")
    return path


def json_output(*arguments: str, settings: Mapping[str, str]) -> Any:
    return json.loads(output(*arguments, "--json", settings=settings))


def test_load_then_lookup_by_key(env: dict[str, str], workspace: Path) -> None:
    report = json_output("db", "load", str(workspace), settings=env)
    assert report["tables"] == {"users": {"inserted": 1}, "resources": {"inserted": 1}}
    assert report["dangling"] == 1
    found = json_output("lookup", "Ada Lovelace", "AnalyticalEngine", settings=env)
    assert [(row["table"], row["key"]) for row in found] == [
        ("users", "ada-lovelace"),
        ("resources", "analytical-engine"),
    ]
    text = output("lookup", "users/ada@example.com", settings=env)
    assert "users/ada-lovelace" in text
    assert "ada@example.com" in text


def test_lookup_of_an_unknown_key_exits_with_3(env: dict[str, str]) -> None:
    missing = rem("lookup", "nobody-knows", settings=env)
    assert missing.returncode == 3
    assert missing.stderr == "Error: Nothing is stored under nobody-knows.\n"
    assert missing.stdout == ""


def test_loaded_rows_belong_to_the_given_user_and_tenant(env: dict[str, str], workspace: Path) -> None:
    output("db", "load", str(workspace), "--user", "alice@example.com", settings=env)
    mine = json_output("lookup", "ada-lovelace", "--user", "ALICE@example.com ", settings=env)
    assert mine[0]["user_id"] == "edabafbb-61ad-51d6-9fd8-e976c892a731"
    assert rem("lookup", "ada-lovelace", "--user", "bob@example.com", settings=env).returncode == 3
    assert rem("lookup", "ada-lovelace", settings=env).returncode == 3
    assert (
        rem("lookup", "ada-lovelace", "--user", "alice@example.com", "--tenant", "other", settings=env).returncode == 3
    )


def test_load_error_names_file_line_row_and_field(env: dict[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "- table: resources\n  key_field: name\n  rows:\n    - name: x\n      ordinal: many\n", encoding="utf-8"
    )
    refused = rem("db", "load", str(bad), settings=env)
    assert refused.returncode == 2
    assert f"{bad}:4: resources row 1 (name 'x'): field ordinal:" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_load_reports_a_bad_file_before_starting_a_server(tmp_path: Path, home: Path) -> None:
    (tmp_path / "bad.yaml").write_text("nothing of the kind", encoding="utf-8")
    assert rem("db", "load", str(tmp_path / "bad.yaml"), settings={"REM_HOME": str(home)}).returncode == 2
    assert not home.exists()


def test_load_reads_the_output_of_dump(env: dict[str, str], workspace: Path, tmp_path: Path) -> None:
    output("db", "load", str(workspace), settings=env)
    printed = output("db", "dump", settings=env)
    blocks = yaml.safe_load(printed)
    assert [(block["table"], len(block["rows"])) for block in blocks] == [("users", 1), ("resources", 1)]
    target = tmp_path / "dump.yaml"
    assert rem("db", "dump", "--output", str(target), settings=env).stderr.endswith("2 rows.\n")
    assert target.read_text(encoding="utf-8") == printed
    report = json_output("db", "load", str(target), settings=env)
    assert report["tables"] == {"users": {"unchanged": 1}, "resources": {"unchanged": 1}}


def test_status_shows_server_schema_and_tables(env: dict[str, str], workspace: Path) -> None:
    output("db", "load", str(workspace), settings=env)
    status = json_output("db", "status", settings=env)
    assert status["running"] is True
    assert {migration["state"] for migration in status["migrations"]} == {"applied"}
    assert {table["table"]: table["live"] for table in status["tables"]}["resources"] == 1
    text = output("db", "status", settings=env)
    assert "PostgreSQL 18" in text
    assert re.search(r"^Schema      \d{4}_\w+$", text, re.MULTILINE)
    assert "Own types" not in text
    assert re.search(r"^ table +rows +deleted +size $", text, re.MULTILINE)
    assert re.search(r"^ resources +1 +0 ", text, re.MULTILINE)


def test_status_lists_custom_types_apart_from_the_schema(env: dict[str, str], team: Path) -> None:
    before = output("db", "status", settings=env)
    output("db", "register", "team:Project", cwd=team, settings=env)
    after = output("db", "status", settings=env)
    assert "Own types   projects (1)\n" in after
    assert re.findall("Schema .*", after) == re.findall("Schema .*", before)


def test_commands_need_a_migrated_server(empty_dsn: str) -> None:
    env = {"POSTGRES__CONNECTION_STRING": empty_dsn}
    refused = rem("lookup", "x", settings=env)
    assert refused.returncode == 5
    assert "rem db migrate" in refused.stderr
    assert "Pending" in output("db", "status", settings=env)
    applied = json_output("db", "migrate", settings=env)["applied"]
    assert applied[0] == "0001_schema"
    assert json_output("db", "migrate", settings=env) == {"applied": []}
    assert rem("lookup", "x", settings=env).returncode == 3
    undone = json_output("db", "rollback", "--steps", "100", "--yes", settings=env)["rolled_back"]
    assert undone == applied[::-1]


def test_rollback_asks_for_confirmation(env: dict[str, str]) -> None:
    asked = rem("db", "rollback", stdin="n\n", settings=env)
    assert asked.returncode == 1
    newest = json_output("db", "status", settings=env)["migrations"][-1]["name"]
    assert f"Undo {newest}? This drops their tables and all data in them." in asked.stderr
    assert rem("lookup", "x", settings=env).returncode == 3


def test_rebuild_cache_counts_keys_and_edges(env: dict[str, str], workspace: Path) -> None:
    output("db", "load", str(workspace), settings=env)
    # Ada by name, address and id, and the engine by name.
    assert json_output("db", "rebuild-cache", settings=env) == {"keys": 4, "edges": 2}


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """Write a module with an entity class, and return its folder."""
    (tmp_path / "team.py").write_text(
        "from rem import Entity\n\nclass Project(Entity, table='projects'):\n    name: str\n    goal: str = ''\n",
        encoding="utf-8",
    )
    return tmp_path


def test_register_creates_the_table_of_an_entity_class(env: dict[str, str], team: Path) -> None:
    planned = rem("db", "register", "team:Project", "--dry-run", cwd=team, settings=env)
    assert "CREATE TABLE" in planned.stdout
    assert planned.stderr == ""
    assert rem("lookup", "x", "--table", "projects", settings=env).returncode == 2
    applied = rem("db", "register", "team:Project", cwd=team, settings=env)
    assert (applied.stdout, applied.stderr) == (planned.stdout, "Applied custom:projects:1.\n")
    again = rem("db", "register", "team:Project", cwd=team, settings=env)
    assert (again.stdout, again.stderr) == ("-- projects is up to date.\n", "")
    assert rem("lookup", "x", "--table", "projects", settings=env).returncode == 3


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
    # Reported before a server is started.
    wrong = rem(
        "db", "register", path, cwd=team, settings={"POSTGRES__CONNECTION_STRING": "postgresql://x@127.0.0.1:1/x"}
    )
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
    assert expected in wrong.stderr


def test_stop_needs_the_embedded_server(env: dict[str, str]) -> None:
    refused = rem("db", "stop", settings=env)
    assert refused.returncode == 2
    assert "POSTGRES__CONNECTION_STRING" in refused.stderr


def test_embedded_server_runs_until_it_is_stopped(home: Path) -> None:
    env = {"REM_HOME": str(home)}
    assert "not running" in output("db", "status", settings=env)
    first = rem("demo", settings=env)
    assert first.returncode == 0
    assert "Creating a new database" in first.stderr
    second = rem("lookup", "sarah-chen", "--tenant", "demo", settings=env)
    assert second.returncode == 0
    assert second.stderr == ""
    pid = json_output("db", "status", settings=env)["embedded"]["pid"]
    assert "running" in output("db", "start", settings=env)
    assert json_output("db", "status", settings=env)["embedded"]["pid"] == pid
    assert output("db", "stop", settings=env) == "Stopped.\n"
    assert output("db", "stop", settings=env) == "The embedded server was not running.\n"
    assert rem("lookup", "sarah-chen", "--tenant", "demo", settings=env).returncode == 0
    assert (
        "The next command that opens the embedded database migrates it again"
        in rem("db", "rollback", "--yes", settings=env).stderr
    )
    emptied = rem("lookup", "sarah-chen", "--tenant", "demo", settings=env)
    assert (emptied.returncode, "Preparing the schema" in emptied.stderr) == (3, True)
