"""Sentences: where one ends. A full stop after an abbreviation or an initial is no end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rem.dreaming.text.words import FUNCTION_WORDS

_ENDS = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")
_LAST_WORD = re.compile(r"(?<![^\s(\[\"'“„])([^\W\d_]{1,8}(?:\.[^\W\d_]{1,3})*)\.\Z")
_NEXT_WORD = re.compile(r"[\"'“„(\[]*(\w+)")
_AFTER_ALL = (
    "dr mr mrs ms mx prof st sr jr mt e.g i.e eg ie vs approx cf fig vol pp hr fr dipl ing z.b d.h u.a s.o s.u bzw ca "
    "ggf evtl inkl bspw vgl sog tel str m.e mme mlle"
)
_AFTER_SOME = "inc ltd co corp etc usw gmbh a.m p.m bros dept est min max"
_NUMBERED = "no nr art abs p sec ch"
_ALWAYS = frozenset(_AFTER_ALL.split())
"""After these a sentence goes on."""
_BEFORE_LOWER = frozenset(_AFTER_SOME.split())
"""After these it does where a small letter follows."""
_BEFORE_FIGURE = frozenset(_NUMBERED.split())
"""And after these where a figure does."""


def find_sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end, in their order. Lines are sentences of their own."""
    start = 0
    for found in _ENDS.finditer(text):
        if found.start() <= start or not _is_end(text, found.start(), found.end()):
            continue
        yield start, found.start()
        start = found.end()
    if start < len(text):
        yield start, len(text)


def _is_end(text: str, before: int, after: int) -> bool:
    if "\n" in text[before:after] or after >= len(text):
        return True
    word = _LAST_WORD.search(text, max(0, before - 20), before)
    if word is None:
        return True
    last, following = word.group(1), _NEXT_WORD.match(text, after)
    next_word = following.group(1) if following else ""
    if len(last) == 1 and last.isupper():
        # "S. Chen" is somebody; after "plan B. We" something new begins.
        return not next_word[:1].isupper() or next_word.lower() in FUNCTION_WORDS
    folded = last.lower()
    goes_on = (
        folded in _ALWAYS
        or (folded in _BEFORE_LOWER and next_word[:1].islower())
        or (folded in _BEFORE_FIGURE and next_word[:1].isdigit())
    )
    return not goes_on
