"""Marks: where the parts of a text begin, how deep they stand and what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rem.ingest.models import Format, ParsedDocument
from rem.ingest.readers.front_matter import parse_front_matter

_LONGEST_TITLE = 200
_TAB = 8
# One line each; what is looked at in a line is bounded, so that a line of megabytes costs no more than its length.
_LINE = re.compile(r"[^\n]*\n?")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)(.*)")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_NO_PARAGRAPH = re.compile(r"\s*$|\s*(?:[-*+>|]|\d+[.)]\s)| {4}|\t")
_DEFINITION = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]+\))?|unsafe|"
    r"inline|virtual|override|sealed|partial|extern|open|data|create(?:\s+or\s+replace)?)\s+)*"
    r"(?:def|class|func|function|fn|fun|struct|enum|interface|trait|impl|type|module|namespace|package|protocol|"
    r"extension|object|record|sub|procedure|table|view|trigger|macro_rules!)\b[ \t*]*([\w.$:<>~-]*)",
    re.IGNORECASE,
)
_ABOVE = re.compile(r"@|#\[|//|#(?!include|define)|--|/\*|\*|\"\"\"")
_ENTRY = re.compile(r"-?[ \t]*[\"']?([\w .$@/-]{1,100})[\"']?[ \t]*[:=]")


@dataclass(frozen=True, slots=True)
class SectionStart:
    """The beginning of a part of a text, which reaches to the next mark."""

    start: int
    level: int
    """A part belongs to the last one before it with a lower level."""
    title: str | None = None


def find_section_starts(document: ParsedDocument) -> Sequence[SectionStart]:
    """The marks of a text in their order, by what is natural for its format; none for plain text."""
    return list(_FINDERS[document.format](document.text))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for found in _LINE.finditer(text):
        if found.start() < len(text):
            yield found.start(), found.group().rstrip("\r\n")


def _no_marks(_text: str) -> Iterator[SectionStart]:
    return iter(())


def _headings(text: str) -> Iterator[SectionStart]:
    """Markdown's headings, in both of their forms; what stands in a fenced block or in the front matter is none."""
    fence = ""
    before: tuple[int, str] | None = None
    _, begins = parse_front_matter(text)
    for start, line in _lines(text):
        if start < begins:
            continue
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and not line[opened.end() :].strip():
                fence = ""
        elif opened:
            fence, before = opened[1], None
        else:
            mark = _heading(start, line, before)
            if mark:
                yield mark
            before = None if mark or _NO_PARAGRAPH.match(line) else (start, line)


def _heading(start: int, line: str, before: tuple[int, str] | None) -> SectionStart | None:
    found = _ATX.match(line)
    if found:
        return SectionStart(start, len(found[1]), _title(_CLOSING_HASHES.sub("", found[2][: 2 * _LONGEST_TITLE])))
    underline = before and _SETEXT.match(line)
    if before and underline:
        return SectionStart(before[0], 1 if underline[1][0] == "=" else 2, _title(before[1]))
    return None


def _definitions(text: str) -> Iterator[SectionStart]:
    """Functions, classes and their like in most languages, each with the comments and decorators right above it."""
    above: int | None = None
    for start, line in _lines(text):
        stripped = line.lstrip()
        found = _DEFINITION.match(stripped[:500])
        if found and found[1]:
            yield SectionStart(start if above is None else above, _indentation(line), _title(found[0].rstrip(":")))
            above = None
        elif stripped and _ABOVE.match(stripped):
            above = start if above is None else above
        else:
            above = None


def _rows(text: str) -> Iterator[SectionStart]:
    """The rows of a table; one whose quotes are open goes on in the next line."""
    is_open = False
    for start, line in _lines(text):
        if not is_open:
            yield SectionStart(start, 0)
        is_open ^= line.count('"') % 2 == 1


def _entries(text: str) -> Iterator[SectionStart]:
    """The lines of JSON and YAML, as deep as they are indented; a closing bracket belongs to what it closes."""
    for start, line in _lines(text):
        stripped = line.lstrip()
        if stripped and stripped[0] not in "]})":
            found = _ENTRY.match(stripped[:200])
            yield SectionStart(start, _indentation(line), _title(found[1]) if found else None)


def _indentation(line: str) -> int:
    width = 0
    for character in line:
        if character not in " \t":
            break
        width += _TAB if character == "\t" else 1
    return width


def _title(text: str) -> str | None:
    return text.strip()[:_LONGEST_TITLE] or None


_FINDERS = {
    "text": _no_marks,
    "markdown": _headings,
    "code": _definitions,
    "table": _rows,
    "data": _entries,
}


def keeps_sections_apart(format_: Format) -> bool:
    """Whether each part of such a text stands for itself, so that two are never put together."""
    return format_ == "markdown"
