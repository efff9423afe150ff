"""Split a text at paragraphs, lines, sentences or words, into parts of limited length."""

from __future__ import annotations

import re
from collections.abc import Iterator

# From the best break to the worst: paragraph, line, sentence, word.
_BREAKS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])[\"')\]]*\s|(?<=[。！？])"),
    re.compile(r"\s"),
)
MIN_PART_SHARE = 0.5
"""A part has at least this share of the maximum length, so that a text is not split into crumbs."""


def split_text(text: str, max_chars: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text as offsets `(start, end)`, each at most `max_chars` long and without outer spaces."""
    start, end = _trim(text, 0, len(text))
    while end - start > max_chars:
        cut = _find_break(text, start, start + max_chars)
        yield _trim(text, start, cut)
        start, end = _trim(text, cut, end)
    if end > start:
        yield start, end


def _find_break(text: str, start: int, limit: int) -> int:
    """Return the offset after the last break of the best kind before the limit."""
    earliest = start + int((limit - start) * MIN_PART_SHARE)
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, earliest, limit)]
        if ends:
            return ends[-1]
    return limit


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
