"""The source code of REM, for the tests that read it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "rem"


@cache
def parse_source() -> Mapping[Path, ast.Module]:
    """Return the syntax tree of each file, by its path below `src/rem`. It takes two seconds, so it is done once."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
