"""Records: read the tables, lists and fields of a text, and store them beside the rows that contain them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from rem.ingest.models import ParsedDocument
from rem.ingest.readers.mime import MARKDOWN
from rem.knowledge.markdown import Block, Heading, ItemList, MarkdownText, Paragraph, TextTable, parse_markdown
from rem.models import Record, RecordKind, Resource
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.encryption.sealed_values import Sealer

ORIGIN = "ingest"
MAX_RECORDS = 50_000
"""Records of one file. The other rows of a longer table are found as text."""
MAX_COLUMNS = 200
MAX_VALUE_CHARS = 2000
MAX_CAPTION_CHARS = 300
MAX_CONTENT_CHARS = 8000
MAX_INTRODUCTION_CHARS = 200
MAX_LINE_CHARS = 100
"""A single line of at most this length directly before a table or list belongs to its caption."""
MAX_FIELD_NAME_WORDS = 5
_FIELD = re.compile(r"(?P<name>[^\W_][^:;|?!]{0,48}?)[ \t]*::?[ \t]+(?P<value>\S.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """A record of a text that is not stored yet."""

    kind: RecordKind
    caption: str
    headers: tuple[str, ...]
    values: tuple[str, ...]
    block: int
    ordinal: int
    start: int
    end: int
    checked: bool | None = None

    @property
    def content(self) -> str:
        """The record as a line: the caption, and each value after its header."""
        names = self.headers or ("",) * len(self.values)
        cells = (f"{name} {value}".strip() for name, value in zip(names, self.values, strict=True) if value)
        box = "" if self.checked is None else "[x] " if self.checked else "[ ] "
        line = box + ", ".join(cells)
        return (f"{self.caption}: {line}" if self.caption else line)[:MAX_CONTENT_CHARS]


@dataclass(frozen=True, slots=True)
class ParsedRecords:
    """The records of a text."""

    records: Sequence[ParsedRecord] = ()
    is_complete: bool = True
    """False if the text has more tables and lists than are stored as records."""


def find_records(document: ParsedDocument) -> ParsedRecords:
    """Return the records of a document: of Markdown, and of the lines that the readers make of tables."""
    if document.format == "table":
        rows = [*_join_lines(document.text)]
        found = _read_lines(rows, document.title or "", 0)
        is_complete = True
    elif document.format == "markdown":
        parsed = parse_markdown(document.text)
        found, is_complete = _read_blocks(parsed, document.title or ""), parsed.is_complete
    else:
        return ParsedRecords()
    records: list[ParsedRecord] = []
    for record in found:
        if len(records) == MAX_RECORDS:
            return ParsedRecords(records, is_complete=False)
        records.append(record)
    return ParsedRecords(records, is_complete)


def build_record_rows(
    records: Iterable[ParsedRecord],
    chunks: Sequence[tuple[int, int, UUID]],
    file_id: UUID | None,
    sealer: Sealer | None,
    **common: Any,
) -> list[Record]:
    """Return the rows for the records of a file, or of a note that is no file, with `common` as further fields.

    `chunks` are the places of its chunks, in order, with their ids; a note is one. A record that starts in no chunk is
    left out: the owner has deleted or forgotten that part. The id of a record follows from its content, so
    that it keeps its id, or stays deleted, when the file is ingested in another version.
    """
    starts = [start for start, _, _ in chunks]
    seen: Counter[str] = Counter()
    rows: list[Record] = []
    for record in records:
        place = bisect_right(starts, record.start) - 1
        if place < 0 or record.start >= chunks[place][1]:
            continue
        content = record.content
        digest = sealer.digest(content) if sealer is not None and sealer.is_sealing else content
        seen[digest] += 1
        rows.append(
            Record(
                id=uuid5(file_id or chunks[place][2], f"{seen[digest]} {digest}"),
                kind=record.kind,
                caption=record.caption,
                headers=list(record.headers),
                values=list(record.values),
                content=content,
                checked=record.checked,
                block=record.block,
                ordinal=record.ordinal,
                source_id=chunks[place][2],
                file_id=file_id,
                starts=record.start,
                ends=record.end,
                **{"origin": ORIGIN, **common},
            )
        )
    return rows


async def store_note_records(store: Store, note: Resource) -> None:
    """Store the records of a note that is no file, when the note is stored. Call it in the same transaction."""
    found = find_records(ParsedDocument(note.content, "markdown", MARKDOWN))
    places = [(0, len(note.content), note.id)]
    common = {"tags": note.tags, "origin": note.origin, "sources": [note.key] if note.key else []}
    await store.upsert_many(build_record_rows(found.records, places, None, store.executor.sealer, **common))


def _read_blocks(parsed: MarkdownText, title: str) -> Iterator[ParsedRecord]:
    """Yield the records of a Markdown text in their order."""
    number = 0
    for place, (name, value) in enumerate(parsed.front_matter.items()):
        if values := tuple(_list_scalars(value)):
            headers = (collapse_spaces(name)[:MAX_VALUE_CHARS],) * len(values)
            yield ParsedRecord(RecordKind.FIELD, title, headers, values, number, place, 0, parsed.front_matter_end)
    path: list[Heading] = []
    previous: Block | None = None
    for block in parsed.blocks:
        if isinstance(block, Heading):
            while path and path[-1].level >= block.level:
                path.pop()
            path.append(block)
        else:
            headings = [heading.text for heading in path]
            context = [*headings, _find_introduction(previous), getattr(block, "parent", "")]
            found = list(_read_block(block, _join_caption(context if any(context) else [title]), number + 1))
            number += bool(found)
            yield from found
        previous = block


def _read_block(block: Block, caption: str, number: int) -> Iterator[ParsedRecord]:
    if isinstance(block, TextTable):
        headers = tuple(map(_cut, block.headers[:MAX_COLUMNS]))
        for place, row in enumerate(block.rows):
            if any(row.cells):
                cells = tuple(map(_cut, row.cells[: len(headers)]))
                yield ParsedRecord(RecordKind.ROW, caption, headers, cells, number, place, row.start, row.end)
    elif isinstance(block, ItemList):
        yield from _read_list(block, caption, number)
    elif isinstance(block, Paragraph):
        lines = [(block.start, block.end, line) for line in block.lines]
        fields = [match_field(line) for line in block.lines]
        if len(lines) > 1 and (names := _find_column_names(block.lines)):
            yield from _read_rows(lines[1:], names, caption, number)
        elif len(fields) > 1 and all(fields):
            for place, named in enumerate(filter(None, fields)):
                yield _make_field(named, caption, number, place, block.start, block.end)


def _read_list(block: ItemList, caption: str, number: int) -> Iterator[ParsedRecord]:
    """Yield the items of a list; as fields if all of them have the form `key: value`."""
    items = [item for item in block.items if item.text]
    fields = [match_field(item.text) for item in items]
    are_fields = len(items) > 1 and all(fields) and all(item.checked is None for item in items)
    for place, (item, named) in enumerate(zip(items, fields, strict=True)):
        if are_fields and named:
            yield _make_field(named, caption, number, place, item.start, item.end)
        else:
            text = (_cut(item.text),)
            yield ParsedRecord(
                RecordKind.ITEM, caption, (), text, number, place, item.start, item.end, checked=item.checked
            )


def _make_field(named: tuple[str, str], caption: str, number: int, place: int, start: int, end: int) -> ParsedRecord:
    return ParsedRecord(RecordKind.FIELD, caption, (named[0],), (_cut(named[1]),), number, place, start, end)


def match_field(line: str) -> tuple[str, str] | None:
    """Return the name and the value of a line `key: value`; None for any other line."""
    match = _FIELD.fullmatch(line)
    if match is None or len(match["name"].split()) > MAX_FIELD_NAME_WORDS:
        return None
    return match["name"].strip(), match["value"].strip()


def _find_introduction(block: Block | None) -> str:
    """Return the text of a paragraph that introduces the block after it."""
    if not isinstance(block, Paragraph) or not block.lines:
        return ""
    text = block.text
    is_line = len(block.lines) == 1 and len(text) <= MAX_LINE_CHARS
    is_announcement = text.endswith(":") and len(text) <= MAX_INTRODUCTION_CHARS
    return text.rstrip(": ") if is_line or is_announcement else ""


def _join_caption(parts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, parts)))[:MAX_CAPTION_CHARS]


def _cut(value: str) -> str:
    return value if len(value) <= MAX_VALUE_CHARS else value[: MAX_VALUE_CHARS - 1] + "…"


def _list_scalars(value: Any) -> Iterator[str]:
    """Yield the texts of a value of the front matter. A nested object is left out."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str | int | float) and (text := collapse_spaces(str(item))):
            yield _cut(text)


def _join_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a text that are not empty, with their places."""
    start = 0
    for line in text.split("\n"):
        if line.strip():
            yield start, start + len(line), line.strip()
        start += len(line) + 1


def _read_lines(lines: Sequence[tuple[int, int, str]], caption: str, number: int) -> Iterator[ParsedRecord]:
    """Yield the records of the lines that a reader made of a table (ingest/readers/tables.py)."""
    names = _find_column_names([line for _, _, line in lines[:2]])
    yield from _read_rows(lines[1:] if names else lines, names, caption, number)


def _find_column_names(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns in the first line; none if the second line does not begin with one of them."""
    names = tuple(lines[0].split("; ")) if lines else ()
    is_used = len(names) > 1 and len(lines) > 1 and any(lines[1].startswith(f"{name}: ") for name in names)
    return names if is_used else ()


def _read_rows(
    lines: Iterable[tuple[int, int, str]], names: Sequence[str], caption: str, number: int
) -> Iterator[ParsedRecord]:
    columns = {name: column for column, name in enumerate(names[:MAX_COLUMNS])}
    headers = tuple(columns)
    for place, (start, end, line) in enumerate(lines):
        cells = _split_named_cells(line, columns) if columns else line.split("; ")[:MAX_COLUMNS]
        yield ParsedRecord(RecordKind.ROW, caption, headers, tuple(map(_cut, cells)), number, place, start, end)


def _split_named_cells(line: str, columns: dict[str, int]) -> list[str]:
    """Return the cells of a line `name: value; name: value`. A part without a later name belongs to the cell before."""
    cells = [""] * len(columns)
    current = -1
    for part in line.split("; "):
        name, colon, value = part.partition(": ")
        column = columns.get(name, -1) if colon else -1
        if column > current:
            current = column
            cells[current] = value
        elif current >= 0:
            cells[current] += f"; {part}"
    return cells
