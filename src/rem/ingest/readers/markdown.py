"""Read Markdown."""

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
MAX_TITLE_CHARS = 300


def read_markdown(file: FetchedFile) -> ParsedDocument:
    """Return the text of a file unchanged, including front matter.

    The title is that of the front matter, else the first heading.
    """
    text, metadata = decode_text(file)
    front_matter, end = parse_front_matter(text)
    written_at = None
    if front_matter is not None:
        metadata["front_matter"] = front_matter
        written_at = parse_time(front_matter.get("date")) or parse_time(front_matter.get("created"))
    title = front_matter.get("title") if front_matter else None
    if not isinstance(title, str) or not title.strip():
        title = find_first_heading(text[end:])
    return ParsedDocument(
        text, "markdown", MARKDOWN, title.strip()[:MAX_TITLE_CHARS] if title else None, metadata, written_at
    )


def find_first_heading(text: str) -> str | None:
    """Return the first heading of a Markdown text outside of fenced code; None if there is none."""
    fence = None
    previous_line = ""
    for line in text.splitlines():
        fence_match = _FENCE.match(line)
        if fence_match and fence is None:
            fence = fence_match[1]
        elif fence_match and fence and fence_match[1].startswith(fence):
            fence = None
        elif fence is None:
            if heading := _parse_heading(line, previous_line):
                return heading
            previous_line = line
    return None


def _parse_heading(line: str, previous_line: str) -> str | None:
    if match := _HEADING.match(line):
        return _CLOSING.sub("", match[1]).strip() or None
    is_underlined = (
        _UNDERLINE.match(line) and previous_line.strip() and not previous_line.lstrip().startswith(("#", ">", "-", "|"))
    )
    return previous_line.strip() if is_underlined else None
