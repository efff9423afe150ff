"""The example, the options and the metrics of docs/benchmarks.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bench.quality.datasets import beam, locomo, longmemeval, own
from bench.quality.report import measure

from tests.bench.bench_command import bench_output
from tests.rem_command import REPOSITORY

_PAGE = (REPOSITORY / "docs" / "benchmarks.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```json\n(.*?)```", _PAGE, re.DOTALL))


def test_own_corpus_example_runs(dsn: str, tmp_path: Path) -> None:
    for name in ("corpus", "questions"):
        (tmp_path / f"{name}.jsonl").write_text(_EXAMPLES[name], encoding="utf-8")
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    words = ("own", "corpus.jsonl", "questions.jsonl", "--here", "--json")
    report = json.loads(bench_output(*words, settings=settings, cwd=tmp_path))
    assert report["overall"]["metrics"]["recall@5"] == 1.0
    assert set(report["by_kind"]) == {"animals", "food", "travel", "none"}
    rows = (tmp_path / "rem-bench-own.jsonl").read_text(encoding="utf-8").splitlines()
    shown = re.search(r"```json\n(\{\"id\": \"line 1\".*?)```", _PAGE, re.DOTALL)
    assert shown is not None
    assert json.loads(rows[0]).keys() == json.loads(shown[1]).keys()


def test_page_lists_every_option() -> None:
    shown = bench_output("own", "--help", settings={})
    options = set(re.findall(r"^ .*?(--[a-z]+)", shown, re.MULTILINE)) - {"--help"}
    assert len(options) == 7
    assert all(f"`{option}" in _PAGE for option in options)


def test_page_explains_every_metric() -> None:
    used = {name for module in (beam, locomo, longmemeval, own) for name in module.METRICS}
    for name in used:
        assert f"`{name.partition('@')[0]}@k`" in _PAGE
    for name in re.findall(r"^\| `(\w+)@k`", _PAGE, re.MULTILINE):
        assert measure(f"{name}@1", ["x"], ["x"]) == 1.0
