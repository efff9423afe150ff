"""Print the rows of a query result as a table, with the columns that matter for its verb."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rem.cli.output import (
    MIN_LAST_COLUMN_WIDTH,
    fits_width,
    get_last_width,
    get_output_width,
    print_records,
    shorten,
)
from rem.cli.runtime import print_to_stderr
from rem.cli.terminal_text import escape_control_characters
from rem.query.result import QueryResult

MAX_CELL_CHARS = 160
INDENT = "    "
MIN_TEXT_WIDTH = 40
"""Space for the text of a row in a table. With less, the text gets lines of its own."""
ISO_DATE_CHARS = len("2026-11-14")
SUMMARY_FIELDS = ("summary", "text", "content", "description", "role", "uri", "name")
COLUMNS_BY_VERB = {
    "LOOKUP": ("table", "key", "asked", "date", "summary"),
    "FUZZY": ("table", "key", "score", "matched", "date", "summary"),
    "SEARCH": ("table", "key", "score", "date", "passage"),
    "TRAVERSE": ("depth", "table", "key", "rel_type", "direction", "weight", "path"),
}
TRAVERSE_PLAN_COLUMNS = ("table", "key", "rel_type", "direction", "count", "destinations")


def print_rows(result: QueryResult) -> None:
    """Print the rows as a table. On a narrow terminal, print each row as a line with its text below.

    Nothing is cut to a width in a file or pipe.
    """
    console = Console(width=get_output_width())
    columns = _choose_columns(result)
    values = [[_get_value(row, column) for column in columns] for row in result.results]
    cells = [[_format_cell(value) for value in row] for row in values]
    if not columns:
        print_to_stderr(f"{len(cells):,} row{'s' if len(cells) > 1 else ''} without columns.")
    elif result.query_type == "SQL" and not fits_width(console.width, [columns, *cells]):
        print_records(console, columns, cells)
    elif result.query_type != "SQL" and get_last_width(console.width, [columns, *cells]) < MIN_TEXT_WIDTH:
        _print_stacked(console, columns, cells)
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
    last_width = max(get_last_width(console.width, [columns, *cells]), MIN_LAST_COLUMN_WIDTH)
    for row in cells:
        last = Text(row[-1])
        last.truncate(last_width, overflow="ellipsis")
        table.add_row(*map(Text, row[:-1]), last)
    console.print(table)


def _print_stacked(console: Console, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print each row as one line with its key, and its text below, so that no key and no word is broken."""
    for row in cells:
        fields = dict(zip(columns, row, strict=True))
        name = "/".join(part for part in (fields.pop("table", ""), fields.pop("key", "")) if part)
        text = fields.pop(columns[-1])
        details = [
            value if column in ("date", "rel_type", "direction") else f"{column} {value}"
            for column, value in fields.items()
            if value
        ]
        head = Text("  ".join([name, *details]))
        if cell_len(head.plain) > console.width:
            # A key that fills the line would break the date behind it.
            head = Text("\n".join([name, INDENT + "  ".join(details)]))
        console.print(head, soft_wrap=True)
        for line in Text(text).wrap(console, console.width - len(INDENT)) if text else ():
            console.print(Text(f"{INDENT}{line.plain.rstrip()}"), soft_wrap=True)


def _choose_columns(result: QueryResult) -> list[str]:
    if result.query_type not in COLUMNS_BY_VERB:
        return list(dict.fromkeys(name for row in result.results for name in row))
    is_plan = result.query_type == "TRAVERSE" and "record" not in result.results[0]
    return list(TRAVERSE_PLAN_COLUMNS if is_plan else COLUMNS_BY_VERB[result.query_type])


def _get_value(row: dict[str, Any], column: str) -> Any:
    if column == "date":
        return str(row.get("happened_at") or "")[:ISO_DATE_CHARS]
    if column == "passage" and "passage" in row:
        mark = f"(superseded by {row['superseded_by']}) " if row.get("superseded_by") else ""
        return f"{mark}{row['passage']['text'] or ''}"
    # An answer in plain language can have rows of two queries; the rows that agents get have no record.
    if column in ("summary", "passage"):
        record = row.get("record", row)
        return next((record[name] for name in SUMMARY_FIELDS if record.get(name)), "")
    if column == "path":
        return " → ".join(row.get("path") or [])
    return row.get(column)


def _format_cell(value: Any) -> str:
    text = escape_control_characters(" ".join(_to_text(value).split()))
    return shorten(text, MAX_CELL_CHARS)


def _to_text(value: Any) -> str:
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
