"""`rem query` in natural language."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    assert asked.stderr == "Note: Keeps the harbor. (Zoë Müller)\n"
    answer = json.loads(output("query", "--mode=natural-language", "zoe muler", "--json", "--explain", settings=env))
    assert [row["key"] for row in answer["results"]] == ["zoë-müller"]
