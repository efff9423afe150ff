"""Chunks: the pieces of a text that are remembered, each one coherent and within a number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias, cast

from rem.ingest.chunking.headings import SectionStart, find_section_starts, keeps_sections_apart
from rem.ingest.models import ParsedDocument
from rem.ingest.readers.front_matter import parse_front_matter
from rem.memory.tokens import count_tokens
from rem.retrieval.text_splitter import split_text

CHUNKER_VERSION = 2
"""To be raised when the same text is cut differently, so that files are cut anew when they come again."""
_LARGEST_BLOCK = 50_000
"""In characters: so much is cut as one; of what is longer the tokens could not be counted, and memory would not do."""
_LONGEST_HEADER = 2000
_Cut: TypeAlias = tuple[list[str], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document: `document.text[start:end] == text`."""

    text: str
    ordinal: int
    """From 1."""
    heading_path: tuple[str, ...]
    start: int
    end: int
    metadata: dict[str, Any] = field(default_factory=dict)
    """For rows of a table, its header."""


@dataclass(frozen=True, slots=True)
class _Piece:
    start: int
    end: int
    path: tuple[str, ...]
    tokens: int
    """An estimate: what two texts have together is about the sum."""


def chunk_document(document: ParsedDocument, max_tokens: int) -> list[Chunk]:
    """The document in pieces of at most so many tokens.

    Nothing but white space lies between two of them, before the first and behind the last.
    """
    text = document.text
    pieces = list(_parts(document, max_tokens))
    if not keeps_sections_apart(document.format):
        pieces = list(_packed(pieces, max_tokens))
    spans = [(span, piece.path) for piece in pieces for span in _spans(document, piece, max_tokens)]
    header = _header(document)
    return [
        Chunk(text[start:end], number, path, start, end, {"header": header} if header and number > 1 else {})
        for number, ((start, end), path) in enumerate(spans, 1)
    ]


def _parts(document: ParsedDocument, max_tokens: int) -> Iterator[_Piece]:
    """The parts that the marks divide a text into; what fits is one part with all that belongs to it."""
    text = document.text
    marks = find_section_starts(document)
    if not marks or marks[0].start > 0:
        # What stands before the first mark belongs to no part.
        marks = [SectionStart(0, -1), *marks]
    ends = [*(mark.start for mark in marks[1:]), len(text)]
    counts = [count_tokens(text[mark.start : end]) for mark, end in zip(marks, ends, strict=True)]
    so_far = [0, *accumulate(counts)]
    behind = _ends_of_families(marks)
    outlined = keeps_sections_apart(document.format)
    path = _Path()
    number = 0
    while number < len(marks):
        first, after = number, number + 1
        path.enter(marks[number])
        if outlined:
            if _is_front(text, marks, number) and so_far[number + 2] <= max_tokens:
                path.enter(marks[after])
                after += 1
            while after < len(marks) and _is_bare(text, marks, after - 1):
                path.enter(marks[after])
                after += 1
        elif so_far[behind[number]] - so_far[number] <= max_tokens:
            after = behind[number]
        yield _Piece(marks[first].start, ends[after - 1], path.titles, so_far[after] - so_far[first])
        number = after


def _is_front(text: str, marks: Sequence[SectionStart], number: int) -> bool:
    """Whether a part is front matter and nothing else: it belongs to what follows."""
    if number > 0 or marks[0].level >= 0 or len(marks) < 2:
        return False
    _, end = parse_front_matter(text)
    return end > 0 and not text[end : marks[1].start].strip()


def _ends_of_families(marks: Sequence[SectionStart]) -> list[int]:
    """For each mark, the number of the first one behind it that does not belong to it."""
    ends = [len(marks)] * len(marks)
    open_marks: list[int] = []
    for number, mark in enumerate(marks):
        while open_marks and marks[open_marks[-1]].level >= mark.level:
            ends[open_marks.pop()] = number
        open_marks.append(number)
    if marks and marks[0].level < 0:
        # What stands before the first mark is not above the others.
        ends[0] = min(1, len(marks))
    return ends


def _is_bare(text: str, marks: Sequence[SectionStart], number: int) -> bool:
    """Whether a heading has nothing below it but a deeper heading: alone it would say nothing."""
    mark, following = marks[number], marks[number + 1]
    if mark.title is None or following.level <= mark.level or following.start - mark.start > _LONGEST_HEADER:
        return False
    # The heading itself is the first line, or the first two.
    lines = text[mark.start : following.start].split("\n")
    return not any(line.strip(" \t\r=-") for line in lines[1:])


class _Path:
    """The titles of what a place in a text belongs to."""

    def __init__(self) -> None:
        self._open: list[SectionStart] = []

    def enter(self, mark: SectionStart) -> None:
        while self._open and self._open[-1].level >= mark.level:
            self._open.pop()
        self._open.append(mark)

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(mark.title for mark in self._open if mark.title)


def _packed(pieces: Sequence[_Piece], max_tokens: int) -> Iterator[_Piece]:
    """Neighbours together, as many as fit."""
    held: _Piece | None = None
    for piece in pieces:
        if held is None:
            held = piece
        elif held.tokens + piece.tokens <= max_tokens:
            held = _Piece(held.start, piece.end, _common(held.path, piece.path), held.tokens + piece.tokens)
        else:
            yield held
            held = piece
    if held is not None:
        yield held


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    shared = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared += 1
    return one[:shared]


def _spans(document: ParsedDocument, piece: _Piece, max_tokens: int) -> Iterator[tuple[int, int]]:
    """The stretches of a piece; a heading is not one of its own if something of what follows fits behind it."""
    text = document.text
    spans = list(_within(text, piece, max_tokens))
    if len(spans) > 1 and keeps_sections_apart(document.format):
        (start, end), (first, last) = spans[:2]
        room = max_tokens - count_tokens(text[start:first])
        if _is_only_headings(text[start:end]) and room > max_tokens // 2:
            behind = list(_cut(text[first:last], room))
            joined = start, first + behind[0][1]
            if count_tokens(text[joined[0] : joined[1]]) <= max_tokens:
                spans[:2] = [joined, *((first + begin, first + ends) for begin, ends in behind[1:])]
    yield from spans


def _is_only_headings(text: str) -> bool:
    return all(line.lstrip().startswith("#") for line in text.splitlines() if line.strip())


def _within(text: str, piece: _Piece, max_tokens: int) -> Iterator[tuple[int, int]]:
    """The stretches of a piece that keep within the limit; one if it fits."""
    body = text[piece.start : piece.end]
    for start, end in split_text(body, _LARGEST_BLOCK):
        block = body[start:end]
        for first, last in _cut(block, max_tokens):
            yield piece.start + start + first, piece.start + start + last


def _cut(block: str, max_tokens: int) -> Iterator[tuple[int, int]]:
    if count_tokens(block) <= max_tokens:
        yield 0, len(block)
        return
    from semchunk.semchunk import chunk

    # Its memory of counts is never emptied, and the same text is rarely counted twice.
    _, offsets = cast("_Cut", chunk(block, max_tokens, count_tokens, memoize=False, offsets=True))
    for start, end in offsets:
        for first, last in _bounded(block[start:end], max_tokens):
            yield start + first, start + last


def _bounded(text: str, max_tokens: int) -> Iterator[tuple[int, int]]:
    """The text without the white space around it, in halves while it has too many tokens.

    The library takes for granted that a longer text never has fewer tokens, which is almost always so.
    """
    longest = len(text)
    while True:
        spans = list(split_text(text, longest))
        if longest == 1 or all(count_tokens(text[start:end]) <= max_tokens for start, end in spans):
            yield from spans
            return
        longest = max(1, longest * 5 // 8)


def _header(document: ParsedDocument) -> str | None:
    """The names of a table's columns, so that rows further down can be understood."""
    if document.format != "table":
        return None
    first = document.text.lstrip().partition("\n")[0].strip()
    return first if first and len(first) <= _LONGEST_HEADER else None
