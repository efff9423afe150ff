"""SQL lives in `.sql` files as named blocks; Python fills in identifiers of known tables and binds the values."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_BLOCK = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


@cache
def query(file: str, name: str) -> str:
    """The text of one named block of `queries/{file}.sql`."""
    text = (files("rem.db") / "queries" / f"{file}.sql").read_text(encoding="utf-8")
    return named_blocks(text)[name]


def named_blocks(text: str) -> dict[str, str]:
    """The named blocks of a file."""
    return {name: block.strip() for name, block in _BLOCK.findall(text)}


def fill(template: str, **parts: str) -> str:
    """The template with its `{part}`s replaced. Parts are made from table definitions, never from input."""
    for name, part in parts.items():
        template = template.replace(f"{{{name}}}", part)
    return template


def identifier(name: str) -> str:
    """The name quoted for SQL; a name that no table of ours can have is refused."""
    if not _IDENTIFIER.match(name):
        raise ValueError(f"{name!r} is not an identifier")
    return f'"{name}"'


def literal(text: str) -> str:
    """The text as an SQL string, for the few places that take no parameter (DDL)."""
    return "'" + text.replace("'", "''") + "'"
