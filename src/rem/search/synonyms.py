"""Other words for the words of a query, from the groups of everyday synonyms in `rem/rules`."""

from __future__ import annotations

from functools import cache

from rem.rules import word_groups
from rem.text import split_words

MAX_SYNONYMS = 40
"""More words would cost time, and a query with so many is no everyday question."""


def find_synonyms(text: str) -> str:
    """Return the synonyms of the words in a text, joined by spaces, without the words themselves."""
    words = dict.fromkeys(split_words(text))
    others = dict.fromkeys(other for word in words for other in _synonyms().get(word, ()) if other not in words)
    return " ".join(list(others)[:MAX_SYNONYMS])


@cache
def _synonyms() -> dict[str, tuple[str, ...]]:
    """Return the other words of all groups of each word."""
    others: dict[str, tuple[str, ...]] = {}
    for group in word_groups("synonyms"):
        for word in group:
            others[word] = (*others.get(word, ()), *(other for other in group if other != word))
    return others
