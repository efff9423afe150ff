"""The rows of an answer as a table for people: what matters for the verb, one line a row where it fits."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rem.cli.entity_text import escape_control_characters
from rem.cli.runtime import print_to_stderr
from rem.query.result import QueryResult

_LONGEST_CELL = 160
_WIDEST = 10_000
_GAP = 3
_LEAST_ROOM = 20
_SUMMARY_FIELDS = ("summary", "content", "description", "role", "uri", "name")
_COLUMNS = {
    "LOOKUP": ("table", "key", "asked", "summary"),
    "FUZZY": ("table", "key", "score", "matched", "summary"),
    "SEARCH": ("table", "key", "score", "passage"),
    "TRAVERSE": ("depth", "table", "key", "rel_type", "direction", "weight", "path"),
}
_PLAN_COLUMNS = ("table", "key", "rel_type", "direction", "count", "destinations")


def print_rows(result: QueryResult) -> None:
    """Print the rows. On a terminal the last column gives way, and rows of SQL that are too wide stand as records.

    Into a file or pipe nothing is cut to a width.
    """
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDEST
    console = Console(width=width)
    columns = _columns(result)
    values = [[_value(row, column) for column in columns] for row in result.results]
    cells = [[_cell(value) for value in row] for row in values]
    if not columns:
        print_to_stderr(f"{len(cells):,} row{'s' if len(cells) > 1 else ''} without columns.")
    elif result.query_type == "SQL" and not _fits(console.width, [columns, *cells]):
        _print_records(console, columns, cells)
    else:
        _print_table(console, columns, values, cells)


def _print_table(
    console: Console, columns: Sequence[str], values: Sequence[Sequence[Any]], cells: Sequence[Sequence[str]]
) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, column_values in zip(columns, zip(*values, strict=True), strict=True):
        is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in column_values)
        table.add_column(
            Text(escape_control_characters(column)), justify="right" if is_number else "left", overflow="fold"
        )
    room = _room_for_last(console.width, [columns, *cells])
    for row in cells:
        last = Text(row[-1])
        last.truncate(room, overflow="ellipsis")
        table.add_row(*map(Text, row[:-1]), last)
    console.print(table)


def _print_records(console: Console, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """One line a field, and an empty one between records."""
    names = [escape_control_characters(column) for column in columns]
    widest = max(map(cell_len, names))
    for number, row in enumerate(cells):
        if number:
            console.print()
        for name, cell in zip(names, row, strict=True):
            line = f"{name}{' ' * (widest - cell_len(name))}  {cell}".rstrip()
            console.print(Text(line), soft_wrap=True)


def _fits(width: int, lines: Sequence[Sequence[str]]) -> bool:
    """Whether the last column has enough room when the others keep on one line."""
    last = max(cell_len(line[-1]) for line in lines)
    return _left_for_last(width, lines) >= min(last, _LEAST_ROOM)


def _room_for_last(width: int, lines: Sequence[Sequence[str]]) -> int:
    """How wide the last column may be so that the others keep on one line."""
    return max(_left_for_last(width, lines), _LEAST_ROOM)


def _left_for_last(width: int, lines: Sequence[Sequence[str]]) -> int:
    return width - sum(max(map(cell_len, column)) + _GAP for column in list(zip(*lines, strict=True))[:-1]) - 2


def _columns(result: QueryResult) -> list[str]:
    if result.query_type not in _COLUMNS:
        return list(dict.fromkeys(name for row in result.results for name in row))
    is_plan = result.query_type == "TRAVERSE" and "record" not in result.results[0]
    return list(_PLAN_COLUMNS if is_plan else _COLUMNS[result.query_type])


def _value(row: dict[str, Any], column: str) -> Any:
    if column == "summary" and "record" in row:
        return next((row["record"][name] for name in _SUMMARY_FIELDS if row["record"].get(name)), "")
    if column == "passage":
        return row["passage"]["text"]
    if column == "path":
        return " → ".join(row["path"])
    return row.get(column)


def _cell(value: Any) -> str:
    text = escape_control_characters(" ".join(_text(value).split()))
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.4g}"
        case list() if all(isinstance(item, str) for item in value):
            return ", ".join(value)
        case list() | dict():
            return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
