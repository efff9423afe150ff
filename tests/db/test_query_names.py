"""Every SQL statement that the code names exists, and every statement is used. Type checks cannot see these names."""

from __future__ import annotations

import re

from rem.db.sql import parse_blocks
from tests.source_code import SOURCE

STATEMENTS = {
    (path.relative_to(SOURCE).with_suffix("").as_posix(), name)
    for path in SOURCE.rglob("*.sql")
    for name in parse_blocks(path.read_text(encoding="utf-8"))
}
CODE = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
_NAMED = re.compile(r"""\b(?:query|query_table|fetch|fetch_owned)\(\s*["']([a-z_/]+)["'],\s*["'](\w+)["']""")


def test_every_named_statement_exists() -> None:
    used = set(_NAMED.findall(CODE))
    assert len(used) > 100
    assert not used - STATEMENTS


def test_every_statement_is_used() -> None:
    names = set(re.findall(r"[\"'](\w+)[\"']", CODE))
    prefixes = tuple(re.findall(r'f"(\w+_){', CODE))
    unused = [f"{file}.sql: {name}" for file, name in STATEMENTS if name not in names and not name.startswith(prefixes)]
    assert sorted(unused) == []
