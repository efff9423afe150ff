"""Read CSV and TSV, and format rows of cells as lines of text."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from rem.errors import FileTooLargeError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.text import decode_text

MAX_COLUMN_NAME_CHARS = 200
SAMPLE_LINES = 50
SAMPLE_CHARS = 20_000
"""The start of a table that is used to detect the delimiter."""
_DELIMITERS = ",;\t|"
_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"[\s\d.,:;%+\-/€$£()]+")


def read_table(file: FetchedFile, mime_type: str, max_bytes: int) -> ParsedDocument:
    """Return one line of text for each row. Raise a FileTooLargeError if the text exceeds `max_bytes`."""
    text, metadata = decode_text(file)
    delimiter = "\t" if mime_type == "text/tab-separated-values" else detect_delimiter(text)
    # A cell may be as long as the file; the default limit of the library is 128 KiB.
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[str] = []
    remaining = max_bytes
    for line in format_rows(rows):
        # Each line repeats the names of the columns, so the text may be much larger than the file.
        remaining -= len(line) + 1
        if remaining < 0:
            raise FileTooLargeError(
                f"The text of {file.name} is larger than {max_bytes:,} bytes (INGEST__MAX_EXPANDED_BYTES): split it."
            )
        lines.append(line)
    return ParsedDocument("\n".join(lines) + "\n", "table", mime_type, metadata={**metadata, "rows": len(lines)})


def detect_delimiter(text: str) -> str:
    """Return the delimiter that splits the first lines into the most regular rows."""
    sample = text[:SAMPLE_CHARS].splitlines()[:SAMPLE_LINES]
    return max(_DELIMITERS, key=lambda delimiter: _rate_delimiter(sample, delimiter))


def format_rows(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield one line with all cells for each row that is not empty.

    If the first row contains the names of the columns, the other lines read `name: value; name: value`.
    """
    names: list[str] | None = None
    is_first = True
    for row in rows:
        cells = [_SPACE.sub(" ", cell).strip() for cell in row]
        if not any(cells):
            continue
        if is_first:
            names = cells if _are_column_names(cells) else []
            is_first = False
            yield "; ".join(filter(None, cells))
        else:
            yield "; ".join(_format_cell(names or [], column, cell) for column, cell in enumerate(cells) if cell)


def _rate_delimiter(lines: list[str], delimiter: str) -> tuple[float, int]:
    """Return the share of rows with as many cells as the first, and that number; zeros if the first has one cell."""
    counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    if not counts or counts[0] < 2:
        return 0.0, 0
    return sum(count == counts[0] for count in counts) / len(counts), counts[0]


def _are_column_names(cells: Sequence[str]) -> bool:
    """Return whether the cells are different words without numbers."""
    names = [cell for cell in cells if cell]
    return (
        len(names) > 1
        and len(set(names)) == len(names)
        and not any(_NUMBER.fullmatch(name) or len(name) > MAX_COLUMN_NAME_CHARS for name in names)
    )


def _format_cell(names: Sequence[str], column: int, cell: str) -> str:
    name = names[column] if column < len(names) else ""
    return f"{name}: {cell}" if name else cell
