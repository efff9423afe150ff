"""Arrange the rows of an answer in plain words: without copies, and with the newest valid statement first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rem.query.superseded import mark_superseded
from rem.rules import word_sets
from rem.text import fold_text, split_sentences, split_words

if TYPE_CHECKING:
    from rem.db.store import Store

FETCH_FACTOR = 3
"""An answer fetches this many times its rows, because copies are dropped and a newer statement may rank lower."""
SIMILARITY_WEIGHT = 0.1
"""Weight of the similarity beside the score of SEARCH: a question in plain words shares few words with its answer."""
INTRODUCTION_BONUS = 0.05
"""Added to the score of a row that says who somebody is, if the question asks for that."""
OTHER_PERSON_LOSS = 0.05
"""Taken from the score of a row about somebody else, if the question is about its author."""
_WHO_IS = re.compile(r"\bwho(?:'s| is| was)\s+(?:my |our )?([^\W\d_][\w'-]*)", re.IGNORECASE)
_ABOUT_AUTHOR = re.compile(r"\b(?:do|did|am|was|have|can|will|should) (?:i|we)\b|\b(?:my|our)\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'll|me|my|mine|we|we're|we've|us|our)\b", re.IGNORECASE)
_OTHER_PERSON = re.compile(
    r"(?!I\b|We\b|My\b|Our\b|The\b|A\b|An\b|It\b|This\b|That\b|There\b)([A-Z][\w-]+)(?:'s)? [a-z]"
)


async def arrange_rows(store: Store, question: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a SEARCH as an answer to a question, best first."""
    return await mark_superseded(store, question, prefer_fitting(question, drop_copies(rows)))


def prefer_fitting(question: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with those first that answer the kind of question, among rows with similar scores."""

    def fit(row: dict[str, Any]) -> float:
        meaning = SIMILARITY_WEIGHT * float(row.get("similarity") or 0.0)
        return float(row.get("score") or 0.0) + meaning + _compute_bonus(question, _get_text(row))

    return sorted(rows, key=fit, reverse=True)


def drop_copies(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without those whose whole text a better row has, such as a moment of one message.

    A message is preferred to the moment that copies it: it has the words of its author.
    """
    kept: list[tuple[dict[str, Any], frozenset[str]]] = []
    for row in rows:
        sentences = frozenset(fold_text(sentence).rstrip(".!") for sentence in split_sentences(_get_text(row)))
        container = next((place for place, (_, shown) in enumerate(kept) if sentences and sentences <= shown), None)
        if container is None:
            kept.append((row, sentences))
        elif sentences == kept[container][1] and (kept[container][0]["table"], row["table"]) == ("moments", "messages"):
            kept[container] = row, sentences
    return [row for row, _ in kept]


def _compute_bonus(question: str, text: str) -> float:
    asked = _WHO_IS.search(question)
    if asked is not None and _introduces(asked.group(1), text):
        return INTRODUCTION_BONUS
    if _asks_for_property(question) and _is_about_other_person(text):
        return -OTHER_PERSON_LOSS
    return 0.0


def _asks_for_property(question: str) -> bool:
    """Return whether a question is about a property of its author, such as "Where do I live?"."""
    words = set(split_words(question))
    return _ABOUT_AUTHOR.search(question) is not None and any(words & verbs for verbs in _properties().values())


def _introduces(name: str, text: str) -> bool:
    """Return whether a text says who somebody is: "Ewa is my sister", "my sister Ewa", a note with the title "Ewa"."""
    pattern = (
        rf"\A\W*(?:---.*?---)?\W*{re.escape(name)}\b"
        rf"|\b{re.escape(name)}\b(?: [A-Z][\w-]+)?(?:,| is| was|'s)? (?:my|our|the|an?|his|her|their)\b"
        rf"|\b(?:my|our)\s+{re.escape(name)}\b"
        rf"|\b(?:{'|'.join(sorted(_relation_words()))})(?:,)? (?:[A-Z][\w.-]+ )?{re.escape(name)}\b"
    )
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


def _is_about_other_person(text: str) -> bool:
    return _FIRST_PERSON.search(text) is None and _OTHER_PERSON.match(text) is not None


def _get_text(row: dict[str, Any]) -> str:
    passage = row.get("passage")
    return str(passage.get("text") or "") if isinstance(passage, dict) else ""


@cache
def _properties() -> dict[str, frozenset[str]]:
    return word_sets("changes.properties")


@cache
def _relation_words() -> frozenset[str]:
    return frozenset().union(*word_sets("introductions.relations").values())
