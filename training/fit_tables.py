"""Fit what chooses the rows of a table that a question is about (rem/answers/row_choice.py).

    python -m training.fit_tables src/rem/search/models

The tables are those on which the reader was not trained. Each question is asked of its table and of another one. The
figures are of tables that are left out of the fit, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rem.answers.row_choice import ROW_FEATURES, TABLE_FEATURES, find_row_features, find_table_features
from rem.search.models.files import TABLES
from rem.search.reader import Reader, RowReading, RowText
from training.bundle import write_files
from training.fit_confidence import fit_weights
from training.tables import FOLDER, TableQuestion, WrittenTable, read_tables

COMMAND = "python -m training.fit_tables src/rem/search/models"
NOT_READ = RowReading(-8.0, 0.0, (0, 0), (0, 0), -8.0)


@dataclass(frozen=True, slots=True)
class AskedCase:
    """A question that was asked of a table."""

    table: str
    rows: list[tuple[float, ...]]
    """The features of each row."""
    is_row: list[bool]
    whole: tuple[float, ...]
    """The features of the table."""

    @property
    def is_answered(self) -> bool:
        """Whether the table answers."""
        return any(self.is_row)


async def make_cases(reader: Reader, tables: Sequence[WrittenTable]) -> list[AskedCase]:
    """Return each question with its table, and with another one, which does not answer it."""
    generator, cases = random.Random(1), []
    for table in tables:
        for question in table.questions:
            other = generator.choice([other for other in tables if other is not table])
            cases.append(await _ask(reader, table, question, question.rows, table.caption))
            cases.append(await _ask(reader, other, question, (), table.caption))
    return cases


async def _ask(
    reader: Reader, table: WrittenTable, question: TableQuestion, right: Sequence[int], fold: str
) -> AskedCase:
    texts = [row.write()[0] for row in table.build_rows()]
    found = await reader.read(question.ask, [RowText(text, table.caption) for text in texts])
    readings = [reading or NOT_READ for reading in found]
    rows = find_row_features(question.ask, question.kind, texts, readings)
    whole = find_table_features(question.ask, question.kind, table.caption, texts, readings)
    return AskedCase(fold, rows, [place in right for place in range(len(texts))], whole)


def fit_rows(cases: Sequence[AskedCase]) -> dict[str, float]:
    """Return the weights that tell the rows of a question from the others of its table."""
    kept = [case for case in cases if case.is_answered]
    matrix = np.array([row for case in kept for row in case.rows])
    return fit_weights(ROW_FEATURES, matrix, np.array([right for case in kept for right in case.is_row], dtype=float))


def fit_whole(cases: Sequence[AskedCase]) -> dict[str, float]:
    """Return the weights that tell tables that answer from others."""
    matrix = np.array([case.whole for case in cases])
    return fit_weights(TABLE_FEATURES, matrix, np.array([case.is_answered for case in cases], dtype=float))


def _apply(weights: dict[str, float], names: Sequence[str], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = 1 / (1 + np.exp(-(matrix @ [weights[name] for name in names] + weights["bias"])))
    return shares


def measure(cases: Sequence[AskedCase]) -> None:
    """Print figures of tables that are left out of the fit."""
    exact = best = kept = 0
    answered, right = [], []
    for table in dict.fromkeys(case.table for case in cases):
        others = [case for case in cases if case.table != table]
        rows, whole = fit_rows(others), fit_whole(others)
        for case in (case for case in cases if case.table == table):
            answered.append(_apply(whole, TABLE_FEATURES, np.array([case.whole]))[0])
            right.append(case.is_answered)
            if case.is_answered:
                shares = _apply(rows, ROW_FEATURES, np.array(case.rows))
                kept += 1
                exact += [bool(share >= 0.5) for share in shares] == case.is_row
                best += case.is_row[int(shares.argmax())]
    print(f"{kept} questions: best row {best / kept:.2f}, exactly the right rows {exact / kept:.2f}")
    sure, is_right = np.array(answered), np.array(right)
    for limit in (0.3, 0.5, 0.6, 0.7, 0.8):
        shown = sure >= limit
        print(f"table from {limit}: right {shown[is_right].mean():.2f}, false {shown[~is_right].mean():.2f}")


async def run(out: Path) -> None:
    """Fit, write and measure."""
    reader = Reader(threads=2)
    tables = [table for path in sorted(FOLDER.glob("*.yaml")) for table in read_tables(path) if table.is_held_out]
    cases = await make_cases(reader, tables)
    weights = {"row": fit_rows(cases), "table": fit_whole(cases)}
    write_files(out, {TABLES: (json.dumps({"command": COMMAND, "weights": weights}, indent=2) + "\n").encode()})
    measure(cases)
    await reader.close()


def main() -> None:
    """Read the folder, and fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    asyncio.run(run(parser.parse_args().out))


if __name__ == "__main__":
    main()
