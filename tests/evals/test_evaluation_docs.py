"""The commands and examples of docs/evaluation.md work."""

from __future__ import annotations

import re
from pathlib import Path

from rem.agents.catalog import load_built_in_evaluators
from rem.agents.evaluation import Evaluation
from tests.rem_command import output
from tests.test_docs import DOCS, expected_output, read_commands, read_example, read_page, run_example

PAGE = DOCS / "evaluation.md"


def test_commands_run_on_the_demo_workspace(dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "REM_HOME": str(tmp_path / "home"), "EMBEDDING__PROVIDER": "none"}
    output("demo", settings=settings)
    (tmp_path / "golden.yaml").write_text(read_example(PAGE, "golden"), encoding="utf-8")
    (tmp_path / "tone.yaml").write_text(read_example(PAGE, "evaluator"), encoding="utf-8")
    printed = {
        block: [output(*command, settings=settings, cwd=tmp_path) for command in read_commands(PAGE, block)]
        for block in ("golden", "run", "compare", "evaluator")
    }
    assert printed["golden"] == ["golden: 2 cases\n"]
    assert "passed 2 of 2" in printed["run"][0]
    assert "agent#1" in printed["run"][2]
    assert "against golden#1" in printed["compare"][0]
    assert "tone" in printed["evaluator"][2]


def test_library_example_prints_its_comments(dsn: str) -> None:
    assert run_example(PAGE, "library", dsn) == expected_output(PAGE, "library") == ["capitals 1 2"]


def test_tables_name_all_evaluators_and_options() -> None:
    page = read_page(PAGE)
    first_columns = set(re.findall(r"`([a-z_-]+)`", " ".join(re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE))))
    assert {schema.name for schema in load_built_in_evaluators()} <= first_columns
    assert set(Evaluation.model_fields) <= first_columns
