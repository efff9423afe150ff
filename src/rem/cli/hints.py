"""The commands that REM tells people to type, so that they can be typed as they are shown."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def command(*words: str, user: str | None = None, tenant: str = "default") -> str:
    """A call of `rem`, in the memory that this call was about."""
    scope = (["--user", user] if user is not None else []) + (["--tenant", tenant] if tenant != "default" else [])
    return f"{_program()} {shlex.join([*words, *scope])}"


def _program() -> str:
    if shutil.which("rem"):
        return "rem"
    called_by = Path(sys.argv[0])
    if called_by.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m rem"
    return shlex.quote(sys.argv[0])
