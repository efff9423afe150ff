"""Find where the sections of a text start: headings, definitions, rows or entries, depending on its format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rem.ingest.models import Format, ParsedDocument
from rem.ingest.readers.front_matter import parse_front_matter

MAX_TITLE_CHARS = 200
TAB_WIDTH = 8
# These match within one line and look at a bounded part of it: a line of megabytes takes linear time.
_LINE = re.compile(r"[^\n]*\n?")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)(.*)")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_NOT_PARAGRAPH = re.compile(r"\s*$|\s*(?:[-*+>|]|\d+[.)]\s)| {4}|\t")
_DEFINITION = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]+\))?|unsafe|"
    r"inline|virtual|override|sealed|partial|extern|open|data|create(?:\s+or\s+replace)?)\s+)*"
    r"(?:def|class|func|function|fn|fun|struct|enum|interface|trait|impl|type|module|namespace|package|protocol|"
    r"extension|object|record|sub|procedure|table|view|trigger|macro_rules!)\b[ \t*]*([\w.$:<>~-]*)",
    re.IGNORECASE,
)
_COMMENT_OR_DECORATOR = re.compile(r"@|#\[|//|#(?!include|define)|--|/\*|\*|\"\"\"")
_ENTRY = re.compile(r"-?[ \t]*[\"']?([\w .$@/-]{1,100})[\"']?[ \t]*[:=]")


@dataclass(frozen=True, slots=True)
class SectionStart:
    """The start of a section, which ends where the next one starts."""

    start: int
    level: int
    """A section belongs to the last one before it with a lower level."""
    title: str | None = None


def find_section_starts(document: ParsedDocument) -> Sequence[SectionStart]:
    """Return the sections of a document in order. Plain text has none."""
    return list(_FINDERS[document.format](document.text))


def _iter_lines(text: str) -> Iterator[tuple[int, str]]:
    for match in _LINE.finditer(text):
        if match.start() < len(text):
            yield match.start(), match.group().rstrip("\r\n")


def _find_nothing(_text: str) -> Iterator[SectionStart]:
    return iter(())


def _find_headings(text: str) -> Iterator[SectionStart]:
    """Yield the headings of Markdown, in both notations, outside of fenced code and front matter."""
    fence = ""
    previous: tuple[int, str] | None = None
    _, text_start = parse_front_matter(text)
    for start, line in _iter_lines(text):
        if start < text_start:
            continue
        fence_match = _FENCE.match(line)
        if fence:
            if fence_match and fence_match[1].startswith(fence) and not line[fence_match.end() :].strip():
                fence = ""
        elif fence_match:
            fence, previous = fence_match[1], None
        else:
            heading = _parse_heading(start, line, previous)
            if heading:
                yield heading
            previous = None if heading or _NOT_PARAGRAPH.match(line) else (start, line)


def _parse_heading(start: int, line: str, previous: tuple[int, str] | None) -> SectionStart | None:
    """Return the heading on a line, or the one on the previous line that this line underlines."""
    match = _ATX.match(line)
    if match:
        title = _CLOSING_HASHES.sub("", match[2][: 2 * MAX_TITLE_CHARS])
        return SectionStart(start, len(match[1]), _clean_title(title))
    underline = previous and _SETEXT.match(line)
    if previous and underline:
        return SectionStart(previous[0], 1 if underline[1][0] == "=" else 2, _clean_title(previous[1]))
    return None


def _find_definitions(text: str) -> Iterator[SectionStart]:
    """Yield functions, classes and similar definitions, with the comments and decorators above them."""
    prefix_start: int | None = None
    for start, line in _iter_lines(text):
        stripped = line.lstrip()
        match = _DEFINITION.match(stripped[:500])
        if match and match[1]:
            section_start = start if prefix_start is None else prefix_start
            yield SectionStart(section_start, _indentation(line), _clean_title(match[0].rstrip(":")))
            prefix_start = None
        elif stripped and _COMMENT_OR_DECORATOR.match(stripped):
            prefix_start = start if prefix_start is None else prefix_start
        else:
            prefix_start = None


def _find_rows(text: str) -> Iterator[SectionStart]:
    """Yield the rows of a table. A row with an open quote continues on the next line."""
    in_quotes = False
    for start, line in _iter_lines(text):
        if not in_quotes:
            yield SectionStart(start, 0)
        in_quotes ^= line.count('"') % 2 == 1


def _find_entries(text: str) -> Iterator[SectionStart]:
    """Yield the lines of JSON and YAML, with the indentation as level. A closing bracket belongs to its entry."""
    for start, line in _iter_lines(text):
        stripped = line.lstrip()
        if stripped and stripped[0] not in "]})":
            match = _ENTRY.match(stripped[:200])
            yield SectionStart(start, _indentation(line), _clean_title(match[1]) if match else None)


def _indentation(line: str) -> int:
    width = 0
    for character in line:
        if character not in " \t":
            break
        width += TAB_WIDTH if character == "\t" else 1
    return width


def _clean_title(text: str) -> str | None:
    return text.strip()[:MAX_TITLE_CHARS] or None


_FINDERS = {
    "text": _find_nothing,
    "markdown": _find_headings,
    "code": _find_definitions,
    "table": _find_rows,
    "data": _find_entries,
}


def keeps_sections_apart(format_: Format) -> bool:
    """Return whether sections of this format are never joined in one chunk."""
    return format_ == "markdown"
