"""Subjects: what comes back in a user's moments, though each of them has rarer words that it is tagged with."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date

from rem.dreaming.entities.name_parsing import is_sentence_start
from rem.dreaming.text.words import compute_rarity, extract_distinct_words, is_content_word

MIN_RECURRING_DAYS = 3
MIN_TOPIC_RARITY = 0.6
"""Words that everybody uses (team, meeting, weekend) come back in whatever is told."""
_NO_SUBJECT = ("ing", "ed", "ly")
_NAME_LIKE = re.compile(r"(?<![\w'’-])[^\W\d_a-z][\w+#-]*")
_GERMAN = re.compile(r"\b(?:der|die|das|und|ist|ich|nicht|eine?n?|mit|wir|habe|auf)\b", re.IGNORECASE)
"""There every noun has a capital."""


def find_recurring_topics(told: Sequence[tuple[date, str, Iterable[str]]]) -> list[frozenset[str]]:
    """The subjects of each of some moments (day, summary, tags) that several days come back to, in lower case.

    A word is one if it is rare enough, and is a tag once or has a capital where only a name has one. It follows from
    the moments alone.
    """
    tags = [frozenset(tag.lower() for tag in tags) for _, _, tags in told]
    words = [extract_distinct_words(summary) for _, summary, _ in told]
    days: dict[str, set[date]] = defaultdict(set)
    for (day, _, _), said, tagged in zip(told, words, tags, strict=True):
        for word in said | tagged:
            days[word].add(day)
    often = {word for word, on in days.items() if len(on) >= MIN_RECURRING_DAYS and _may_be_topic(word)}
    known = often.intersection(tag for tagged in tags for tag in tagged)
    for (_, summary, _), said in zip(told, words, strict=True):
        if not said.isdisjoint(often - known):
            known |= _find_name_like_words(summary) & often
    return [said & known for said in words]


def _may_be_topic(word: str) -> bool:
    return (
        is_content_word(word)
        and compute_rarity(word) >= MIN_TOPIC_RARITY
        and not (len(word) > 5 and word.endswith(_NO_SUBJECT))
    )


def _find_name_like_words(text: str) -> set[str]:
    """Words with a capital inside a sentence."""
    if _GERMAN.search(text):
        return set()
    return {
        found.group().lower()
        for found in _NAME_LIKE.finditer(text)
        if found.group()[0].isupper() and not is_sentence_start(text, found.start())
    }
