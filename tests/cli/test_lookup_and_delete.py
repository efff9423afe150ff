"""`rem lookup`, `rem delete`, `rem restore` and `rem db dangling`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rem.cli.lookup import format_entity
from rem.models import Document, Edge, Resource
from tests.rem_command import REM, output, rem

_ROWS = """
- table: users
  key_field: name
  rows:
    - {name: Ada Lovelace, email: ada@example.com}
- table: resources
  key_field: name
  rows:
    - name: Engine
      category: note
      content: Weaves algebraical patterns just as the Jacquard loom weaves flowers and leaves, she wrote.
      tags: [history, computing]
      metadata: {year: 1843, pages: [1, 2]}
      graph_edges:
        - {dst: Ada Lovelace, rel_type: authored_by}
        - {dst: Charles Babbage, rel_type: mentions}
"""


@pytest.fixture
def env(dsn: str, tmp_path: Path) -> dict[str, str]:
    """Load a shared person and a shared resource, and return the settings."""
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "COLUMNS": "60"}
    (tmp_path / "rows.yaml").write_text(_ROWS, encoding="utf-8")
    output("db", "load", str(tmp_path / "rows.yaml"), settings=settings)
    return settings


def lookup_rows(*arguments: str, settings: dict[str, str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(output("lookup", *arguments, "--json", settings=settings))
    return rows


def test_lookup_prints_own_fields_first_and_no_empty_ones(env: dict[str, str]) -> None:
    lines = output("lookup", "engine", settings=env).splitlines()
    assert lines[:6] == [
        "resources/engine",
        "  name: Engine",
        "  ordinal: 0",
        "  content: Weaves algebraical patterns just as the Jacquard",
        "    loom weaves flowers and leaves, she wrote.",
        "  category: note",
    ]
    assert lines[6:8] == ["  tags: history, computing", '  metadata: {"year": 1843, "pages": [1, 2]}']
    assert [line.split(":")[0] for line in lines[8:10]] == ["  created_at", "  updated_at"]
    assert lines[10:] == ["  -> authored_by Ada Lovelace", "  -> mentions Charles Babbage", ""]


def test_lookup_marks_own_and_shared_rows(env: dict[str, str], tmp_path: Path) -> None:
    output("db", "load", str(tmp_path / "rows.yaml"), "--user", "grace", settings=env)
    text = output("lookup", "engine", "--user", "grace", settings=env)
    headings = [line for line in text.splitlines() if line.startswith("resources/")]
    assert headings == ["resources/engine (yours)", "resources/engine (shared)"]


def test_control_characters_are_escaped() -> None:
    text = format_entity(Resource(name="a", content="\x1b[2J one\r\ntwo\x07\x9b", graph_edges=[Edge(dst="x\x1by")]))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "  content: \\x1b[2J one\n    two\\x07\\x9b\n" in text
    assert text.endswith("-> related_to x\\x1by")


def test_vector_is_printed_as_its_length() -> None:
    assert "  embedding: 384 numbers\n" in format_entity(Document(content="x", embedding=[0.5] * 384))


def test_lookup_names_unknown_keys(env: dict[str, str]) -> None:
    partly = rem("lookup", "engine", "nope", "nor this", settings=env)
    assert (partly.returncode, partly.stderr) == (0, "Nothing is stored under nope, nor this.\n")
    none = rem("lookup", "nope", settings=env)
    assert (none.returncode, none.stderr) == (3, "Error: Nothing is stored under nope.\n")


def test_lookup_suggests_similar_keys(env: dict[str, str]) -> None:
    typo = rem("lookup", "engin", settings=env)
    assert (typo.returncode, typo.stderr) == (3, "Error: Nothing is stored under engin. Did you mean engine?\n")
    assert "Did you mean" not in rem("lookup", "engin", "--table", "users", settings=env).stderr


def test_lookup_prints_a_row_once_for_several_of_its_keys(env: dict[str, str]) -> None:
    assert len(lookup_rows("ada-lovelace", "Ada Lovelace", "ada@example.com", settings=env)) == 1


def test_lookup_of_a_file_prints_its_text(env: dict[str, str], tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    text = "# Marta Kowalczyk\n\nAn architect.\n\n## Allergies\n\nPeanuts.\n"
    (notes / "marta.md").write_text(text, encoding="utf-8")
    output("ingest", str(notes), "--user", "ada@example.com", settings=env)
    # By its title, its name, and its path from where the command runs.
    for key in ("Marta Kowalczyk", "notes/marta.md", str(notes / "marta.md"), "./notes/../notes/marta.md"):
        printed = output("lookup", key, "--user", "ada@example.com", settings=env, cwd=tmp_path)
        assert printed.startswith("files/notes/marta.md (yours)\n"), key
        assert printed.rstrip().endswith(text.rstrip())
    (row,) = lookup_rows("marta", "--user", "ada@example.com", settings=env)
    assert (row["table"], row["content"]) == ("files", text.rstrip())
    assert rem("lookup", str(notes / "marta.md"), settings=env).returncode == 3


def test_long_text_says_how_to_read_on(env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("word " * 45_000, encoding="utf-8")
    output("ingest", str(path), settings={**env, "EMBEDDING__PROVIDER": "none"})
    done = rem("lookup", "long.txt", settings=env)
    assert done.returncode == 0
    assert 'The rest starts at LOOKUP "long.txt#' in done.stderr
    key = done.stderr.split('LOOKUP "')[1].split('"')[0]
    assert output("lookup", key, settings=env).startswith(f"resources/{key}\n")


@pytest.mark.parametrize("command", ["lookup", "delete"])
def test_empty_key_is_an_error(command: str) -> None:
    refused = rem(command, " ", settings={"POSTGRES__CONNECTION_STRING": "postgresql://nobody@127.0.0.1:1/x"})
    assert (refused.returncode, refused.stderr) == (2, "Error: A key is empty: give a name such as sarah-chen.\n")


def test_delete_prints_a_working_restore_command(env: dict[str, str]) -> None:
    message = output("delete", "Engine", settings=env)
    assert message.startswith("Deleted resources/engine; ")
    assert rem("lookup", "engine", settings=env).returncode == 3
    words = message.split("`")[1].removeprefix(f"{REM} ").split()
    assert words[:2] == ["restore", "resources"]
    assert output(*words, settings=env) == "Restored resources/engine.\n"
    assert lookup_rows("engine", settings=env)
    again = rem(*words, settings=env)
    assert (again.returncode, again.stderr) == (3, f"Error: resources has no deleted {words[2]}.\n")


def test_delete_explains_that_the_key_is_a_table(env: dict[str, str]) -> None:
    done = rem("delete", "resources", "engine", settings=env)
    assert done.returncode == 3
    assert "--table resources" in done.stderr
    assert output("delete", "--table", "resources", "engine", settings=env).startswith("Deleted resources/engine")


def test_deleted_row_can_be_restored_or_erased_by_key(env: dict[str, str], tmp_path: Path) -> None:
    output("delete", "engine", "ada-lovelace", settings=env)
    report = output("db", "load", str(tmp_path / "rows.yaml"), settings=env)
    assert "Deleted before, and left deleted: users/ada-lovelace, resources/engine." in report
    assert output("restore", "users", "Ada Lovelace", settings=env) == "Restored users/ada-lovelace.\n"
    assert rem("delete", "resources/engine", settings=env).returncode == 3
    assert output("delete", "resources/engine", "--erase", "--yes", settings=env) == "Erased resources/engine.\n"
    assert rem("restore", "resources", "engine", settings=env).returncode == 3


def test_erase_asks_for_confirmation(env: dict[str, str]) -> None:
    asked = rem("delete", "engine", "--erase", stdin="n\n", settings=env)
    assert asked.returncode == 1
    assert "Erase resources/engine for good?" in asked.stderr
    assert lookup_rows("engine", settings=env)
    erased = rem("delete", "engine", "--erase", "--json", stdin="y\n", settings=env)
    assert [(row["key"], row["erased"]) for row in json.loads(erased.stdout)] == [("engine", True)]


def test_delete_is_atomic_and_limited_to_own_rows(env: dict[str, str], tmp_path: Path) -> None:
    refused = rem("delete", "engine", "--user", "grace", settings=env)
    assert refused.returncode == 3
    assert "engine is shared and not this user's: leave --user out" in refused.stderr
    assert rem("delete", "engine", "nope", settings=env).returncode == 3
    output("db", "load", str(tmp_path / "rows.yaml"), "--user", "grace", settings=env)
    output("delete", "engine", "--user", "grace", settings=env)
    assert [row["user_id"] for row in lookup_rows("engine", "--user", "grace", settings=env)] == [None]
    assert rem("restore", "resources", "engine", "--user", "bob", settings=env).returncode == 3
    assert rem("restore", "resources", str(uuid4()), "--user", "grace", settings=env).returncode == 3
    output("restore", "resources", "engine", "--user", "grace", settings=env)


def test_delete_refuses_an_ambiguous_key(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("- {table: moments, key_field: name, rows: [{name: Engine}]}", encoding="utf-8")
    output("db", "load", str(tmp_path / "more.yaml"), settings=env)
    refused = rem("delete", "engine", settings=env)
    assert refused.returncode == 2
    assert "engine means several rows: moments/engine (id " in refused.stderr
    assert output("delete", "engine", "--table", "moments", settings=env).startswith("Deleted moments/engine")
    assert [row["table"] for row in lookup_rows("engine", settings=env)] == ["resources"]


def test_dangling_lists_edges_without_a_target(env: dict[str, str], tmp_path: Path) -> None:
    report = output("db", "load", str(tmp_path / "rows.yaml"), settings=env)
    assert "Edges of this memory to keys that do not exist (yet): 1. `" in report
    assert "rem db dangling` lists them" in report
    assert json.loads(output("db", "dangling", "--json", settings=env)) == [
        {"src_type": "resources", "src_key": "engine", "rel_type": "mentions", "dst": "charles-babbage"}
    ]
    assert "resources/engine   mentions   charles-babbage" in output("db", "dangling", settings=env)
    assert "has a target" in output("db", "dangling", "--user", "grace", settings=env)
