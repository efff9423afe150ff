"""Correct the misspelt words of a question by the words that its owner's memory has.

A word is misspelt if no text of the memory has it and the tokenizer does not know it as a whole. It is replaced by a
word of the memory, or one such as "which", that differs in one letter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from string import ascii_lowercase
from typing import TYPE_CHECKING

from rem.db.sql import query
from rem.search.models.files import load_tokenizer
from rem.text import FUNCTION_WORDS

if TYPE_CHECKING:
    from rem.db.store import Store

MIN_WORD_CHARS, MAX_WORD_CHARS = 4, 24
MAX_WORDS = 4
"""Each word costs some hundred lookups in an index."""
MAX_READ_CHARS = 400
_WORD = re.compile(r"[A-Za-z]+")


async def correct_spelling(store: Store, text: str) -> str:
    """Return a question with its misspelt words corrected; the same text if there are none."""
    edits = {word: list_edits(word) for word in _find_unknown(text)}
    if not edits:
        return text
    known = await _find_known_words(store, {word.lower() for word in edits}.union(*edits.values()))
    corrected = {
        word: best
        for word, possible in edits.items()
        if word.lower() not in known and (best := _choose(word, possible, known))
    }
    return _WORD.sub(lambda match: _match_case(match[0], corrected.get(match[0], match[0])), text)


def list_edits(word: str) -> frozenset[str]:
    """Return the words that differ in one letter. In a name no letter is exchanged: that is another name.

    A very short or very long word has none.
    """
    if not MIN_WORD_CHARS <= len(word) <= MAX_WORD_CHARS:
        return frozenset()
    lower = word.lower()
    parts = [(lower[:place], lower[place:]) for place in range(len(lower) + 1)]
    shorter = {left + right[1:] for left, right in parts if right}
    swapped = {left + right[1] + right[0] + right[2:] for left, right in parts if len(right) > 1}
    longer = {left + letter + right for left, right in parts for letter in ascii_lowercase}
    other = {left + letter + right[1:] for left, right in parts if right for letter in ascii_lowercase}
    return frozenset(shorter | swapped | longer | (set() if word[0].isupper() else other)) - {lower}


def _find_unknown(text: str) -> Iterator[str]:
    """Yield the words that the tokenizer does not know as a whole. The first word of a sentence is no name."""
    ranks = _load_ranks()
    words = dict.fromkeys(
        match[0] for match in _WORD.finditer(text[:MAX_READ_CHARS]) if len(match[0]) >= MIN_WORD_CHARS
    )
    yield from [word for word in words if word.lower() not in ranks][:MAX_WORDS]


async def _find_known_words(store: Store, words: Collection[str]) -> frozenset[str]:
    rows = await store.executor.read(
        lambda connection: connection.fetch(
            query("search/spelling", "known_words"),
            store.scope.tenant_id,
            ["", *filter(None, [store.scope.user_id])],
            list(words),
        )
    )
    return frozenset(row["word"] for row in rows)


def _choose(word: str, possible: Collection[str], known: Collection[str]) -> str | None:
    """Return the likeliest known word: one with the same first letter, of another length, and a frequent one."""
    ranks = _load_ranks()
    found = [other for other in possible if other in known or other in FUNCTION_WORDS]
    letters = sorted(word.lower())

    def order(other: str) -> tuple[bool, bool, int, str]:
        # A missing, a doubled and an exchanged letter are more frequent mistakes than another letter.
        is_other_letter = len(other) == len(word) and sorted(other) != letters
        return other[0] != word[0].lower(), is_other_letter, ranks.get(other, len(ranks)), other

    return min((other for other in found if len(other) >= MIN_WORD_CHARS - 1), key=order, default=None)


def _match_case(word: str, other: str) -> str:
    return other.capitalize() if word[0].isupper() and other != word else other


@cache
def _load_ranks() -> Mapping[str, int]:
    """Return the whole words of the tokenizer, which are in the order of their frequency."""
    return load_tokenizer().get_vocab()
