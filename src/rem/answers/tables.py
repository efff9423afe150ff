"""Answer from the rows of a table or a list: a cell in words, the matching rows, their number, a sum, an extreme.

Rows are matched by the words of their cells. A question with a word that stands nowhere in the table, or with one that
turns its meaning around, is not answered from it: its rows are shown instead, without a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from rem.answers.sources import shorten, to_line
from rem.search.reader import MessageType
from rem.text import FUNCTION_WORDS, split_words

MAX_LISTED = 20
MAX_CELL_CHARS = 80
MIN_STEM_CHARS = 3
MAX_ENDING_CHARS = 3
"""Two words with the same beginning and so short endings are forms of one word: guest, guests."""
UNREAD_WORDS = frozenset(
    [
        "not",
        "no",
        "without",
        "except",
        "besides",
        "but",
        "other",
        "than",
        "over",
        "under",
        "above",
        "below",
        "before",
        "after",
        "between",
        "since",
        "until",
        "or",
    ]
)
"""A question with one of these is not about the rows that have its words, so that nothing is claimed."""


@dataclass(frozen=True, slots=True)
class AskedRow:
    """A row of a table, an item of a list, or a line `key: value`."""

    headers: Sequence[str]
    values: Sequence[str]

    @property
    def label(self) -> str:
        """What the row is called: its first cell."""
        return _show(self.values[0]) if self.values else ""

    @property
    def words(self) -> frozenset[str]:
        """The words of all cells."""
        return frozenset(word for value in self.values for word in split_words(value))


@dataclass(frozen=True, slots=True)
class AskedTable:
    """The rows of one table or list, in their order."""

    caption: str
    rows: Sequence[AskedRow]

    @property
    def headers(self) -> Sequence[str]:
        """The names of the columns; empty for a list."""
        return self.rows[0].headers if self.rows else ()

    @property
    def is_fields(self) -> bool:
        """Whether each row is a line `key: value`, whose header is a key of its own."""
        return any(row.headers != self.headers for row in self.rows)

    def list_words(self, row: AskedRow) -> frozenset[str]:
        """Return the words that tell a row from the others: those of its cells, and the key of a line `key: value`."""
        return row.words.union(*map(split_words, row.headers)) if self.is_fields else row.words


@dataclass(frozen=True, slots=True)
class RowMatch:
    """The rows of a table that a question is about."""

    rows: Sequence[AskedRow]
    columns: frozenset[int]
    """The columns that the question names."""
    unknown: int
    """The number of words of the question that the table does not explain."""
    is_named: bool
    """Whether the question has a word of the first cell of the only row."""
    is_turned: bool
    """Whether a word such as "not" makes the question one about other rows."""

    @property
    def is_certain(self) -> bool:
        """Whether the table explains every word of the question."""
        return not self.unknown and not self.is_turned


def answer_from_table(question: str, kind: MessageType, table: AskedTable) -> str | None:
    """Return the answer that a table gives for certain, in words; None if it gives none."""
    match = match_rows(question, table)
    if not match.rows:
        return None
    answer = _ANSWERS.get(kind)
    return answer(match, table) if answer is not None else None


def describe_row(question: str, table: AskedTable, line: str) -> str | None:
    """Return a line of a table in words, with the cells that a question names; None for other lines.

    If the words of the question single out a row, it stands for whichever line of its table was read.
    """
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    match = match_rows(question, table)
    row = next((row for row in table.rows if row.headers and list(row.values) == cells), None)
    is_single = len(match.rows) == 1 < len(table.rows) and not match.is_turned
    if is_single and match.rows[0].headers and _is_line_of(table, line):
        row = match.rows[0]
    return None if row is None else describe_cells(row, sorted(match.columns))


def match_rows(question: str, table: AskedTable) -> RowMatch:
    """Return the rows that have all those words of the question that stand in cells, and not all over the table."""
    # The "s" of "Tom's" is no word.
    asked = [word for word in split_words(question) if word not in FUNCTION_WORDS and (len(word) > 1 or word.isdigit())]
    named = frozenset(column for column, header in enumerate(table.headers) if _names_header(header, asked))
    header_words = [word for column in named for word in split_words(table.headers[column])]
    caption = split_words(table.caption)
    rows: Sequence[AskedRow] = table.rows
    unknown = []
    for word in asked:
        having = [row for row in table.rows if _has(table.list_words(row), word)]
        if having:
            rows = [row for row in rows if row in having] if len(having) < len(table.rows) else rows
        elif not _has(caption, word) and not _has(header_words, word):
            unknown.append(word)
    is_named = len(rows) == 1 and any(_has(asked, word) for word in split_words(rows[0].label))
    return RowMatch(rows, named, len(unknown), is_named, not UNREAD_WORDS.isdisjoint(split_words(question)))


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


def _answer_fact(match: RowMatch, table: AskedTable) -> str | None:
    """Return the asked cells of the one row that the question is about."""
    asked = sorted(match.columns - {0})
    if not match.is_certain or len(match.rows) != 1 or not asked or len(table.rows) < 2:
        return None
    return describe_cells(match.rows[0], asked)


def _answer_list(match: RowMatch, table: AskedTable) -> str | None:
    if not match.is_certain:
        return None
    # "Which room is Ines in?" names the row, and asks for its cell.
    cells = _answer_fact(match, table) if match.is_named else None
    return cells or _list_labels(match.rows)


def _answer_count(match: RowMatch, table: AskedTable) -> str | None:
    # Lines `key: value` are different things, which nobody counts.
    if not match.is_certain or table.is_fields:
        return None
    of = "" if len(match.rows) == len(table.rows) else f" of {len(table.rows)}"
    return f"{len(match.rows)}{of}: {_list_labels(match.rows)}"


def _answer_sum(match: RowMatch, _table: AskedTable) -> str | None:
    found = _read_column(match)
    if found is None:
        return None
    column, numbers, unit = found
    rows = list(zip(match.rows, numbers, strict=True))
    if len(rows) > 2:
        # A row with the sum of all others is the total that stands in the table already.
        whole = sum(numbers)
        rows = [pair for pair in rows if pair[1] * 2 != whole] or rows
    total = sum(number for _, number in rows)
    parts = ", ".join(f"{row.label} {_show(row.values[column])}" for row, _ in rows[:MAX_LISTED])
    return f"{_format_number(total)}{f' {unit}' if unit else ''} together: {parts}"


def _answer_extreme(match: RowMatch, choose: Callable[..., Decimal], word: str) -> str | None:
    found = _read_column(match)
    if found is None:
        return None
    column, numbers, _ = found
    extreme = choose(numbers)
    rows = [row for row, number in zip(match.rows, numbers, strict=True) if number == extreme]
    names = " and ".join(row.label for row in rows)
    header = _lower(match.rows[0].headers[column])
    return f"{names}: {_show(rows[0].values[column])} is the {word} {header} of {len(match.rows)}"


_ANSWERS: Mapping[MessageType, Callable[[RowMatch, AskedTable], str | None]] = {
    MessageType.FACT: _answer_fact,
    MessageType.YES_NO: _answer_fact,
    MessageType.LIST: _answer_list,
    MessageType.COUNT: _answer_count,
    MessageType.SUM: _answer_sum,
    MessageType.MAXIMUM: lambda match, _table: _answer_extreme(match, max, "highest"),
    MessageType.MINIMUM: lambda match, _table: _answer_extreme(match, min, "lowest"),
}


def _read_column(match: RowMatch) -> tuple[int, list[Decimal], str] | None:
    """Return the one column with numbers of one unit that is meant, its numbers and the unit; None if it is unclear."""
    # Beside a named column, one more word is most likely the verb: "How many nights do the guests stay?".
    if match.is_turned or match.unknown > bool(match.columns) or not match.rows:
        return None
    columns = {column: _read_numbers(match.rows, column) for column in range(1, len(match.rows[0].headers))}
    numeric = {column: found for column, found in columns.items() if found is not None}
    wanted = [column for column in numeric if column in match.columns] or list(numeric)
    if len(wanted) != 1:
        return None
    numbers, unit = numeric[wanted[0]]
    return wanted[0], numbers, unit


def _read_numbers(rows: Sequence[AskedRow], column: int) -> tuple[list[Decimal], str] | None:
    """Return the numbers of a column and their unit; None if a cell is not a number, or the units differ."""
    # Its import takes the readers of files along.
    from rem.knowledge.record_tables import Quantity, parse_value

    values = [parse_value(row.values[column]) if column < len(row.values) else None for row in rows]
    numbers = [value for value in values if isinstance(value, Quantity)]
    if len(numbers) != len(rows) or len({value.unit for value in numbers}) != 1:
        return None
    return [value.number for value in numbers], numbers[0].unit


def _format_number(number: Decimal | int) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text and not text.rpartition(".")[2].strip("0") else text


def _is_line_of(table: AskedTable, line: str) -> bool:
    """Return whether a line has no words but those of a table: its header, the rule below it, or one of its rows."""
    known = frozenset(word for row in table.rows for text in (*row.headers, *row.values) for word in split_words(text))
    return known.issuperset(split_words(line))


def _names_header(header: str, asked: Sequence[str]) -> bool:
    """Return whether a question names a column: it has all words of the header."""
    words = [word for word in split_words(header) if word not in FUNCTION_WORDS]
    return bool(words) and all(_has(asked, word) for word in words)


def _list_labels(rows: Sequence[AskedRow]) -> str:
    shown = [describe_cells(row, []) if len(row.values) < 2 else row.label for row in rows[:MAX_LISTED]]
    more = f" and {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
    return f"{', '.join(shown)}{more}"


def _has(words: Sequence[str] | frozenset[str], word: str) -> bool:
    return word in words or any(_is_form(word, other) for other in words)


def _is_form(word: str, other: str) -> bool:
    """Return whether two words are forms of one: they have the same beginning, and short endings."""
    same = next(_count_common(word, other))
    return same >= MIN_STEM_CHARS and max(len(word), len(other)) - same <= MAX_ENDING_CHARS and same * 2 > len(word)


def _count_common(word: str, other: str) -> Iterator[int]:
    count = 0
    for first, second in zip(word, other, strict=False):
        if first != second:
            break
        count += 1
    yield count


def _show(value: str) -> str:
    return shorten(to_line(value), MAX_CELL_CHARS)


def _lower(header: str) -> str:
    """Return a header as a word in a sentence. An abbreviation stays."""
    return header if header.isupper() else header[:1].lower() + header[1:]
