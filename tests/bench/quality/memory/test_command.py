"""`python -m bench memory`: one report of benchmarks and audit, compared with the last one, on an untouched memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.bench.bench_command import bench, bench_output
from tests.bench.quality.sample_datasets import LONGMEMEVAL, write_json, write_lines
from tests.rem_command import output

ZOE = "zoe@example.com"
WEEK = """
name: a-short-week
user: ana@example.com
notes:
  - {file: keys.md, text: "The key of the shed hangs behind the clock."}
sessions:
  - {id: monday, day: 1, at: "09:00", messages: ["My locker is number 214."]}
questions:
  - {ask: "Which number does my locker have?", answer: ["214"], source: monday, group: just_said}
  - {ask: "Where is the key of the shed?", answer: ["clock"], source: keys.md, group: notes}
"""


@pytest.fixture
def env(dsn: str, tmp_path: Path) -> dict[str, str]:
    return {
        "POSTGRES__CONNECTION_STRING": dsn,
        "EMBEDDING__PROVIDER": "none",
        "REM_USER": ZOE,
        "REM_HOME": str(tmp_path / "home"),
    }


def _measure(*arguments: str | Path, settings: dict[str, str], code: int = 0) -> dict[str, Any]:
    done = bench("memory", *map(str, arguments), "--json", settings=settings)
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


async def _count_rows(sql: asyncpg.Connection[asyncpg.Record]) -> list[int]:
    tables = ("sessions", "messages", "resources", "moments", "dream_runs", "ontologies", "users")
    return [await sql.fetchval(f"SELECT count(*) FROM rem.{table}") for table in tables]


async def test_report_joins_the_parts_and_a_regression_is_red(
    env: dict[str, str], tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    output("ask", "My boat is called Albatross and lies in Piran.", settings=env)
    output("dreaming", "full", settings=env)
    before = await _count_rows(sql)
    week = tmp_path / "week.yaml"
    week.write_text(WEEK)
    data = write_json(tmp_path / "longmemeval_s.json", LONGMEMEVAL)
    options = ("--longmemeval", data, "--week-file", week)
    first = _measure(*options, "--note", "the first", settings=env)
    assert await _count_rows(sql) == before
    assert {"audit.sound", "longmemeval.recall_all@5", "week.first", "week.among", "week.sound"} <= set(
        first["metrics"]
    )
    assert first["metrics"]["longmemeval.recall_all@5"] == {"value": 0.5, "count": 2}
    assert (first["compared_with"], first["changes"], first["mode"]) == (None, [], "quick")
    assert first["counts"]["statements"] > 0
    for stranger in (("--user", "bob@example.com"), ("--tenant", "other")):
        nothing = _measure("--no-week", "--reports", tmp_path / "strangers", *stranger, settings=env)
        assert nothing["counts"]["statements"] == 0
        assert ZOE not in json.dumps(nothing)
    assert await _count_rows(sql) == before
    second = _measure("--longmemeval", data, "--no-week", "--no-audit", settings=env)
    assert second["compared_with"] == first["file"]
    assert {change["verdict"] for change in second["changes"]} == {"same"}
    history = bench_output("memory", "--history", settings=env)
    assert "the first" in history
    corpus = write_lines(
        tmp_path / "corpus.jsonl", {"id": "a", "text": "The boat is green."}, {"id": "b", "text": "Bread."}
    )
    questions = [{"id": f"q{number}", "question": "green boat", "expected": ["b"]} for number in range(20)]
    own = ("--no-week", "--no-audit", "--own", corpus, write_lines(tmp_path / "questions.jsonl", *questions))
    third = _measure(*own, "--reports", tmp_path / "elsewhere", settings=env)
    assert Path(third["file"]).parent == tmp_path / "elsewhere"
    assert third["metrics"]["own.recall@1"] == {"value": 0.0, "count": 20}
    # A report from a better time: every question was right then.
    report = json.loads(Path(third["file"]).read_text())
    metric = report["metrics"]["own.recall@1"]
    report["metrics"] = {"own.recall@1": {**metric, "value": 1.0, "cases": dict.fromkeys(metric["cases"], 1.0)}}
    better = tmp_path / "better.json"
    better.write_text(json.dumps(report))
    red = _measure(*own, "--against", better, settings=env, code=1)
    verdicts = {change["name"]: change["verdict"] for change in red["changes"]}
    assert (verdicts["own.recall@1"], verdicts["own.recall@5"]) == ("worse", "new")


def test_missing_data_set_is_refused_before_anything_runs(env: dict[str, str], tmp_path: Path) -> None:
    refused = bench("memory", "--locomo", str(tmp_path / "nowhere.json"), settings=env)
    assert refused.returncode == 2
    assert "There is no file or folder" in refused.stderr
    assert "Auditing" not in refused.stderr
    assert "no reports" in bench("memory", "--history", settings=env).stderr
