"""docs/sessions.md is correct: its example and commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from rem.db import retry
from rem.sessions.message import NOTE_TOOLS
from rem.settings import MemorySettings
from tests.rem_command import REPOSITORY, output, run_python

_PAGE = (REPOSITORY / "docs" / "sessions.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", _PAGE, re.DOTALL))


def test_example_prints_its_comments(dsn: str) -> None:
    code = _EXAMPLES["turn"]
    promised = [line.split("# ", 1)[1] for line in code.splitlines() if "print(" in line]
    done = run_python(code, settings={"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"})
    assert done.stdout.splitlines() == promised, done.stderr
    assert len(promised) == 4


def test_documented_commands_run_on_an_empty_database(dsn: str, tmp_path: Path) -> None:
    commands = [shlex.split(line)[1:] for line in _EXAMPLES["commands"].splitlines()]
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    shown = [output(*command, settings=settings, cwd=tmp_path) for command in commands]
    assert {command[1] for command in commands[1:]} == {
        *("import", "list", "show", "search", "rename", "export", "clear", "delete", "prune"),
    }
    assert "the one at the fountain." in shown[2]
    assert "hotel" in shown[3]


def test_documented_numbers_and_names_match_the_code() -> None:
    assert f"up to {retry.MAX_ATTEMPTS} times" in _PAGE
    assert all(f"`{tool}`" in _PAGE for tool in NOTE_TOOLS)
    strategies = re.findall(r"^\| `([a-z]+)` \| ", _PAGE, re.MULTILINE)
    assert strategies == ["simple", "summarization", "hybrid"]
    assert MemorySettings().auto_prune_days is None
