"""Markdown."""

from __future__ import annotations

import re

from rem.ingest.content import Document, FetchedFile
from rem.ingest.dates import time_of
from rem.ingest.front_matter import read_front_matter
from rem.ingest.mime import MARKDOWN
from rem.ingest.text_reader import decode

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
_CLOSING = re.compile(r"[ \t]+#+[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_LONGEST_TITLE = 300


def read_markdown(file: FetchedFile) -> Document:
    """The file's text as it is, front matter included. Its title is the front matter's, else the first heading."""
    text, facts = decode(file)
    front, end = read_front_matter(text)
    if front is not None:
        facts["front_matter"] = front
    written = time_of(front.get("date")) if front else None
    title = front.get("title") if front else None
    if not isinstance(title, str) or not title.strip():
        title = first_heading(text[end:])
    return Document(text, "markdown", MARKDOWN, title.strip()[:_LONGEST_TITLE] if title else None, facts, written)


def first_heading(text: str) -> str | None:
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
