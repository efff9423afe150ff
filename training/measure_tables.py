"""Measure how well the reader finds the rows and cells that questions are about, on tables that it was not trained on.

python -m training.measure_tables [--all] [--misses]
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from rem.answers import records
from rem.answers.reading import AnswerReader
from rem.answers.tables import AskedTable, TableReading
from rem.search.reader import Reader
from training.tables import FOLDER, TableQuestion, WrittenTable, read_tables

MIN_TABLE = 0.5


async def read(reader: Reader, table: WrittenTable, question: TableQuestion) -> TableReading:
    """Return what the reader says about each row."""
    asked = AskedTable(table.caption, table.build_rows())
    (reading,) = await records.read_tables(AnswerReader(reader, reader), question.ask, question.kind, [asked])
    return reading


async def measure(tables: list[WrittenTable], *, shows_misses: bool) -> None:
    """Print the share of questions with the right rows, the right best row and the right column."""
    reader = Reader(threads=2)
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for table in tables:
        for question in table.questions:
            reading = await read(reader, table, question)
            if not question.rows:
                checks = {"rejected": reading.confidence < MIN_TABLE}
            else:
                checks = {
                    f"{question.kind}: rows": reading.rows == sorted(question.rows),
                    f"{question.kind}: best row": reading.best in question.rows,
                }
                if question.column is not None:
                    column = table.columns.index(question.column)
                    checks[f"{question.kind}: column"] = reading.find_column(question.rows) == column
                    checks[f"{question.kind}: all"] = (
                        all(checks.values())
                        if question.kind in ("sum", "maximum", "minimum")
                        else reading.best in question.rows and reading.find_column([reading.best]) == column
                    )
            asked.update(checks.keys())
            right.update(name for name, is_right in checks.items() if is_right)
            wrong = [name for name, is_right in checks.items() if not is_right]
            if shows_misses and wrong:
                shares = " ".join(f"{item.answers:.2f}" for item in reading.readings)
                rows = [row + 1 for row in question.rows]
                print(f"{table.caption} | {question.ask} | {rows} {question.column} | {shares} | {wrong}")
    for name, count in sorted(asked.items()):
        print(f"{name:24} {right[name] / count:.2f}  of {count}")
    await reader.close()


def main() -> None:
    """Measure the held-out tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also the tables of the training")
    parser.add_argument("--misses", action="store_true")
    options = parser.parse_args()
    tables = [table for path in sorted(FOLDER.glob("*.yaml")) for table in read_tables(path)]
    chosen = [table for table in tables if options.all or table.is_held_out]
    asyncio.run(measure(chosen, shows_misses=options.misses))


if __name__ == "__main__":
    main()
