"""Markdown."""

from __future__ import annotations

import re

from rem.ingest.dates import parse_time
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.front_matter import parse_front_matter
from rem.ingest.readers.mime import MARKDOWN
from rem.ingest.readers.text import decode_text

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
_CLOSING = re.compile(r"[ \t]+#+[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_LONGEST_TITLE = 300


def read_markdown(file: FetchedFile) -> ParsedDocument:
    """The file's text as it is, front matter included. Its title is the front matter's, else the first heading."""
    text, facts = decode_text(file)
    front, end = parse_front_matter(text)
    if front is not None:
        facts["front_matter"] = front
    written = parse_time(front.get("date")) if front else None
    title = front.get("title") if front else None
    if not isinstance(title, str) or not title.strip():
        title = find_first_heading(text[end:])
    return ParsedDocument(text, "markdown", MARKDOWN, title.strip()[:_LONGEST_TITLE] if title else None, facts, written)


def find_first_heading(text: str) -> str | None:
    """The first heading of a Markdown text that is not inside of code."""
    fence = None
    before = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found and fence is None:
            fence = found[1]
        elif found and fence and found[1].startswith(fence):
            fence = None
        elif fence is None:
            if heading := _heading(line, before):
                return heading
            before = line
    return None


def _heading(line: str, before: str) -> str | None:
    if found := _HEADING.match(line):
        return _CLOSING.sub("", found[1]).strip() or None
    is_underlined = _UNDERLINE.match(line) and before.strip() and not before.lstrip().startswith(("#", ">", "-", "|"))
    return before.strip() if is_underlined else None
