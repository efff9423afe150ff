"""Run `python -m bench` in tests, forked from a process that has imported REM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.rem_command import REPOSITORY, Settings, environment, run_python

BENCH = (sys.executable, "-m", "bench")
_PROGRAM = f"""
import runpy, sys
sys.path.insert(0, {str(REPOSITORY)!r})
runpy.run_module("bench", run_name="__main__", alter_sys=True)
"""


def bench(*arguments: str, settings: Settings, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m bench` to its end. The caller checks the exit code."""
    return run_python(_PROGRAM, *arguments, settings=settings, cwd=cwd)


def bench_output(*arguments: str, settings: Settings, cwd: Path | None = None) -> str:
    """Run `python -m bench`, check that it succeeds, and return its standard output."""
    done = bench(*arguments, settings=settings, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bench_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a `BENCH` process that is started in another folder than the repository."""
    return {**environment(settings), "PYTHONPATH": str(REPOSITORY)}
