"""Content words: the words that say what a text is about, chosen without statistics over other texts.

A statement must depend on its sources alone: with word counts over all memories, a second run over the same messages
would give another result. The tokenizer says how rare a word is in general: its vocabulary is ordered by frequency.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache

from rem.rules import alternatives
from rem.sessions.tokens import encode_tokens
from rem.text import CJK, STOP_WORDS

_TOKEN = re.compile(
    # Katakana and Chinese characters stand for content words; hiragana between them is grammar.
    r"[\u30a1-\u30fa\u30fc]{2,12}|[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]{2,8}"
    rf"|[^\W\d_{CJK}][^\W_{CJK}]*(?:(?:['’.+#-]|_{{1,3}})[^\W_{CJK}]+)*"
)
_SMALL_TALK_PHRASE = re.compile(alternatives("words.small_talk_phrases"))
"""Greetings and thanks in scripts without spaces, in which they are no words of their own."""
_DIGIT = re.compile(r"\d")
COMMON_TOKEN_NUMBER = 300
"""Tokens below it are letters, signs and the most frequent words."""
VOCABULARY_TOKENS = 200_000
MIN_CONTENT_RARITY = 0.25


def extract_content_words(text: str) -> Iterator[str]:
    """Yield the content words of a text in lower case, in their order, as often as they occur."""
    for match in _TOKEN.finditer(_SMALL_TALK_PHRASE.sub(" ", text)):
        word = _strip_inflection(match.group())
        if is_content_word(word):
            yield word


def extract_distinct_words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, stop words included."""
    return frozenset(map(_strip_inflection, _TOKEN.findall(_SMALL_TALK_PHRASE.sub(" ", text))))


def is_content_word(word: str) -> bool:
    """Return whether a word in lower case has content of its own."""
    return (
        len(word) > 1 and word not in STOP_WORDS and (compute_rarity(word) >= MIN_CONTENT_RARITY or not word.isascii())
    )


def extract_phrases(text: str) -> Iterator[tuple[str, str]]:
    """Yield each pair of content words with a single space between them."""
    before: tuple[str, int] | None = None
    for match in _TOKEN.finditer(text):
        word = _strip_inflection(match.group())
        if not is_content_word(word):
            before = None
            continue
        if before is not None and text[before[1] : match.start()] == " ":
            yield before[0], word
        before = word, match.end()


def has_digit(text: str) -> bool:
    """Return whether a text contains a digit."""
    return _DIGIT.search(text) is not None


@lru_cache(maxsize=50_000)
def compute_rarity(word: str) -> float:
    """Return how rare a word is in general: 0 for `the`, 1 for a word that is not in the vocabulary."""
    numbers = encode_tokens(" " + word)
    if len(numbers) != 1:
        return 1.0
    rank = max(numbers[0], COMMON_TOKEN_NUMBER) / COMMON_TOKEN_NUMBER
    return min(math.log(rank) / math.log(VOCABULARY_TOKENS / COMMON_TOKEN_NUMBER), 1.0)


def _strip_inflection(token: str) -> str:
    """Return a word in lower case without the possessive `'s`."""
    return token.lower().replace("’", "'").removesuffix("'s")
