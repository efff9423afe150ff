"""CSV and TSV."""

from __future__ import annotations

import csv
import io
import sys

from rem.errors import FileTooLargeError
from rem.ingest.content import Document, FetchedFile
from rem.ingest.rows import lines_of
from rem.ingest.text_reader import decode

_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
_SAMPLE_CHARACTERS = 20_000


def read_table(file: FetchedFile, mime_type: str, most: int) -> Document:
    """Every row as a line of its own, at most so many bytes in all."""
    text, facts = decode(file)
    delimiter = "\t" if mime_type == "text/tab-separated-values" else delimiter_of(text)
    # Cells may be as long as the file; the library's own limit is meant for nobody in particular.
    csv.field_size_limit(sys.maxsize)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    lines: list[str] = []
    room = most
    for line in lines_of(rows):
        # Each row repeats the names of the columns, which may be longer than all else.
        room -= len(line) + 1
        if room < 0:
            raise FileTooLargeError(
                f"The text of {file.name} is larger than {most:,} bytes (INGEST__MAX_EXPANDED_BYTES): "
                "take in smaller parts."
            )
        lines.append(line)
    return Document("\n".join(lines) + "\n", "table", mime_type, metadata={**facts, "rows": len(lines)})


def delimiter_of(text: str) -> str:
    """What separates the cells: the sign that cuts the first lines into the most even rows."""
    sample = text[:_SAMPLE_CHARACTERS].splitlines()[:_SAMPLE_LINES]
    return max(_DELIMITERS, key=lambda delimiter: _evenness(sample, delimiter))


def _evenness(lines: list[str], delimiter: str) -> tuple[float, int]:
    """The share of rows with as many cells as the first; nothing if it has only one."""
    counts = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    if not counts or counts[0] < 2:
        return 0.0, 0
    return sum(count == counts[0] for count in counts) / len(counts), counts[0]
