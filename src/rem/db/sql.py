"""Load named SQL blocks from the `.sql` files, and fill in identifiers of known tables. Values are always bound."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_BLOCK = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")


@cache
def query(file: str, name: str) -> str:
    """Return the block `name` of `{file}.sql`, a path below the package such as "sessions/sessions"."""
    text = files("rem").joinpath(f"{file}.sql").read_text(encoding="utf-8")
    return parse_blocks(text)[name]


def parse_blocks(text: str) -> dict[str, str]:
    """Return the blocks of a file by their names."""
    return {name: block.strip() for name, block in _BLOCK.findall(text)}


def fill(template: str, **parts: str) -> str:
    """Replace each `{part}` of a template. Parts come from table definitions, never from input."""
    for name, part in parts.items():
        template = template.replace(f"{{{name}}}", part)
    return template


def identifier(name: str) -> str:
    """Quote a name for SQL. Raise ValueError if it is not a valid name of a table or column of REM."""
    if not _IDENTIFIER.match(name):
        raise ValueError(f"{name!r} is not an identifier")
    return f'"{name}"'


def literal(text: str) -> str:
    """Quote a text as an SQL string, for DDL, which takes no parameters."""
    return "'" + text.replace("'", "''") + "'"


def query_table(file: str, name: str, table: str, **parts: str) -> str:
    """Return a named block with its `{table}` replaced by an entity table, and its other `{part}`s by `parts`."""
    return fill(query(file, name), table=f"rem.{identifier(table)}", **parts)
