"""Signatures: who ends a letter with their name, and what stands below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rem.dreaming.entities.evidence import ORGANIZATION, PERSON, Evidence, Kind
from rem.dreaming.entities.name_words import words_after

_CLOSING = re.compile(
    r"^[ \t>]*(?:(?:with )?(?:best|kind|warm|many|kindest|warmest)(?: regards| wishes| thanks)?|regards|sincerely"
    r"|yours(?: sincerely| truly)?|cheers|thanks(?: again| a lot)?|thank you"
    r"|mit (?:freundlichen|besten|herzlichen) grüßen|(?:viele|liebe|beste|herzliche|freundliche|schöne) grüße|gruß"
    r"|mfg|lg|cordialement|bien à (?:vous|toi)|amicalement|saludos(?: cordiales)?|un saludo|atentamente|--)"
    r"[ \t]*[,.!]?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_LINES_BELOW = 5
_PHONE = re.compile(r"\+?\d[\d ()/.-]{6,20}")
_DIVIDER = re.compile(r"\s*[|·•]\s*|,\s+")
_LONGEST_LINE = 100


def signatures(text: str, place: int) -> Iterator[Evidence]:
    """The signatures of a text. One with a phone number, an address or a position below it is sure."""
    for found in _CLOSING.finditer(text):
        block = [line.strip(" \t>") for line in text[found.end() : found.end() + 600].split("\n")]
        lines = [line for line in block if line][: _LINES_BELOW + 1]
        if not lines or len(lines[0]) > _LONGEST_LINE:
            continue
        words, end = words_after(lines[0], 0)
        if not words or lines[0][end:].strip(" ,."):
            continue
        below = lines[1:]
        details = [line for line in below if _PHONE.search(line) or "@" in line or _DIVIDER.search(line)]
        says = ", ".join([" ".join(words), *(line for line in below if line in details and len(line) <= _LONGEST_LINE)])
        yield Evidence(
            kind=Kind.SIGNATURE,
            entity_type=PERSON,
            words=tuple(words),
            place=place,
            start=found.end(),
            confidence=0.8 if details else 0.5,
            says=says[:240],
        )
        yield from _organization(below, place, found.end(), says, is_sure=len(details) > 1)


def _organization(below: list[str], place: int, start: int, says: str, *, is_sure: bool) -> Iterator[Evidence]:
    """`Head of Sales, Acme Inc`: the last part of the first line with two."""
    for line in below:
        parts = [part for part in _DIVIDER.split(line) if part]
        if len(parts) < 2 or "@" in line or _PHONE.search(line):
            continue
        words, end = words_after(parts[-1], 0, shouted=True, most=5)
        if words and not parts[-1][end:].strip(" ."):
            yield Evidence(
                kind=Kind.SIGNATURE,
                entity_type=ORGANIZATION,
                words=tuple(words),
                place=place,
                start=start,
                confidence=0.8 if is_sure else 0.5,
                says=says[:240],
            )
        return
