"""Every SQL statement that the code names exists. Type checks cannot see these names."""

from __future__ import annotations

import re

from tests.rem_command import REPOSITORY

QUERY_FILES = sorted((REPOSITORY / "src" / "rem" / "db" / "queries").glob("*.sql"))
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "src").rglob("*.py"))


def test_every_named_statement_exists() -> None:
    statements = {
        (path.stem, name)
        for path in QUERY_FILES
        for name in re.findall(r"^-- name: (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    used = set(re.findall(r'\bquery\(\s*"(\w+)",\s*"(\w+)"', SOURCE))
    assert len(used) > 100
    assert not used - statements
