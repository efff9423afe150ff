"""Run the `rem` command in tests: forked from a process that has imported it, or as a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tests.forked_process import ForkedProcess, Stream

REPOSITORY = Path(__file__).parent.parent
REM = Path(sys.executable).with_name("rem")
_KEPT = ("PATH", "LANG", "HOME", "TMPDIR", "SSL_CERT_FILE", "COVERAGE_PROCESS_CONFIG")
_READ_AT_START = ("PYTHON", "LC_", "TZ", "LOGURU_")
"""Variables that Python and the libraries read when they start. A fork would not see them."""


Settings: TypeAlias = Mapping[str, str]


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables of a user: only the basic ones of this process, and the given settings."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT}
    return {**kept, "PYTHONWARNINGS": "error", **settings}


def start_rem(
    *arguments: str,
    settings: Settings,
    cwd: Path | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    in_terminal: bool = False,
) -> ForkedProcess:
    """Start `rem` from the fork server."""
    return ForkedProcess(
        [str(REM), *arguments],
        environment=environment(settings),
        folder=cwd or REPOSITORY / "tests",
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        in_terminal=in_terminal,
    )


def rem(
    *arguments: str, settings: Settings, cwd: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `rem` to its end. The caller checks the exit code."""
    if any(name.startswith(_READ_AT_START) for name in settings):
        return rem_in_new_python(*arguments, settings=settings, cwd=cwd, stdin=stdin)
    pipe = subprocess.PIPE
    process = start_rem(*arguments, settings=settings, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe)
    printed, errors = process.communicate(stdin, timeout=120)
    return subprocess.CompletedProcess([str(REM), *arguments], process.wait(), printed, errors)


def rem_in_new_python(
    *arguments: str, settings: Settings, cwd: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the installed `rem` script to its end, as a user does."""
    return subprocess.run(
        [str(REM), *arguments],
        env=environment(settings),
        cwd=cwd or REPOSITORY / "tests",
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run_python(
    code: str, *arguments: str, settings: Settings, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in Python to its end. The caller checks the exit code."""
    command = ["-c", code, *arguments]
    pipe = subprocess.PIPE
    process = ForkedProcess(
        command, environment=environment(settings), folder=cwd or REPOSITORY, stdout=pipe, stderr=pipe
    )
    printed, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.wait(), printed, errors)


def output(*arguments: str, settings: Settings, cwd: Path | None = None) -> str:
    """Run `rem`, check that it succeeds, and return its standard output."""
    done = rem(*arguments, settings=settings, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout
