"""`rem query` in natural language and with a plan."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from rem.cli.query import run_plan
from rem.errors import InvalidInputError
from tests.rem_command import output, rem

_WORKSPACE = """
- table: users
  key_field: name
  rows: [{name: Zoë Müller, summary: Keeps the harbor.}]
- table: resources
  key_field: name
  rows:
    - {name: harbor-plan, content: The harbor., graph_edges: [{dst: Zoë Müller, rel_type: authored_by}]}
"""
_PLAN = {
    "stages": [
        {"id": "report", "query": "LOOKUP harbor-plan"},
        {"id": "authors", "query": "TRAVERSE FROM {report.key} TYPE authored_by"},
    ]
}


@pytest.fixture
def env(dsn: str, tmp_path: Path) -> dict[str, str]:
    """Load a small workspace, and return the settings, without an embedder."""
    path = tmp_path / "workspace.yaml"
    path.write_text(_WORKSPACE, encoding="utf-8")
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    output("db", "load", str(path), settings=settings)
    return settings


def test_natural_language_mode(env: dict[str, str]) -> None:
    asked = rem("query", "who is Zoë Müller?", "--mode", "natural-language", settings=env)
    assert asked.returncode == 0, asked.stderr
    assert "Keeps the harbor." in asked.stdout
    assert asked.stderr == 'Note: Understood as: LOOKUP "Zoë Müller"\nNote: Then: SEARCH "who is Zoë Müller?"\n'
    answer = json.loads(output("query", "--mode=natural-language", "zoe muler", "--json", "--explain", settings=env))
    assert (answer["query_type"], answer["count"]) == ("FUZZY", 1)
    assert answer["notes"] == ['Understood as: FUZZY "zoe muler" THRESHOLD 0.65']


def test_plan_is_read_from_a_file_or_stdin(env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(_PLAN), encoding="utf-8")
    done = rem("query", "--plan", str(path), settings=env)
    assert done.returncode == 0, done.stderr
    assert "harbor-plan → zoë-müller" in done.stdout
    assert done.stderr == (
        'report: 1 row: LOOKUP "harbor-plan"\nauthors: 1 row: TRAVERSE FROM "harbor-plan" TYPE "authored_by"\n'
    )
    stages = [*_PLAN["stages"], {"id": "bad", "query": "FUZZY x FROM resource"}, {"id": "fed", "query": "LOOKUP {bad}"}]
    plan = json.dumps({"stages": stages, "answer": "authors"})
    failed = rem("query", "--plan", "-", settings=env, stdin=plan)
    assert failed.returncode == 1
    assert "harbor-plan → zoë-müller" in failed.stdout
    assert "\nbad: failed (There is no table 'resource'." in failed.stderr
    assert "\nfed: skipped: LOOKUP {bad}\n  Note: Skipped, because bad failed" in failed.stderr
    answer = json.loads(rem("query", "--plan", "-", "--json", settings=env, stdin=plan).stdout)
    assert (answer["query_type"], answer["answer"], answer["count"]) == ("PLAN", "authors", 1)


def test_invalid_plan_fails_before_opening_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, query, stdin, message in (
        ("-", "", "{", "The plan is not JSON"),
        ("-", "", '{"stages": [{"id": "a", "query": "LOOKUP {b}"}]}', "Stage a: {b} refers to no stage."),
        (tmp_path / "none.json", "", "", "cannot be read"),
        ("-", "LOOKUP x", "{}", "Give a query or --plan, not both."),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(InvalidInputError) as refused:
            run_plan(Path(path), query, user=None, tenant="default", as_json=False, explain=False)
        assert message in str(refused.value)
