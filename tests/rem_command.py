"""Run the installed `rem` command in tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

REPOSITORY = Path(__file__).parent.parent
REM = Path(sys.executable).with_name("rem")


Settings: TypeAlias = Mapping[str, str]


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables of a user: only the basic ones of this process, and the given settings."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "HOME", "TMPDIR")}
    return {**kept, "PYTHONWARNINGS": "error", **settings}


def rem(
    *arguments: str, settings: Settings, cwd: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `rem` to its end. The caller checks the exit code."""
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


def output(*arguments: str, settings: Settings, cwd: Path | None = None) -> str:
    """Run `rem`, check that it succeeds, and return its standard output."""
    done = rem(*arguments, settings=settings, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout
