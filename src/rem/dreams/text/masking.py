"""Masking: replaces the parts of a message that are not the author's own words by spaces, so that all offsets stay.

Such parts are code, links, quotations, and lines of other speakers. A message that brings a text to edit, or tells
something invented, is not about the author's life at all.
"""

from __future__ import annotations

import re

from rem.rules import alternatives, word_set
from rem.text import find_front_matter

MAX_TEXT_CHARS = 100_000
"""Characters of a text that are read. A longer text is no chat message."""
_FENCE = "```"
_INLINE_CODE = re.compile(r"`[^`\n]{1,300}`")
_LINK = re.compile(r"\b(?:https?|ftp|s3|file)://[^\s<>]+|\bwww\.[^\s<>]+")
_INDENTED_CODE = re.compile(r"^(?: {4}|\t)\S[^\n;{}()=]*[;{}()=][^\n]*+$", re.MULTILINE)
_QUOTATION = re.compile(
    r"\"[^\"\n]{0,400}+\"|“[^”\n]{0,400}+”|„[^“”\n]{0,400}+[“”]|«[^»\n]{0,400}+»|(?<!\w)'[^'\n]{2,400}+'(?!\w)"
)
_QUOTED_LINE = re.compile(r"^[ \t]*>[^\n]*$", re.MULTILINE)
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]{1,400}`", re.DOTALL)
_FICTION = re.compile(rf"\b{alternatives('masking.fiction_words')}\b", re.IGNORECASE)
_TEXT_TASK = re.compile(
    rf"(?:^|[.!?:])[^\S\n]*(?:{alternatives('masking.please_words')} )?{alternatives('masking.editing_verbs')}\b"
    rf"|^[ \t>]*{alternatives('masking.letter_fields')}:"
    r"|^[ \t>]*\[?\d[\d/.\-, :T]{3,25}(?:[ap]\.?m\.?)?\]?[ \t]*+[-–—]?[ \t]*[^\W\d_][\w .'’\-]{0,40}:\s"
    r"|^[ \t>]*[^\W\d_][\w .'’\-]{0,40},? \[?\d{1,2}[:.]\d\d(?:[:.]\d\d)?(?: ?[ap]m)?\]?:?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""An order to edit a text, the header of a letter, or the lines of a chat with their times. No part of it spans lines:
a pattern that can begin at every line and span many of them would take quadratic time on empty lines."""
_LABEL = re.compile(
    r"\A[ \t]*(?:[-*•#]+[ \t]*)?(?:<[^<>\n]{1,40}>|(?:[\w.'’\-]{1,30} ){0,5}([\w.'’\-]{1,30})[*_]{0,2}:)(?=\s|\Z)"
)
_LABEL_AT_END = re.compile(r"(\w{1,30})[*_]{0,2}:\s*\Z")
_OWN_LABELS = word_set("masking.own_labels")


def mask_code_and_links(text: str) -> str:
    """Return the text, at most MAX_TEXT_CHARS of it, with spaces in place of code and links."""
    text = text[:MAX_TEXT_CHARS]
    if "`" in text:
        parts = text.split(_FENCE)
        parts[1::2] = [" " * len(part) for part in parts[1::2]]
        text = _INLINE_CODE.sub(_blank, (" " * len(_FENCE)).join(parts))
    return _INDENTED_CODE.sub(_blank, _LINK.sub(_blank, text))


def mask_front_matter(text: str) -> str:
    """Return the text of a note with spaces in place of its front matter, which is for programs."""
    match = find_front_matter(text)
    if match is None:
        return text
    return "".join("\n" if character == "\n" else " " for character in match.group()) + text[match.end() :]


def mask_quotes(text: str) -> str:
    """Return the text with spaces in place of quotations and code."""
    return _QUOTED_LINE.sub(_blank, _QUOTATION.sub(_blank, _CODE.sub(_blank, text)))


def mask_other_speakers(text: str) -> str:
    """Return the text with spaces in place of labelled lines ("Tom: …") and of paragraphs that follow a colon."""
    lines: list[str] = []
    is_masked = has_begun = False
    for line in text.split("\n"):
        if is_masked and has_begun and not line.strip():
            is_masked = False
        has_begun = is_masked and (has_begun or bool(line))
        lines.append(" " * len(line) if is_masked or _is_other_speaker(_LABEL.match(line)) else line)
        if not is_masked and _is_other_speaker(_LABEL_AT_END.search(line, max(0, len(line) - 40))):
            is_masked = True
    return "\n".join(lines)


def is_text_task(text: str) -> bool:
    """Return whether a message brings a text to edit, or a letter: its "I" may be anyone."""
    return _TEXT_TASK.search(text) is not None


def is_fiction(text: str) -> bool:
    """Return whether a message is about something invented."""
    return _FICTION.search(text) is not None


def _is_other_speaker(label: re.Match[str] | None) -> bool:
    return label is not None and (label.group(1) or "").casefold() not in _OWN_LABELS


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())
