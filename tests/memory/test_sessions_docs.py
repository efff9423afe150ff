"""What the page about conversations says is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from rem.db import retry
from rem.memory.manager import MemoryManager
from rem.memory.message import NOTE_TOOLS
from rem.settings import MemorySettings
from tests.memory.sample_messages import answered, said
from tests.memory.test_transfer import exported
from tests.rem_command import REPOSITORY, environment, output

_PAGE = (REPOSITORY / "docs" / "sessions.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", _PAGE, re.DOTALL))


def test_the_example_prints_what_its_comments_say(dsn: str) -> None:
    code = _EXAMPLES["turn"]
    promised = [line.split("# ", 1)[1] for line in code.splitlines() if "print(" in line]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment({"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.splitlines() == promised, done.stderr
    assert len(promised) == 4


async def test_the_commands_work(dsn: str, theirs: MemoryManager, tmp_path: Path) -> None:
    session = await theirs.create_session(name="Trip to Rome")
    await theirs.append(session.id, [said("Which hotel?"), answered("The one at the fountain.")])
    (tmp_path / "sessions.jsonl").write_bytes(await exported(theirs))
    commands = [shlex.split(line)[1:] for line in _EXAMPLES["commands"].splitlines()]
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    shown = [output(*command, settings=settings, cwd=tmp_path) for command in commands]
    assert {command[1] for command in commands} == {
        *("import", "list", "show", "search", "rename", "export", "clear", "delete", "prune"),
    }
    assert "The one at the fountain." in shown[2]
    assert "hotel" in shown[3]


def test_the_numbers_and_names_are_those_of_the_code() -> None:
    assert f"up to {retry.MAX_ATTEMPTS} times" in _PAGE
    assert all(f"`{tool}`" in _PAGE for tool in NOTE_TOOLS)
    strategies = re.findall(r"^\| `([a-z]+)` \| ", _PAGE, re.MULTILINE)
    assert strategies == ["simple", "summarization", "hybrid"]
    assert MemorySettings().auto_prune_days is None
