"""`rem db index`, `rem db reembed` and what `rem doctor` says of the index."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from tests.rem_command import Settings, output, rem


@pytest.fixture
def here(dsn: str, tmp_path: Path) -> Settings:
    return {"POSTGRES__CONNECTION_STRING": dsn, "REM_HOME": str(tmp_path), "EMBEDDING__PROVIDER": "none"}


def _load(here: Settings, tmp_path: Path) -> None:
    file = tmp_path / "tea.yaml"
    file.write_text(
        "- table: resources\n  key_field: name\n  rows:\n  - {name: Tea, content: Sencha is a green tea}\n",
        encoding="utf-8",
    )
    output("db", "load", str(file), settings=here)


def test_load_indexes_the_rows(here: Settings, tmp_path: Path) -> None:
    _load(here, tmp_path)
    found = json.loads(output("query", 'SEARCH "sencha"', "--json", settings=here))
    assert [row["key"] for row in found["results"]] == ["tea"]
    assert "words alone" in found["notes"][0]


async def test_doctor_reports_an_unindexed_row_and_rescan_indexes_it(
    here: Settings, tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    _load(here, tmp_path)
    assert json.loads(output("db", "index", "--json", settings=here)) == {"rows": 0, "passages": 0, "embedded": 0}
    await sql.execute("DELETE FROM passages")
    done = rem("doctor", settings=here)
    assert done.returncode == 1
    assert "rem db index --rescan" in done.stdout
    assert output("db", "index", "--rescan", settings=here).startswith("Indexed 1 row as 1 passage")
    assert rem("doctor", settings=here).returncode == 0


def test_reembed_needs_an_embedder(here: Settings, tmp_path: Path) -> None:
    _load(here, tmp_path)
    done = rem("db", "reembed", settings=here)
    assert done.returncode == 6
    assert "EMBEDDING__PROVIDER=none" in done.stderr


def test_reembed_has_nothing_to_do_after_index(here: Settings, tmp_path: Path) -> None:
    _load(here, tmp_path)
    local = {**here, "EMBEDDING__PROVIDER": "local"}
    assert json.loads(output("db", "index", "--json", settings=local))["embedded"] == 1
    assert json.loads(output("db", "reembed", "--json", settings=local)) == {"embedded": 0, "waiting": 0}
    doctor = json.loads(output("doctor", "--json", settings=local))
    assert "1 embedded by" in next(check["finding"] for check in doctor if check["name"] == "search")
