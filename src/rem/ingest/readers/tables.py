"""CSV and TSV."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from rem.errors import FileTooLargeError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.text import decode_text

_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"[\s\d.,:;%+\-/€$£()]+")


def format_rows(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """One line for each row that is not empty, the first one included. Every cell is in it.

    If the first row gives names to the columns, each value of the others stands behind its name.
    """
    names: list[str] | None = None
    is_first = True
    for row in rows:
        cells = [_SPACE.sub(" ", cell).strip() for cell in row]
        if not any(cells):
            continue
        if is_first:
            names = cells if _are_names(cells) else []
            is_first = False
            yield "; ".join(filter(None, cells))
        else:
            yield "; ".join(_cell(names or [], place, cell) for place, cell in enumerate(cells) if cell)


def _are_names(cells: Sequence[str]) -> bool:
    """Whether a row looks like names of columns: different words, no numbers."""
    given = [cell for cell in cells if cell]
    return (
        len(given) > 1
        and len(set(given)) == len(given)
        and not any(_NUMBER.fullmatch(cell) or len(cell) > 200 for cell in given)
    )


def _cell(names: Sequence[str], place: int, cell: str) -> str:
    name = names[place] if place < len(names) else ""
    return f"{name}: {cell}" if name else cell


_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
_SAMPLE_CHARACTERS = 20_000


def read_table(file: FetchedFile, mime_type: str, most: int) -> ParsedDocument:
    """Every row as a line of its own, at most so many bytes in all."""
    text, facts = decode_text(file)
    delimiter = "\t" if mime_type == "text/tab-separated-values" else detect_delimiter(text)
    # Cells may be as long as the file; the library's own limit is meant for nobody in particular.
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[str] = []
    room = most
    for line in format_rows(rows):
        # Each row repeats the names of the columns, which may be longer than all else.
        room -= len(line) + 1
        if room < 0:
            raise FileTooLargeError(
                f"The text of {file.name} is larger than {most:,} bytes (INGEST__MAX_EXPANDED_BYTES): "
                "take in smaller parts."
            )
        lines.append(line)
    return ParsedDocument("\n".join(lines) + "\n", "table", mime_type, metadata={**facts, "rows": len(lines)})


def detect_delimiter(text: str) -> str:
    """What separates the cells: the sign that cuts the first lines into the most even rows."""
    sample = text[:_SAMPLE_CHARACTERS].splitlines()[:_SAMPLE_LINES]
    return max(_DELIMITERS, key=lambda delimiter: _evenness(sample, delimiter))


def _evenness(lines: list[str], delimiter: str) -> tuple[float, int]:
    """The share of rows with as many cells as the first; nothing if it has only one."""
    counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    if not counts or counts[0] < 2:
        return 0.0, 0
    return sum(count == counts[0] for count in counts) / len(counts), counts[0]
