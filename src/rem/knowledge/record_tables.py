"""Load the tables and lists that hits belong to, whole, and read the values of cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from rem.db.sql import query
from rem.fair_map import map_fairly
from rem.ingest.dates import find_day_in_title
from rem.models import Record, RecordKind
from rem.text import compile_bounded

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_TABLE_ROWS = 20_000
"""Rows that are loaded for one question, of all of its tables together."""
MAX_VALUE_CHARS = 60
"""A longer text is no number and no date."""
MAX_DAY_WORDS = 4
_NUMBER = r"(?P<number>[-+−]?\d{1,3}(?:[ \u00a0\u202f'’.,]\d{3})+(?:[.,]\d+)?|[-+−]?\d+(?:[.,]\d+)?)"
_CURRENCY = r"[$€£¥₹₽₩₺₴₿]|[A-Z]{3}|Fr\.|kr\.?|zł|Kč"
_AMOUNT_BEFORE = _NUMBER.replace("number", "other")
_MONEY = compile_bounded(
    rf"(?P<before>{_CURRENCY})[ \u00a0]?{_NUMBER}|{_AMOUNT_BEFORE}[ \u00a0]?(?P<after>{_CURRENCY})", MAX_VALUE_CHARS
)
_QUANTITY = compile_bounded(rf"{_NUMBER}[ \u00a0]?(?P<unit>%|[^\W\d_][\w²³/]{{0,14}}\.?)?", MAX_VALUE_CHARS)
_LAST_PART = re.compile(r"[.,](\d+)\Z")
_DOTTED_DAY = re.compile(r"(\d{1,2})\.[ ]?(\d{1,2})\.[ ]?(\d{4})")
_CURRENCY_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₽": "RUB", "₩": "KRW", "₺": "TRY"}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as a text has it, with its unit: a currency (as its code where that is known), `%`, or a word."""

    number: Decimal
    unit: str = ""
    is_money: bool = False


CellValue: TypeAlias = Quantity | date | None
"""None if a cell is just a text."""


@dataclass(frozen=True, slots=True)
class RecordTable:
    """A table, a list, or the fields of one block, with all of its rows in order."""

    kind: RecordKind
    caption: str
    headers: tuple[str, ...]
    """Empty for a list. Fields have a header each."""
    rows: tuple[Record, ...]
    is_complete: bool
    """False if more rows are stored than were loaded: nothing can be counted or added up."""


async def load_tables(store: Store, ids: Sequence[UUID]) -> list[RecordTable]:
    """Return the tables, lists and fields of some rows: notes, chunks, messages, files or records, by their ids.

    The tables of the first row come first. A table that goes over several chunks is whole.
    """
    async with store.executor.connection() as connection:
        statement = query("knowledge/records", "tables_of_rows")
        found = await connection.fetch(
            statement, store.scope.tenant_id, store.scope.user_id, list(ids), MAX_TABLE_ROWS + 1
        )
    blocks: dict[tuple[str | None, str, int], list[Record]] = {}
    for record in await map_fairly(lambda row: Record.from_row(row[0]), found[:MAX_TABLE_ROWS]):
        blocks.setdefault((record.user_id, str(record.file_id or record.source_id), record.block), []).append(record)
    is_cut = len(found) > MAX_TABLE_ROWS
    last = len(blocks) - 1
    return [
        _build_table(rows, is_complete=not (is_cut and place == last)) for place, rows in enumerate(blocks.values())
    ]


def _build_table(rows: Sequence[Record], *, is_complete: bool) -> RecordTable:
    first = rows[0]
    if first.kind == RecordKind.FIELD:
        headers = tuple(dict.fromkeys(header for row in rows for header in row.headers))
    else:
        headers = tuple(first.headers)
    return RecordTable(first.kind, first.caption, headers, tuple(rows), is_complete)


def parse_value(text: str) -> CellValue:
    """Return the value of a whole cell by its form: a number with its unit, an amount of money, or a day."""
    cell = text.strip()
    if not cell or len(cell) > MAX_VALUE_CHARS:
        return None
    if day := _parse_day(cell):
        return day
    if money := _MONEY.fullmatch(cell):
        sign = money["before"] or money["after"]
        return Quantity(
            _parse_number(money["number"] or money["other"]), _CURRENCY_SIGNS.get(sign, sign), is_money=True
        )
    if quantity := _QUANTITY.fullmatch(cell):
        return Quantity(_parse_number(quantity["number"]), quantity["unit"] or "")
    return None


def _parse_day(cell: str) -> date | None:
    if dotted := _DOTTED_DAY.fullmatch(cell):
        day, month, year = map(int, dotted.groups())
        try:
            return date(year, month, day)
        except ValueError:
            return None
    # A title may go on after its date, and a cell with more than a date is a text.
    found = find_day_in_title(cell) if re.search(r"\d{4}", cell) else None
    return found.date() if found is not None and len(cell.split()) <= MAX_DAY_WORDS else None


def _parse_number(text: str) -> Decimal:
    """Return a number. Its last `.` or `,` is the decimal point, unless it is repeated or a `,` before three digits."""
    sign = -1 if text[0] in "-−" else 1
    digits = re.sub(r"[ \u00a0\u202f'’]", "", text.lstrip("+-−"))
    last = _LAST_PART.search(digits)
    if last is None:
        return sign * Decimal(digits)
    mark = digits[last.start()]
    is_group = digits.count(mark) > 1 or (mark == "," and len(last[1]) == 3 and "." not in digits)
    whole = digits if is_group else digits[: last.start()]
    return sign * Decimal(re.sub(r"[.,]", "", whole) + ("" if is_group else f".{last[1]}"))
