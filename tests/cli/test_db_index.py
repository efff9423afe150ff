"""`rem db index`, `rem db reembed`, and the index in `rem doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from tests.rem_command import Settings, output, rem


@pytest.fixture
def env(dsn: str, tmp_path: Path) -> Settings:
    return {"POSTGRES__CONNECTION_STRING": dsn, "REM_HOME": str(tmp_path), "EMBEDDING__PROVIDER": "none"}


def _load(env: Settings, tmp_path: Path) -> None:
    file = tmp_path / "tea.yaml"
    file.write_text(
        "- table: resources\n  key_field: name\n  rows:\n  - {name: Tea, content: Sencha is a green tea}\n",
        encoding="utf-8",
    )
    output("db", "load", str(file), settings=env)


def test_load_indexes_the_rows(env: Settings, tmp_path: Path) -> None:
    _load(env, tmp_path)
    found = json.loads(output("query", 'SEARCH "sencha"', "--json", settings=env))
    assert [row["key"] for row in found["results"]] == ["tea"]
    assert found["notes"][0]["code"] == "words_only"


async def test_doctor_reports_an_unindexed_row_and_rescan_indexes_it(
    env: Settings, tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    _load(env, tmp_path)
    assert json.loads(output("db", "index", "--json", settings=env)) == {"rows": 0, "passages": 0, "embedded": 0}
    await sql.execute("DELETE FROM passages")
    done = rem("doctor", settings=env)
    assert done.returncode == 1
    assert "rem db index --rescan" in done.stdout
    assert output("db", "index", "--rescan", settings=env).startswith("Indexed 1 row as 1 passage")
    assert rem("doctor", settings=env).returncode == 0


def test_reembed_needs_an_embedder(env: Settings, tmp_path: Path) -> None:
    _load(env, tmp_path)
    done = rem("db", "reembed", settings=env)
    assert done.returncode == 6
    assert "EMBEDDING__PROVIDER=none" in done.stderr


def test_reembed_has_nothing_to_do_after_index(env: Settings, tmp_path: Path) -> None:
    _load(env, tmp_path)
    local = {**env, "EMBEDDING__PROVIDER": "local"}
    assert json.loads(output("db", "index", "--json", settings=local))["embedded"] == 1
    assert json.loads(output("db", "reembed", "--json", settings=local)) == {"embedded": 0, "waiting": 0}
    doctor = json.loads(output("doctor", "--json", settings=local))
    assert "1 embedded by" in next(check["finding"] for check in doctor if check["name"] == "search")
