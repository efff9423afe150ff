"""`rem --help`: fast, with summaries that fit a terminal of 80 columns; `rem --version`; invalid settings."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rem.cli.main import app, build_command
from tests.rem_command import output, rem

_COMMANDS: dict[str, object] = getattr(build_command(), "commands")  # noqa: B009  # typer has no type for it
_GROUPS = [(), *((name,) for name, command in _COMMANDS.items() if hasattr(command, "commands"))]


@pytest.mark.parametrize("group", _GROUPS, ids=" ".join)
def test_summaries_are_not_cut_off_at_80_columns(group: tuple[str, ...]) -> None:
    text = CliRunner().invoke(app, [*group, "--help"], prog_name="rem", terminal_width=80).output
    summaries = text.partition("Commands:")[2].splitlines()
    assert [line for line in summaries if line.endswith("...")] == []


def test_help_does_not_import_heavy_modules() -> None:
    assert "Commands:" in output("--help", settings={})
    probe = (
        "import sys, rem.cli.main; print(sorted({'asyncpg', 'fastapi', 'uvicorn', 'rem.models'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_version_is_printed() -> None:
    assert output("--version", settings={}).strip() == "0.1.0"


def test_error_names_the_invalid_setting() -> None:
    refused = rem("db", "status", settings={"POSTGRES__POOL_MAX_SIZE": "many"})
    assert refused.returncode == 2
    assert "POSTGRES__POOL_MAX_SIZE" in refused.stderr
