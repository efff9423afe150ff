"""Find the name by which the author of a message introduces themselves: "I'm Sam", "My name is Sam Rivera"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rem.dreams.entities.name_parsing import parse_name_after
from rem.rules import alternatives, word_set

_GIVEN_NAMES = word_set("names.given_names")
_NOT_NAMES = word_set("own_names.not_names")
_STATED = alternatives("own_names.stated")
_IMPLIED = alternatives("own_names.implied")
_NEGATED = re.compile(rf"\b{alternatives('own_names.negated')}\b", re.IGNORECASE)
_GREETING = re.compile(rf"(?:^|[.!?,;\n])[^\S\n]*{alternatives('own_names.greetings')}[\s,.!–-]*\Z", re.IGNORECASE)
_match_end = re.compile(r"\s*(?:[.,!;:)(\n–-]|\Z)|\s+(?:and|und|et|y|from|aus|de|here)\b", re.IGNORECASE).match
MAX_OWN_NAME_WORDS = 3
MAX_CONTEXT_CHARS = 300
"""Characters before a name that tell whether it is one."""
OWN_NAME = rf"\b(?:{_STATED}|(?P<implied>{_IMPLIED}))\s+(?=[^\W\d_])"
"""The words before the name. The group `implied` is set if other words than a name can follow as well."""
_OWN_NAME = re.compile(OWN_NAME, re.IGNORECASE)


def find_own_names(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the names by which the author introduces themselves."""
    for match in _OWN_NAME.finditer(text):
        name = parse_own_name(text, match)
        if name:
            yield tuple(name.split())


def parse_own_name(text: str, match: re.Match[str]) -> str:
    """Return the name after a match of OWN_NAME; empty if it is none. Of "I'm Sam, Sam Rivera" return the full name."""
    words, end = parse_name_after(text, match.end(), max_words=MAX_OWN_NAME_WORDS)
    if (
        not words
        or words[0].lower() in _NOT_NAMES
        or _NEGATED.search(text, _find_clause(text, match.start()), match.start())
    ):
        return ""
    if match["implied"] and not _may_be_name(text, match, words, end):
        return ""
    fuller, _ = (
        parse_name_after(text, end + 2, max_words=MAX_OWN_NAME_WORDS) if text[end : end + 2] == ", " else ([], 0)
    )
    return " ".join(fuller if fuller[:1] == words[:1] else words)


def _find_clause(text: str, end: int) -> int:
    """Return where the clause begins that goes on at an offset."""
    earliest = max(0, end - MAX_CONTEXT_CHARS)
    return max(earliest, *(text.rfind(sign, earliest, end) + 1 for sign in ".;!?\n"))


def _may_be_name(text: str, match: re.Match[str], words: list[str], end: int) -> bool:
    if not _match_end(text, end):
        return False
    is_given = words[0].lower() in _GIVEN_NAMES
    return (
        is_given
        or len(words) > 1
        or _GREETING.search(text, max(0, match.start() - MAX_CONTEXT_CHARS), match.start()) is not None
    )
