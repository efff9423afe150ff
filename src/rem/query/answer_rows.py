"""Arrange the rows of an answer in plain words: without copies, and with the newest valid statement first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rem.query.question_words import QuestionWords, find_asked_name, find_content_words
from rem.query.superseded import mark_superseded
from rem.rules import word_sets
from rem.text import fold_text, split_sentences, split_words

if TYPE_CHECKING:
    from rem.db.store import Store

FETCH_FACTOR = 3
"""An answer fetches this many times its rows, because copies are dropped and a newer statement may rank lower."""
VALUE_BONUS = 0.09
"""Added to the score of a row with a value of the kind that is asked for, such as a day for "When …?"."""
SIMILARITY_WEIGHT = 0.1
"""Weight of the similarity beside the score of SEARCH: a question in plain words shares few words with its answer."""
INTRODUCTION_BONUS = 0.12
"""Added to the score of a row that says who somebody is, if the question asks for that."""
OTHER_PERSON_LOSS = 0.1
"""Taken from the score of a row that is not in the first person, if the question is about a property of its author."""
TITLE_BONUS = 0.05
"""Added to the score of a note whose title is a word of the question, such as the note about a person."""
MAX_TITLE_WORDS = 2
"""A longer title is a topic rather than a name."""
_HEADING = re.compile(r"\A\s*(?:---\n.*?\n---\s*)?#+ ([^\n]+)", re.DOTALL)
_ABOUT_AUTHOR = re.compile(r"\b(?:do|did|am|was|have|can|will|should) (?:i|we)\b|\b(?:my|our)\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'll|me|my|mine|we|we're|we've|us|our)\b", re.IGNORECASE)


async def arrange_rows(store: Store, question: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a SEARCH as an answer to a question, best first."""
    return await mark_superseded(store, question, prefer_fitting(question, drop_copies(rows)))


def prefer_fitting(question: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with those first that answer the kind of question, among rows with similar scores."""

    asked = QuestionWords.of(question)

    def fit(row: dict[str, Any]) -> float:
        text = _get_text(row)
        part = asked.find_part(text)
        meaning = SIMILARITY_WEIGHT * float(row.get("similarity") or 0.0)
        value = VALUE_BONUS if part.covered and not part.kinds.isdisjoint(asked.kinds) else 0.0
        return float(row.get("score") or 0.0) + meaning + value + _compute_bonus(question, row, text, asked)

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


def _compute_bonus(question: str, row: dict[str, Any], text: str, asked: QuestionWords) -> float:
    name = find_asked_name(question)
    if name is not None:
        return INTRODUCTION_BONUS if _introduces(name, text) else 0.0
    if _asks_for_property(question):
        return 0.0 if _FIRST_PERSON.search(text) else -OTHER_PERSON_LOSS
    title = find_content_words(_find_title(row, text))
    return TITLE_BONUS if title and len(title) <= MAX_TITLE_WORDS and not title.isdisjoint(asked.words) else 0.0


def _find_title(row: dict[str, Any], text: str) -> str:
    """Return the heading at the beginning of a text, or the name of a note without one."""
    heading = _HEADING.match(text)
    if heading is not None:
        return heading[1]
    record = row.get("record")
    is_named = row.get("table") in ("resources", "users", "ontologies") and isinstance(record, dict)
    return str(record.get("name") or "") if is_named and isinstance(record, dict) else ""


def _asks_for_property(question: str) -> bool:
    """Return whether a question is about a property of its author, such as "Where do I live?"."""
    words = set(split_words(question))
    return _ABOUT_AUTHOR.search(question) is not None and any(words & verbs for verbs in _properties().values())


def _introduces(name: str, text: str) -> bool:
    """Return whether a text says who somebody is: "Ewa is my sister", "the vet, a Dr. Ewa Lis", a note titled "Ewa"."""
    name = re.escape(name)
    relations = "|".join(sorted(_relation_words()))
    pattern = (
        rf"\A\W*(?:---.*?---)?\W*(?:[A-Z][\w'.-]* )?{name}\b(?! ?'s?\b)(?! [a-z])"
        rf"|\b{name}\b(?: [A-Z][\w-]+)?(?:,| is| was|'s| are)? (?:my|our|the|an?|his|her|their|who)\b"
        rf"|\b{name} [A-Z][\w-]+"
        rf"|(?i:\b(?:my|our|his|her|their)(?: \w+){{0,2}},?) (?:[A-Z][\w.-]+ )?{name}\b"
        rf"|\b(?i:{relations})(?:,)? (?:[A-Z][\w.-]+ )?{name}\b"
        rf"|\b(?:[Tt]he|[Aa]n?|\w+'s)(?: [a-z][\w-]*){{1,3}},? (?:a |an |called |named )?(?:[A-Z][\w.-]+ )?{name}\b"
        rf"|\b(?:called|named|name is|name's) (?:[A-Z][\w.-]+ )?{name}\b"
    )
    return re.search(pattern, text.replace("’", "'"), re.DOTALL) is not None


def _get_text(row: dict[str, Any]) -> str:
    passage = row.get("passage")
    return str(passage.get("text") or "") if isinstance(passage, dict) else ""


@cache
def _properties() -> dict[str, frozenset[str]]:
    return word_sets("changes.properties")


@cache
def _relation_words() -> frozenset[str]:
    return frozenset().union(*word_sets("introductions.relations").values())
