"""Plain text: what a person says in a text, without code and links."""

from __future__ import annotations

import re

LONGEST = 100_000
"""So many characters of a text are looked at. What is longer is no conversation."""
_FENCE = "```"
_INLINE = re.compile(r"`[^`\n]{1,300}`")
_LINK = re.compile(r"\b(?:https?|ftp|s3|file)://[^\s<>]+|\bwww\.[^\s<>]+")
_INDENTED_CODE = re.compile(r"^(?: {4}|\t)\S[^\n]*[;{}()=][^\n]*$", re.MULTILINE)


def said_in(text: str) -> str:
    """The text without code and links; their places are blank, so that nothing moves."""
    text = text[:LONGEST]
    if "`" in text:
        parts = text.split(_FENCE)
        parts[1::2] = [" " * len(part) for part in parts[1::2]]
        text = _INLINE.sub(_blank, (" " * len(_FENCE)).join(parts))
    return _INDENTED_CODE.sub(_blank, _LINK.sub(_blank, text))


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())
