"""Splitting a text into stretches that an embedder can read whole, at the best break that is near."""

from __future__ import annotations

import re
from collections.abc import Iterator

# From the best break to the worst: between paragraphs, lines, sentences, words.
_BREAKS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])[\"')\]]*\s|(?<=[。！？])"),
    re.compile(r"\s"),
)
_SHARE_BEFORE_BREAK = 0.5


def split_text(text: str, longest: int) -> Iterator[tuple[int, int]]:
    """The stretches `(start, end)` of at most `longest` characters that together hold all words of the text."""
    start, end = _trimmed(text, 0, len(text))
    while end - start > longest:
        cut = _break_before(text, start, start + longest)
        stretch = _trimmed(text, start, cut)
        yield stretch
        start, end = _trimmed(text, cut, end)
    if end > start:
        yield start, end


def _break_before(text: str, start: int, limit: int) -> int:
    """The last break of the best kind before the limit, but not so early that stretches become crumbs."""
    earliest = start + int((limit - start) * _SHARE_BEFORE_BREAK)
    for pattern in _BREAKS:
        ends = [found.end() for found in pattern.finditer(text, earliest, limit)]
        if ends:
            return ends[-1]
    return limit


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
