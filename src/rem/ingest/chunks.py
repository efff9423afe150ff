"""Cut a document into chunks: sections, and coherent parts of those that have too many tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias, cast

from rem.ingest.models import Format, ParsedDocument
from rem.ingest.readers.markdown import SectionStart, clean_title, find_headings, iter_lines, parse_front_matter
from rem.search.text_splitter import split_text
from rem.sessions.tokens import count_tokens

CHUNKER_VERSION = 3
"""Increase it when the same text gets other chunks, keys or edges: stored files are cut again when ingested again."""
MAX_BLOCK_CHARS = 50_000
"""Longer texts are first split into blocks: semchunk needs too much memory to count the tokens of a longer one."""
MAX_HEADER_CHARS = 2000
TAB_WIDTH = 8
_DEFINITION = re.compile(
    r"\A(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]+\))?|unsafe|"
    r"inline|virtual|override|sealed|partial|extern|open|data|create(?:\s+or\s+replace)?)\s+)*"
    r"(?:def|class|func|function|fn|fun|struct|enum|interface|trait|impl|type|module|namespace|package|protocol|"
    r"extension|object|record|sub|procedure|table|view|trigger|macro_rules!)\b[ \t*]*([\w.$:<>~-]*)",
    re.IGNORECASE,
)
_COMMENT_OR_DECORATOR = re.compile(r"@|#\[|//|#(?!include|define)|--|/\*|\*|\"\"\"")
_ENTRY = re.compile(r"\A-?[ \t]*+[\"']?([\w .$@/-]{1,100})[\"']?[ \t]*[:=]")

_Cut: TypeAlias = tuple[list[str], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a document: `document.text[start:end] == text`."""

    text: str
    ordinal: int
    """Counted from 1."""
    heading_path: tuple[str, ...]
    """The titles of the sections that contain the chunk, the outermost first."""
    start: int
    end: int
    metadata: dict[str, Any] = field(default_factory=dict)
    """`header` for the rows of a table."""


@dataclass(frozen=True, slots=True)
class _Section:
    """One or several adjacent sections that are cut as one."""

    start: int
    end: int
    path: tuple[str, ...]
    tokens: int
    """An estimate: the sum of the tokens of its parts."""


def identify_chunker(max_tokens: int) -> str:
    """Return what identifies this way to cut a text."""
    return f"{CHUNKER_VERSION}:{max_tokens}"


def chunk_document(document: ParsedDocument, max_tokens: int) -> list[Chunk]:
    """Cut a document into chunks of at most `max_tokens` tokens.

    Only white space lies between two chunks, before the first and after the last.
    """
    text = document.text
    sections = list(_split_into_sections(document, max_tokens))
    if not keeps_sections_apart(document.format):
        sections = list(_join_small_sections(sections, max_tokens))
    spans = [(span, section.path) for section in sections for span in _cut_section(document, section, max_tokens)]
    header = _find_table_header(document)
    return [
        Chunk(text[start:end], number, path, start, end, {"header": header} if header and number > 1 else {})
        for number, ((start, end), path) in enumerate(spans, 1)
    ]


def _split_into_sections(document: ParsedDocument, max_tokens: int) -> Iterator[_Section]:
    """Yield the sections of a document. A section that fits into a chunk includes its subsections."""
    text = document.text
    starts = find_section_starts(document)
    if not starts or starts[0].start > 0:
        # The text before the first section belongs to none.
        starts = [SectionStart(0, -1), *starts]
    ends = [*(section.start for section in starts[1:]), len(text)]
    counts = [count_tokens(text[section.start : end]) for section, end in zip(starts, ends, strict=True)]
    tokens_before = [0, *accumulate(counts)]
    subtree_ends = _find_subtree_ends(starts)
    is_apart = keeps_sections_apart(document.format)
    path = _HeadingPath()
    position = 0
    while position < len(starts):
        first, after = position, position + 1
        path.enter(starts[position])
        if is_apart:
            if _is_only_front_matter(text, starts, position) and tokens_before[position + 2] <= max_tokens:
                path.enter(starts[after])
                after += 1
            while after < len(starts) and _is_bare_heading(text, starts, after - 1):
                path.enter(starts[after])
                after += 1
        elif tokens_before[subtree_ends[position]] - tokens_before[position] <= max_tokens:
            after = subtree_ends[position]
        yield _Section(starts[first].start, ends[after - 1], path.titles, tokens_before[after] - tokens_before[first])
        position = after


def _is_only_front_matter(text: str, starts: Sequence[SectionStart], position: int) -> bool:
    """Return whether the first section is front matter without any text. It then belongs to the next section."""
    if position > 0 or starts[0].level >= 0 or len(starts) < 2:
        return False
    _, end = parse_front_matter(text)
    return end > 0 and not text[end : starts[1].start].strip()


def _find_subtree_ends(starts: Sequence[SectionStart]) -> list[int]:
    """Return for each section the position of the first section after it that is not one of its subsections."""
    ends = [len(starts)] * len(starts)
    open_positions: list[int] = []
    for position, section in enumerate(starts):
        while open_positions and starts[open_positions[-1]].level >= section.level:
            ends[open_positions.pop()] = position
        open_positions.append(position)
    if starts and starts[0].level < 0:
        # The text before the first section has no subsections.
        ends[0] = min(1, len(starts))
    return ends


def _is_bare_heading(text: str, starts: Sequence[SectionStart], position: int) -> bool:
    """Return whether a heading is followed only by a deeper heading. As a chunk of its own it would say nothing."""
    section, following = starts[position], starts[position + 1]
    if section.title is None or following.level <= section.level or following.start - section.start > MAX_HEADER_CHARS:
        return False
    # The heading itself is one line, or two if it is underlined.
    lines = text[section.start : following.start].split("\n")
    return not any(line.strip(" \t\r=-") for line in lines[1:])


class _HeadingPath:
    """The titles of the sections that contain the current position."""

    def __init__(self) -> None:
        self._open: list[SectionStart] = []

    def enter(self, section: SectionStart) -> None:
        while self._open and self._open[-1].level >= section.level:
            self._open.pop()
        self._open.append(section)

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(section.title for section in self._open if section.title)


def _join_small_sections(sections: Sequence[_Section], max_tokens: int) -> Iterator[_Section]:
    """Yield adjacent sections joined, as many as fit into a chunk."""
    joined: _Section | None = None
    for section in sections:
        if joined is None:
            joined = section
        elif joined.tokens + section.tokens <= max_tokens:
            path = _common_prefix(joined.path, section.path)
            joined = _Section(joined.start, section.end, path, joined.tokens + section.tokens)
        else:
            yield joined
            joined = section
    if joined is not None:
        yield joined


def _common_prefix(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    length = 0
    for left_title, right_title in zip(left, right, strict=False):
        if left_title != right_title:
            break
        length += 1
    return left[:length]


def _cut_section(document: ParsedDocument, section: _Section, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of the chunks of a section. A heading stays with the text after it if some of that fits."""
    text = document.text
    spans = list(_cut_blocks(text, section, max_tokens))
    if len(spans) > 1 and keeps_sections_apart(document.format):
        (heading_start, heading_end), (next_start, next_end) = spans[:2]
        remaining_tokens = max_tokens - count_tokens(text[heading_start:next_start])
        if _has_only_headings(text[heading_start:heading_end]) and remaining_tokens > max_tokens // 2:
            parts = list(_cut_text(text[next_start:next_end], remaining_tokens))
            joined = heading_start, next_start + parts[0][1]
            if count_tokens(text[joined[0] : joined[1]]) <= max_tokens:
                spans[:2] = [joined, *((next_start + start, next_start + end) for start, end in parts[1:])]
    yield from spans


def _has_only_headings(text: str) -> bool:
    return all(line.lstrip().startswith("#") for line in text.splitlines() if line.strip())


def _cut_blocks(text: str, section: _Section, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of a section that are within the limit; one span if the section fits."""
    body = text[section.start : section.end]
    for block_start, block_end in split_text(body, MAX_BLOCK_CHARS):
        for start, end in _cut_text(body[block_start:block_end], max_tokens):
            yield section.start + block_start + start, section.start + block_start + end


def _cut_text(block: str, max_tokens: int) -> Iterator[tuple[int, int]]:
    if count_tokens(block) <= max_tokens:
        yield 0, len(block)
        return
    from semchunk.semchunk import chunk

    # memoize=False: the cache of semchunk is never emptied, and the same text is rarely counted twice.
    _, offsets = cast("_Cut", chunk(block, max_tokens, count_tokens, memoize=False, offsets=True))
    for start, end in offsets:
        for inner_start, inner_end in _enforce_limit(block[start:end], max_tokens):
            yield start + inner_start, start + inner_end


def _enforce_limit(text: str, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the text without surrounding white space, split into smaller parts while one has too many tokens.

    semchunk assumes that a longer text never has fewer tokens, which is almost always true.
    """
    max_chars = len(text)
    while True:
        spans = list(split_text(text, max_chars))
        if max_chars == 1 or all(count_tokens(text[start:end]) <= max_tokens for start, end in spans):
            yield from spans
            return
        max_chars = max(1, max_chars * 5 // 8)


def _find_table_header(document: ParsedDocument) -> str | None:
    """Return the names of the columns of a table, which make the rows in later chunks understandable."""
    if document.format != "table":
        return None
    first_line = document.text.lstrip().partition("\n")[0].strip()
    return first_line if first_line and len(first_line) <= MAX_HEADER_CHARS else None


def find_section_starts(document: ParsedDocument) -> Sequence[SectionStart]:
    """Return the sections of a document in order. Plain text has none."""
    return list(_FINDERS[document.format](document.text))


def _find_nothing(_text: str) -> Iterator[SectionStart]:
    return iter(())


def _find_definitions(text: str) -> Iterator[SectionStart]:
    """Yield functions, classes and similar definitions, with the comments and decorators above them."""
    prefix_start: int | None = None
    for start, line in iter_lines(text):
        stripped = line.lstrip()
        match = _DEFINITION.match(stripped[:500])
        if match and match[1]:
            section_start = start if prefix_start is None else prefix_start
            yield SectionStart(section_start, _indentation(line), clean_title(match[0].rstrip(":")))
            prefix_start = None
        elif stripped and _COMMENT_OR_DECORATOR.match(stripped):
            prefix_start = start if prefix_start is None else prefix_start
        else:
            prefix_start = None


def _find_rows(text: str) -> Iterator[SectionStart]:
    """Yield the rows of a table. A row with an open quote continues on the next line."""
    in_quotes = False
    for start, line in iter_lines(text):
        if not in_quotes:
            yield SectionStart(start, 0)
        in_quotes ^= line.count('"') % 2 == 1


def _find_entries(text: str) -> Iterator[SectionStart]:
    """Yield the lines of JSON and YAML, with the indentation as level. A closing bracket belongs to its entry."""
    for start, line in iter_lines(text):
        stripped = line.lstrip()
        if stripped and stripped[0] not in "]})":
            match = _ENTRY.match(stripped[:200])
            yield SectionStart(start, _indentation(line), clean_title(match[1]) if match else None)


def _indentation(line: str) -> int:
    width = 0
    for character in line:
        if character not in " \t":
            break
        width += TAB_WIDTH if character == "\t" else 1
    return width


_FINDERS = {
    "text": _find_nothing,
    "markdown": find_headings,
    "code": _find_definitions,
    "table": _find_rows,
    "data": _find_entries,
}


def keeps_sections_apart(format_: Format) -> bool:
    """Return whether sections of this format are never joined in one chunk."""
    return format_ == "markdown"
