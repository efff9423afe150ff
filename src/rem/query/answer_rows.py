"""Arrange the rows of an answer in plain words: without copies, and with the newest valid statement first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rem.query.question_words import QuestionWords, find_asked_name, find_content_words
from rem.query.superseded import asks_for_property, general_words, mark_superseded, states_asked_property
from rem.rules import word_sets
from rem.text import fold_text, split_sentences

if TYPE_CHECKING:
    from rem.db.store import Store

FETCH_FACTOR = 3
"""An answer fetches this many times its rows, because copies are dropped and a newer statement may rank lower."""
VALUE_BONUS = 0.12
"""Added to the score of a row with a value of the kind that is asked for, such as a day for "When …?"."""
SIMILARITY_WEIGHT = 0.2
"""Weight of the similarity beside the score of SEARCH: a question in plain words shares few words with its answer."""
PROPERTY_BONUS = 1.0
"""Added to the score of a row that states the property of its author that the question asks for: it comes first."""
RARE_WORDS_WEIGHT = 0.1
"""Weight of the share of the question's words that a row has in one place. Words of few rows count most."""
GENERAL_SHARE = 0.3
"""Words such as "kind" and "number" count this much of other words."""
INTRODUCTION_BONUS = 0.3
"""Added to the score of a row that says who somebody is, if the question asks for that."""
OTHER_PERSON_LOSS = 0.15
"""Taken from the score of a row that is not in the first person, if the question is about a property of its author."""
TITLE_BONUS = 0.075
"""Added to the score of a note whose title is a word of the question, such as the note about a person."""
MAX_TITLE_WORDS = 2
"""A longer title is a topic rather than a name."""
_HEADING = re.compile(r"\A\s*(?:---\n.*?\n---\s*)?#+ ([^\n]+)", re.DOTALL)
_FIRST_PERSON = re.compile(r"\b(?:I|im|ive|me|my|mine|we|us|our)\b", re.IGNORECASE)


async def arrange_rows(store: Store, question: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a SEARCH as an answer to a question, best first."""
    return await mark_superseded(store, question, prefer_fitting(question, drop_copies(rows)))


def prefer_fitting(question: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with those first that answer the kind of question, among rows with similar scores."""
    asked = QuestionWords.of(question)
    texts = [get_text(row) for row in rows]
    parts = [asked.find_part(text) for text in texts]
    counts = Counter(word for text in texts for word in asked.find_in(find_content_words(text)))
    rarities = {word: (GENERAL_SHARE if word in general_words() else 1.0) / (1 + counts[word]) for word in asked.words}
    full = sum(rarities.values()) or 1.0

    def fit(place: int) -> float:
        row, part = rows[place], parts[place]
        meaning = SIMILARITY_WEIGHT * float(row.get("similarity") or 0.0)
        value = VALUE_BONUS if part.covered and not part.kinds.isdisjoint(asked.kinds) else 0.0
        words = RARE_WORDS_WEIGHT * sum(rarities[word] for word in part.covered) / full
        bonus = _compute_bonus(question, row, texts[place], asked)
        return float(row.get("score") or 0.0) + meaning + value + words + bonus

    return [rows[place] for place in sorted(range(len(rows)), key=fit, reverse=True)]


def drop_copies(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without those whose whole text a better row has, such as a moment of one message.

    A message is preferred to the moment that copies it: it has the words of its author.
    """
    kept: list[tuple[dict[str, Any], frozenset[str]]] = []
    for row in rows:
        sentences = frozenset(fold_text(sentence).rstrip(".!") for sentence in split_sentences(get_text(row)))
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
    if asks_for_property(question):
        loss = 0.0 if _FIRST_PERSON.search(text) else OTHER_PERSON_LOSS
        return (PROPERTY_BONUS if states_asked_property(question, text) else 0.0) - loss
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


def _introduces(name: str, text: str) -> bool:
    """Return whether a text says who somebody is: "Ewa is my sister", "the vet, a Dr. Ewa Lis", a note titled "Ewa"."""
    name = rf"(?i:{re.escape(name)})"
    relations = "|".join(sorted(_relation_words()))
    pattern = (
        rf"\A\W*(?:---.*?---)?\W*(?:[A-Z][\w'.-]* )?{name}\b(?! ?'s?\b)(?! [a-z])"
        rf"|\b{name}\b(?: [A-Z][\w-]+)?(?:,| is| was|'s| are)? (?:my|our|the|an?|his|her|their|who)\b"
        rf"|\b{name} [A-Z][\w-]+"
        rf"|(?i:\b(?:my|our|his|her|their)(?: \w+){{0,2}},?) (?:[A-Z][\w.-]+ )?{name}\b"
        rf"|\b(?i:{relations})(?:,)? (?:[A-Z][\w.-]+ )?{name}\b"
        rf"|\b(?:[Tt]he|[Aa]n?|\w+'s)(?: [a-z][\w-]*){{1,3}},? (?:a |an |called |named )?(?:[A-Z][\w.-]+ )?{name}\b"
        rf"|\b(?:called|named|name is|name's) (?:[A-Z][\w.-]+ )?{name}\b"
        rf"|\b{name} from (?:the |my |our )?[a-z]|\b[a-z]+'?s [a-z]+ {name}\b"
    )
    return re.search(pattern, text.replace("’", "'"), re.DOTALL) is not None


def get_text(row: dict[str, Any]) -> str:
    """Return the passage of a row; "" if it has none."""
    passage = row.get("passage")
    return str(passage.get("text") or "") if isinstance(passage, dict) else ""


@cache
def _relation_words() -> frozenset[str]:
    return frozenset().union(*word_sets("introductions.relations").values())
