"""Every SQL statement that the code names exists, and every statement is used. Type checks cannot see these names."""

from __future__ import annotations

import re

from tests.rem_command import REPOSITORY

STATEMENTS = {
    (path.stem, name)
    for path in (REPOSITORY / "src" / "rem" / "db" / "queries").glob("*.sql")
    for name in re.findall(r"^-- name: (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
}
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "src").rglob("*.py"))


def test_every_named_statement_exists() -> None:
    used = set(re.findall(r'\b(?:query|sql|query_table)\(\s*"(\w+)",\s*"(\w+)"', SOURCE))
    assert len(used) > 100
    assert not used - STATEMENTS


def test_every_statement_is_used() -> None:
    names = set(re.findall(r"[\"'](\w+)[\"']", SOURCE))
    prefixes = tuple(re.findall(r'f"(\w+_){', SOURCE))
    unused = [f"{file}.sql: {name}" for file, name in STATEMENTS if name not in names and not name.startswith(prefixes)]
    assert sorted(unused) == []
