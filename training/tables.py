"""Read the tables with questions, check them, and make examples of them for the reader.

    python -m training.tables training/tables/*.yaml

The format is described in training/tables/README.md.
"""

from __future__ import annotations

import argparse
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rem.answers.tables import AskedRow
from rem.search.reader import MessageType, RowText, join_row

FOLDER = Path(__file__).parent / "tables"
QUESTION_KINDS = tuple(MessageType)[:7]
COMPUTED = (MessageType.SUM, MessageType.MAXIMUM, MessageType.MINIMUM)
MAX_RIGHT, MAX_WRONG, MAX_OTHER = 6, 6, 2
"""The rows that are read with a question: those that it is about, others of its table, and of other tables."""
HELD_OUT = 10
"""One table of so many is only measured."""
_NUMBER = re.compile(r"\d")
_BOX = re.compile(r"\[([ xX])\]\s*")


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """A question, with the rows that it is about and the column that answers."""

    kind: MessageType
    ask: str
    rows: Sequence[int]
    """Their places, from 0; none if the table does not answer."""
    column: str | None


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table, a list, or fields."""

    caption: str
    columns: Sequence[str]
    """None for lists and fields."""
    rows: Sequence[Sequence[str]]
    """The cells; of a list the item with its box; of fields the key and the value."""
    questions: Sequence[TableQuestion]
    is_fields: bool = False

    @property
    def is_held_out(self) -> bool:
        """Whether the table is only measured."""
        return zlib.crc32(self.caption.encode()) % HELD_OUT == 0

    def build_rows(self) -> list[AskedRow]:
        """Return the rows as they are stored."""
        return [self._build_row(row) for row in self.rows]

    def _build_row(self, row: Sequence[str]) -> AskedRow:
        if self.is_fields:
            return AskedRow(row[:1], row[1:])
        if self.columns:
            return AskedRow(self.columns, row)
        box = _BOX.match(row[0])
        return AskedRow((), (row[0][box.end() :],), box[1] != " ") if box else AskedRow((), row)


def make_table_examples(tables: Sequence[WrittenTable], generator: random.Random) -> Iterator[dict[str, Any]]:
    """Yield the questions with rows that they are about and others, and with the kinds of what they ask for."""
    for table in tables:
        others = [other for other in tables if other is not table]
        for question in table.questions:
            rows = list(_choose_rows(table, question, generator))
            sample = generator.sample(others, min(MAX_OTHER, len(others)))
            rows += [[*_write(other, generator.randrange(len(other.rows)), None), True] for other in sample]
            yield {"ask": question.ask, "rows": rows}
            yield {"text": question.ask, "previous": None, "type": str(question.kind), "continues": None}


def _choose_rows(table: WrittenTable, question: TableQuestion, generator: random.Random) -> Iterator[list[Any]]:
    right = list(question.rows)
    wrong = [place for place in range(len(table.rows)) if place not in right]
    for place in generator.sample(right, min(MAX_RIGHT, len(right))):
        yield [*_write(table, place, question), True]
    for place in generator.sample(wrong, min(MAX_WRONG, len(wrong))):
        # Where no row answers, those of the table are the nearest ones all the same.
        yield [*_write(table, place, None), bool(right)]


def _write(table: WrittenTable, place: int, question: TableQuestion | None) -> list[Any]:
    """Return a row as it is read, whether it answers, and where its cell is that answers."""
    row = table.build_rows()[place]
    line, cells = row.write()
    text, start = join_row(RowText(line, table.caption))
    if question is None:
        return [text, 0, None, None]
    if question.column is None and table.columns:
        return [text, 1, None, None]
    first, last = cells[table.columns.index(question.column) if question.column else 0]
    return [text, 1, start + first, start + last]


def read_tables(path: Path) -> list[WrittenTable]:
    """Return the tables of a file. Raise ValueError with all that is wrong in it."""
    tables = [_read_table(item) for item in yaml.safe_load(path.read_text(encoding="utf-8"))]
    problems = [f"{path.name}, {table.caption}: {text}" for table in tables for text in _check(table)]
    if problems:
        raise ValueError("\n".join(problems))
    return tables


def _read_table(item: dict[str, Any]) -> WrittenTable:
    fields = item.get("fields")
    if fields is not None:
        rows = [[str(key), str(value)] for key, value in fields.items()]
    elif "items" in item:
        rows = [[str(text)] for text in item["items"]]
    else:
        rows = [["" if cell is None else str(cell) for cell in row] for row in item["rows"]]
    columns = [str(name) for name in item.get("columns", ())]
    questions = [_read_question(question, len(rows)) for question in item["questions"]]
    return WrittenTable(str(item["caption"]), columns, rows, questions, fields is not None)


def _read_question(question: Sequence[Any], count: int) -> TableQuestion:
    kind, ask, rows, *column = question
    places = range(count) if rows == "all" else [int(row) - 1 for row in rows]
    return TableQuestion(MessageType(kind), str(ask), list(places), str(column[0]) if column else None)


def _check(table: WrittenTable) -> Iterator[str]:
    if any(len(row) != len(table.columns) for row in table.rows if table.columns):
        yield "a row has more or fewer cells than there are columns"
    asked = Counter(question.ask for question in table.questions)
    yield from (f"asked twice: {ask}" for ask, count in asked.items() if count > 1)
    for question in table.questions:
        yield from (f"{question.ask}: {text}" for text in _check_question(table, question))


def _check_question(table: WrittenTable, question: TableQuestion) -> Iterator[str]:
    if question.kind not in QUESTION_KINDS:
        yield f"{question.kind} is no kind of question"
    if any(not 0 <= row < len(table.rows) for row in question.rows):
        yield "there is no such row"
        return
    if question.column is not None and question.column not in table.columns:
        yield f"there is no column {question.column}"
        return
    if question.kind in COMPUTED and question.rows:
        if question.column is None and table.columns:
            yield "name the column that is computed"
        place = table.columns.index(question.column) if question.column else -1
        if any(not _NUMBER.search(table.rows[row][place]) for row in question.rows):
            yield "a cell that is computed has no number"


def main() -> None:
    """Check files, and say how many questions of each kind they have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    tables = [table for path in parser.parse_args().files for table in read_tables(path)]
    kinds = Counter(str(question.kind) for table in tables for question in table.questions)
    unanswered = sum(not question.rows for table in tables for question in table.questions)
    print(f"{len(tables)} tables, {sum(kinds.values())} questions, {unanswered} without an answer: {dict(kinds)}")


if __name__ == "__main__":
    main()
