"""Answer from the rows of a table or a list: a cell in words, the matching rows, their number, a sum, an extreme.

The reader reads each row with the question (`row_choice.py` chooses among them), and which piece of it answers. Code
counts, adds and compares. Where a row is neither clearly meant nor clearly not, nothing is counted or added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from rem.answers.sources import shorten, to_line
from rem.search.reader import MessageType, RowReading

MAX_LISTED = 20
MAX_CELL_CHARS = 80
MAX_READ_CELL_CHARS = 200
MIN_ROW = 0.5
"""A row that the question is less likely about is none of its rows."""
MIN_GAP = 0.2
"""Rows that count are at least so far from all others: a smaller gap leaves open what is to be counted or added."""
MIN_EVERY_ROW = 0.4
"""If the reader cannot tell the rows apart, and each is at least so likely, the question may be about all of them."""
SURE_ROW = 0.6
SAME_SOURCE, OTHER_SOURCE = 0.8, 0.4
"""The factors of a table in the best row, and of another one."""
_BOXES = {None: "", True: " (done)", False: " (not done)"}


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row of a table, an item of a list, or a line `key: value`."""

    headers: Sequence[str]
    values: Sequence[str]
    checked: bool | None = None
    """Whether the box of an item is checked; None without a box."""

    def write(self) -> tuple[str, list[tuple[int, int]]]:
        """Return the row as the reader reads it, and where each of its cells stands."""
        text, places = "", []
        for place, value in enumerate(self.values):
            header = self.headers[place] if place < len(self.headers) else ""
            text += f"{'; ' if place else ''}{f'{header}: ' if header else ''}"
            cell = value.strip()[:MAX_READ_CELL_CHARS] or "-"
            places.append((len(text), len(text) + len(cell)))
            text += cell
        return text + _BOXES[self.checked], places

    @property
    def label(self) -> str:
        """What the row is called: its first cell."""
        return _show(self.values[0]) if self.values else ""


@dataclass(frozen=True, slots=True)
class AskedTable:
    """The rows of one table or list, in their order."""

    caption: str
    rows: Sequence[AskedRow]
    is_complete: bool = True
    """False if only some of its rows are read, so that nothing is counted or added."""

    @property
    def is_fields(self) -> bool:
        """Whether each row is a line `key: value`, whose header is a key of its own."""
        return any(row.headers != self.rows[0].headers for row in self.rows)

    def has_line(self, text: str) -> bool:
        """Return whether a text has all cells of one of the rows."""
        return any(all(value.strip() in text for value in row.values) for row in self.rows)


@dataclass(frozen=True, slots=True)
class TableReading:
    """What the reader says about the rows of a table, for one question."""

    table: AskedTable
    readings: Sequence[RowReading]
    shares: Sequence[float]
    """How sure it is that the question is about each row, from 0 to 1."""
    confidence: float
    """How sure it is that the table answers, from 0 to 1."""

    def estimate(self, *, is_best_source: bool) -> float:
        """Return how sure it is that the answer of the table is right, from 0 to 1."""
        factor = SAME_SOURCE if is_best_source else OTHER_SOURCE
        return factor * self.confidence * max(self.shares) ** 2

    @property
    def rows(self) -> list[int]:
        """The places of the rows that the question is about; the likeliest one, if no other is likely."""
        if self._is_even:
            return list(range(len(self.shares)))
        return [place for place, share in enumerate(self.shares) if share >= MIN_ROW] or [self.best]

    @property
    def is_clear(self) -> bool:
        """Whether every row was read, and the rows that count are far from the others, if there are others."""
        return self.table.is_complete and (self._is_even or self._gap >= MIN_GAP)

    @property
    def is_sure(self) -> bool:
        """Whether the reader tells the rows apart, or finds all of them likely."""
        return self._gap >= MIN_GAP if min(self.shares) < SURE_ROW else True

    @property
    def _is_even(self) -> bool:
        return min(self.shares) >= MIN_EVERY_ROW and max(self.shares) - min(self.shares) < MIN_GAP

    @property
    def _gap(self) -> float:
        """How far the rows that count are from the others; 0 if none counts."""
        counted = [share for share in self.shares if share >= MIN_ROW]
        others = [share for share in self.shares if share < MIN_ROW]
        return min(counted) - max(others, default=0.0) if counted else 0.0

    @property
    def best(self) -> int:
        """The place of the row that the question is most likely about."""
        return max(range(len(self.shares)), key=self.shares.__getitem__)

    def count_columns(self, rows: Sequence[int]) -> Counter[int]:
        """Return how many of these rows answer in each column."""
        votes: Counter[int] = Counter()
        for place in rows:
            _, cells = self.table.rows[place].write()
            start, end = self.readings[place].span
            votes.update(column for column, (first, last) in enumerate(cells) if start < last and end > first)
        return votes

    def find_column(self, rows: Sequence[int]) -> int:
        """Return the column in which most of these rows answer."""
        votes = self.count_columns(rows)
        return votes.most_common(1)[0][0] if votes else 0


def answer_from_table(kind: MessageType, reading: TableReading) -> str | None:
    """Return the answer that a table gives, in words; None if it gives none."""
    return _ANSWERS.get(kind, _answer_fact)(reading)


def describe_cells(row: AskedRow, columns: Sequence[int]) -> str:
    """Return cells of a row in words: "Tom's room is 214"."""
    if not row.headers or len(row.values) < 2:
        return ": ".join(_show(text) for text in (*row.headers[:1], *row.values[:1]) if text)
    cells = [(row.headers[column], row.values[column]) for column in columns if 0 < column < len(row.values)]
    cells = cells or list(zip(row.headers, row.values, strict=False))[1:]
    return "; ".join(
        f"{row.label}'s {_lower(header)} is {_show(value)}" if header else f"{row.label}: {_show(value)}"
        for header, value in cells
        if value.strip()
    )


def _answer_fact(reading: TableReading) -> str:
    """Return the cell that answers, in words."""
    return describe_cells(reading.table.rows[reading.best], [reading.find_column([reading.best])])


def _answer_list(reading: TableReading) -> str:
    if len(reading.rows) == 1:
        return _answer_fact(reading)
    return _list_labels([reading.table.rows[place] for place in reading.rows])


def _answer_count(reading: TableReading) -> str | None:
    # Lines `key: value` are different things, which nobody counts.
    if reading.table.is_fields:
        return _answer_fact(reading)
    if not reading.is_clear:
        return None
    rows, every = reading.rows, len(reading.readings)
    of = "" if len(rows) == every else f" of {every}"
    return f"{len(rows)}{of}: {_list_labels([reading.table.rows[place] for place in rows])}"


def _answer_sum(reading: TableReading) -> str | None:
    found = _read_column(reading)
    if found is None:
        return None
    column, rows, numbers, unit = found
    total = sum(numbers)
    if len(rows) > 2 and any(number * 2 == total for number in numbers):
        # One row is the sum of all others: it may be the total that stands in the table already.
        return None
    parts = ", ".join(f"{row.label} {_show(row.values[column])}" for row in rows[:MAX_LISTED])
    return f"{_format_number(total)}{f' {unit}' if unit else ''} together: {parts}"


def _answer_extreme(reading: TableReading, choose: Callable[..., Decimal], word: str) -> str | None:
    found = _read_column(reading)
    if found is None:
        return None
    column, rows, numbers, _ = found
    extreme = choose(numbers)
    best = [row for row, number in zip(rows, numbers, strict=True) if number == extreme]
    names = " and ".join(row.label for row in best)
    header = _lower(rows[0].headers[column])
    return f"{names}: {_show(best[0].values[column])} is the {word} {header} of {len(rows)}"


_ANSWERS: Mapping[MessageType, Callable[[TableReading], str | None]] = {
    MessageType.LIST: _answer_list,
    MessageType.COUNT: _answer_count,
    MessageType.SUM: _answer_sum,
    MessageType.MAXIMUM: lambda reading: _answer_extreme(reading, max, "highest"),
    MessageType.MINIMUM: lambda reading: _answer_extreme(reading, min, "lowest"),
}


def _read_column(reading: TableReading) -> tuple[int, list[AskedRow], list[Decimal], str] | None:
    """Return the column that is meant, its rows, their numbers and the unit; None if one of them is unclear."""
    # Its import takes the readers of files along.
    from rem.knowledge.record_tables import Quantity, parse_value

    places = reading.rows
    rows = [reading.table.rows[place] for place in places]
    if not reading.is_clear:
        return None
    numeric: dict[int, tuple[list[Decimal], str]] = {}
    for column in range(1, min(len(row.values) for row in rows)):
        values = [parse_value(row.values[column]) for row in rows]
        numbers = [value for value in values if isinstance(value, Quantity)]
        if len(numbers) == len(rows) and len({value.unit for value in numbers}) == 1:
            numeric[column] = [value.number for value in numbers], numbers[0].unit
    meant = [column for column, _ in reading.count_columns(places).most_common() if column in numeric]
    if not meant and len(numeric) != 1:
        return None
    column = next(iter(meant or numeric))
    return column, rows, *numeric[column]


def _format_number(number: Decimal | int) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text and not text.rpartition(".")[2].strip("0") else text


def _list_labels(rows: Sequence[AskedRow]) -> str:
    shown = [describe_cells(row, []) if len(row.values) < 2 else row.label for row in rows[:MAX_LISTED]]
    more = f" and {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
    return f"{', '.join(shown)}{more}"


def _show(value: str) -> str:
    return shorten(to_line(value), MAX_CELL_CHARS)


def _lower(header: str) -> str:
    """Return a header as a word in a sentence. An abbreviation stays."""
    return header if header.isupper() else header[:1].lower() + header[1:]
