"""`rem query`: tables, records, JSON, --explain, errors and standard input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rem.app import Rem
from rem.models import Resource
from tests.rem_command import output
from tests.rem_command import rem as run

_WORKSPACE = """
- table: users
  key_field: name
  rows:
    - name: Zoë Müller
      email: zoe@example.com
      summary: "Keeps production up.\\n\\tAlways \\e[31mcalm\\e[0m."
- table: resources
  key_field: name
  rows:
    - name: harbor-plan
      content: The plan of the harbor migration.
      graph_edges:
        - {dst: Zoë Müller, rel_type: authored_by, weight: 0.5}
        - {dst: 日本語のメモ, rel_type: cites}
        - {dst: lost, rel_type: cites}
    - name: 日本語のメモ
      content: メモ
"""


@pytest.fixture
async def env(rem: Rem, dsn: str, tmp_path: Path) -> dict[str, str]:
    """Load a small workspace, and return the settings."""
    path = tmp_path / "workspace.yaml"
    path.write_text(_WORKSPACE, encoding="utf-8")
    await rem.for_user().load(path)
    return {"POSTGRES__CONNECTION_STRING": dsn}


def test_each_verb_prints_a_table_and_notes_on_stderr(env: dict[str, str]) -> None:
    looked_up = run("query", "LOOKUP harbor-plan, nobody", settings=env)
    assert looked_up.returncode == 0
    assert "The plan of the harbor migration." in looked_up.stdout
    assert looked_up.stderr == 'Note: No match for nobody. FUZZY "nobody" finds similar keys.\n'
    fuzzy = output("query", 'FUZZY "zoe muller"', settings=env).splitlines()
    assert fuzzy[1].split() == ["table", "key", "score", "matched", "date", "summary"]
    assert fuzzy[3].split()[:4] == ["users", "zoë-müller", "1", "key"]
    assert "Always \\x1b[31mcalm\\x1b[0m." in fuzzy[3]
    walk = run("query", "TRAVERSE harbor-plan", settings=env)
    assert "harbor-plan → 日本語のメモ" in walk.stdout
    assert "harbor-plan cites lost" in walk.stderr
    plan = output("query", "TRAVERSE harbor-plan DEPTH 0 TYPE cites", settings=env)
    assert "lost, 日本語のメモ" in plan
    rows = output("query", "SELECT name, ordinal FROM resources ORDER BY name", settings=env).splitlines()
    assert rows[1].split() == ["name", "ordinal"]
    assert rows[3].split() == ["harbor-plan", "0"]


def test_wide_sql_rows_are_printed_as_records(env: dict[str, str]) -> None:
    narrow = {**env, "COLUMNS": "60"}
    statement = "SELECT name, category, content, ordinal, uri FROM resources ORDER BY name"
    assert output("query", statement, settings=narrow).splitlines() == [
        "name      harbor-plan",
        "category",
        "content   The plan of the harbor migration.",
        "ordinal   0",
        "uri",
        "",
        "name      日本語のメモ",
        "category",
        "content   メモ",
        "ordinal   0",
        "uri",
    ]
    long = output("query", f"SELECT 1 AS n, '{'x' * 100}' AS a, 'y' AS b", settings=narrow).splitlines()
    assert long == ["n  1", f"a  {'x' * 100}", "b  y"]
    everything = output("query", "SELECT * FROM users", settings=narrow).splitlines()
    assert ["email", "zoe@example.com"] in [line.split() for line in everything]
    wide = output("query", statement, settings={**env, "COLUMNS": "100"}).splitlines()
    assert wide[1].split() == ["name", "category", "content", "ordinal", "uri"]
    gives_way = output("query", "SELECT name, content FROM resources", settings={**env, "COLUMNS": "40"})
    assert "…" in gives_way
    assert gives_way.splitlines()[1].split() == ["name", "content"]


def test_rows_without_columns_are_counted(env: dict[str, str]) -> None:
    for statement, said in (("SELECT FROM resources", "2 rows"), ("SELECT FROM users", "1 row")):
        counted = run("query", statement, settings=env)
        assert (counted.returncode, counted.stdout, counted.stderr) == (0, "", f"{said} without columns.\n")


def test_json_and_explain_output(env: dict[str, str]) -> None:
    answer = json.loads(output("query", "TRAVERSE harbor-plan LIMIT 1", "--json", settings=env))
    assert (answer["query_type"], answer["count"]) == ("TRAVERSE", 1)
    assert answer["results"][0]["path"] == ["harbor-plan", "日本語のメモ"]
    assert "steps" not in answer
    explained = json.loads(output("query", "TRAVERSE harbor-plan", "--json", "--explain", settings=env))
    assert explained["tree"]["start"] == {"type": "LOOKUP", "keys": ["harbor-plan"], "table": None}
    assert [step["name"] for step in explained["steps"]] == ["lookup", "traverse"]
    text = output("query", "LOOKUP harbor-plan", "--explain", settings=env)
    assert text.startswith("LOOKUP\n  keys: harbor-plan\n")
    assert [line.split()[0] for line in text.splitlines() if line.split()[:1] == ["lookup"]] == ["lookup"]


def test_empty_result_succeeds_and_bad_query_fails(env: dict[str, str]) -> None:
    nothing = run("query", "FUZZY qqqq", settings=env)
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "No rows.\n")
    empty = json.loads(output("query", "FUZZY qqqq", "--json", settings=env))
    assert empty == {"query_type": "FUZZY", "results": [], "count": 0}
    no_table = run("query", "FUZZY x FROM resource", settings=env)
    assert no_table.returncode == 2
    assert "Did you mean 'resources'?" in no_table.stderr
    for query, meant in (
        ("SEARCH what comes from May", 'SEARCH "what comes from May"'),
        ("LOOKUP lost in translation;", 'LOOKUP "lost in translation"'),
        ("FUZZY flights from Lisbon LIMIT 3", 'FUZZY "flights from Lisbon" LIMIT 3'),
    ):
        no_table = run("query", query, settings=env)
        assert no_table.returncode == 2
        assert no_table.stderr.startswith("Error: There is no table '")
        assert no_table.stderr.endswith(f"\nDid you mean: {meant}\n")
    assert "Did you mean" not in run("query", "SEARCH what comes FROM May", settings=env).stderr
    # A syntax error needs no database.
    misspelt = run("query", "FUZY x", settings={"POSTGRES__CONNECTION_STRING": "postgresql://nowhere.invalid/x"})
    assert misspelt.returncode == 2
    assert misspelt.stderr.endswith("Did you mean: FUZZY x\n")


async def test_query_reads_stdin_and_respects_the_user(env: dict[str, str], rem: Rem) -> None:
    await rem.for_user("alice@example.com").store.upsert(Resource(name="diary", content="mine"))
    asked = run("query", "-", "--user", "alice@example.com", "--json", settings=env, stdin="LOOKUP diary;\n")
    assert json.loads(asked.stdout)["count"] == 1
    for someone in (["--user", "bob@example.com"], ["--user", "alice@example.com", "--tenant", "other"]):
        assert json.loads(output("query", "LOOKUP diary", "--json", *someone, settings=env))["count"] == 0
    empty = run("query", "-", settings=env)
    assert empty.returncode == 2
    assert "Empty query" in empty.stderr
