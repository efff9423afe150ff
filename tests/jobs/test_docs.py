"""The commands and examples in docs/jobs.md work as described."""

from __future__ import annotations

import asyncio
import re
import shlex

from rem.jobs.handlers import HANDLERS, LOG_RETENTION
from rem.jobs.queue import JobQueue
from rem.jobs.worker import build_schedules
from rem.settings import Settings, WorkerSettings
from tests.jobs.conftest import StartWorker, Traces
from tests.rem_command import REPOSITORY, output, run_python

_PAGE = (REPOSITORY / "docs" / "jobs.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", _PAGE, re.DOTALL))


async def test_documented_commands_work(jobs: JobQueue, traces: Traces, start_worker: StartWorker, dsn: str) -> None:
    await jobs.enqueue("refuses", {"tenant_id": "acme", "name": "locked"})
    start_worker(TEST_ONCE="1").wait(20)
    commands = [shlex.split(line)[1:] for line in _EXAMPLES["commands"].splitlines()]
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    shown = [await asyncio.to_thread(output, *command, settings=settings) for command in commands]
    assert len(commands) == 9
    assert all("encrypted" in text for text in shown[:3])
    assert await jobs.list() == []


def test_example_prints_its_comments(dsn: str) -> None:
    code = _EXAMPLES["python"]
    promised = [line.split("  # ", 1)[1] for line in code.splitlines() if "print(" in line]
    done = run_python(code, settings={"POSTGRES__CONNECTION_STRING": dsn})
    assert done.stdout.splitlines() == promised, done.stderr
    assert len(promised) == 3


def test_documented_settings_and_defaults_match_the_code() -> None:
    rows = re.findall(r"^\| `WORKER__([A-Z_]+)` \|.*\| (\S+) \|$", _PAGE, re.MULTILINE)
    stored = {name.upper(): str(value).lower() for name, value in WorkerSettings().model_dump().items()}
    assert dict(rows) == stored


def test_documented_kinds_match_the_code() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", _PAGE, re.MULTILINE) == sorted(HANDLERS)
    assert set(build_schedules(Settings())) <= set(HANDLERS)
    assert f"after {LOG_RETENTION.days} days" in _PAGE
    assert "up to 5 attempts" in _PAGE
    assert "30 seconds" in _PAGE
    assert "10 seconds" in _PAGE
