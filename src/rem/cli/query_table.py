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
from rem.models.results import Hit, Result

MAX_CELL_CHARS = 160
INDENT = "    "
MIN_TEXT_WIDTH = 40
"""Space for the text of a row in a table. With less, the text gets lines of its own."""
SUMMARY_FIELDS = ("summary", "description", "role", "uri", "name")
"""Shown of a hit without a text."""
COLUMNS_BY_VERB = {
    "LOOKUP": ("table", "key", "asked", "date", "summary"),
    "FUZZY": ("table", "key", "score", "matched", "date", "summary"),
    "SEARCH": ("table", "key", "score", "date", "passage"),
    "TRAVERSE": ("depth", "table", "key", "rel_type", "direction", "weight", "path"),
}
EDGE_COLUMNS = ("table", "key", "rel_type", "direction", "count", "destinations")


def print_rows(result: Result) -> None:
    """Print the rows as a table. On a narrow terminal, print each row as a line with its text below.

    Nothing is cut to a width in a file or pipe.
    """
    console = Console(width=get_output_width())
    columns, values = _list_values(result)
    cells = [[_format_cell(value) for value in row] for row in values]
    if not columns:
        print_to_stderr(f"{len(cells):,} row{'s' if len(cells) > 1 else ''} without columns.")
    elif result.rows and not fits_width(console.width, [columns, *cells]):
        print_records(console, columns, cells)
    elif not result.rows and get_last_width(console.width, [columns, *cells]) < MIN_TEXT_WIDTH:
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


def _list_values(result: Result) -> tuple[list[str], list[list[Any]]]:
    """Return the columns of the table, and the values of each row."""
    if result.edges:
        return list(EDGE_COLUMNS), [[getattr(group, column) for column in EDGE_COLUMNS] for group in result.edges]
    if not result.hits:
        columns = list(dict.fromkeys(name for row in result.rows for name in row))
        return columns, [[row.get(column) for column in columns] for row in result.rows]
    columns = list(COLUMNS_BY_VERB[result.verb])
    return columns, [[_get_value(hit, column) for column in columns] for hit in result.hits]


def _get_value(hit: Hit, column: str) -> Any:
    match column:
        case "date":
            return hit.happened_at and hit.happened_at.date().isoformat()
        case "matched":
            return hit.fuzzy and hit.fuzzy.matched
        case "summary":
            return _summarize(hit)
        case "passage":
            # An answer in plain language can have hits of two queries.
            return _summarize(hit) if hit.passage is None else f"{_mark_passage(hit)}{hit.passage.text}"
        case "path":
            return " → ".join(hit.walk.path if hit.walk else ())
        case "depth" | "rel_type" | "direction" | "weight":
            return getattr(hit.walk, column, None)
    return getattr(hit, column)


def _summarize(hit: Hit) -> Any:
    others = (hit.record.get(field) for field in SUMMARY_FIELDS)
    return hit.text or next((value for value in others if value), "")


def _mark_passage(hit: Hit) -> str:
    mark = f"(superseded by {hit.replaced_by.key}) " if hit.replaced_by else ""
    return f"{mark}(said by the {hit.said_by}) " if hit.said_by else mark


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
