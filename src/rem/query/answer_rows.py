"""Arrange the rows of an answer in plain words: without copies, and with the newest valid statement first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rem.query.continuations import add_continued, get_continued, join_texts
from rem.query.own_properties import asks_for_property, is_about_other_owner, states_asked_property
from rem.query.question_words import QuestionWords, find_asked_name, find_content_words
from rem.query.result import Steps
from rem.query.stated_changes import general_words
from rem.query.superseded import NO_MODELS, AnswerModels, mark_superseded
from rem.retrieval.reranker import order_by_score
from rem.rules import word_sets
from rem.text import fold_text, split_sentences

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.result import QueryResult
    from rem.retrieval.reranker import RowReranker

FETCH_FACTOR = 3
"""An answer fetches this many times its rows, because copies are dropped and a newer statement may rank lower."""
VALUE_BONUS = 0.12
"""Added to the score of a row with a value of the kind that is asked for, such as a day for "When …?"."""
SIMILARITY_WEIGHT = 0.2
"""Weight of the similarity beside the score of SEARCH: a question in plain words shares few words with its answer."""
PROPERTY_BONUS = 1.5
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
OTHER_OWNER_LOSS = 0.1
"""Taken from the score of a row about "her exam", if the question is about "my exam"."""
RECENCY_WEIGHT = 0.15
"""Added to the score of the newest message if the question asks how things are now."""
MAX_TITLE_WORDS = 2
"""A longer title is a topic rather than a name."""
_HEADING = re.compile(r"\A\s*(?:---\n.*?\n---\s*)?#+ ([^\n]+)", re.DOTALL)
_PRESENT = re.compile(
    r"\b(?:now|nowadays|these days|currently|at the moment|still|yet|already|latest|current|by now)\b"
    r"|^(?:is|are|does|do|did|has|have) (?!there\b)"
)
_FIRST_PERSON = re.compile(r"\b(?:I|im|ive|me|my|mine|we|us|our)\b", re.IGNORECASE)


async def arrange_answer(
    store: Store,
    question: str,
    result: QueryResult,
    names: Mapping[str, frozenset[str]] = MappingProxyType({}),
    reranker: RowReranker | None = None,
) -> QueryResult:
    """Return the result of a SEARCH with its rows as an answer to a question, best first.

    `names` are the names of those whom the question calls by their role.
    """
    rows = await add_continued(store, drop_copies(result.results))
    asked = QuestionWords.of(question, names)
    fits = rate_rows(question, asked, rows)
    steps, notes = Steps(result.steps), list(result.notes)
    order, models = order_by_score(fits), NO_MODELS
    if reranker is not None and len(rows) > 1:
        with steps.measure("rerank") as step:
            texts = [join_texts(get_continued(row), get_text(row)) for row in rows]
            ranked = await reranker.order(question, texts, fits, notes)
            order = ranked.places
            logits = {place: ranked.logits[row] for place, row in enumerate(order) if row in ranked.logits}
            models = AnswerModels(logits, reranker.replacements)
            step.rows = min(len(rows), reranker.candidates)
    with steps.measure("superseded") as step:
        ordered = await mark_superseded(store, question, asked, [rows[row] for row in order], models)
        step.rows = sum("superseded_by" in row for row in ordered)
    return replace(result, results=ordered, notes=tuple(notes), steps=tuple(steps))


def rate_rows(question: str, asked: QuestionWords, rows: Sequence[dict[str, Any]]) -> list[float]:
    """Return how well each row fits a question: its score, and what tells whether it answers this kind of question."""
    texts = [get_text(row) for row in rows]
    continued = [asked.find_in(find_content_words(get_continued(row))) for row in rows]
    parts = [asked.find_part(text, known) for text, known in zip(texts, continued, strict=True)]
    counts = Counter(
        word
        for text, known in zip(texts, continued, strict=True)
        for word in asked.find_in(find_content_words(text)) | known
    )
    rarities = {word: (GENERAL_SHARE if word in general_words() else 1.0) / (1 + counts[word]) for word in asked.words}
    full = sum(rarities.values()) or 1.0
    most = max((len(part.covered) for part in parts), default=0)
    recency = (
        _rate_recency(
            [row if len(part.covered) >= max(1, most - 1) else {} for row, part in zip(rows, parts, strict=True)]
        )
        if _asks_for_present(question)
        else {}
    )

    def fit(place: int) -> float:
        row, part = rows[place], parts[place]
        meaning = SIMILARITY_WEIGHT * float(row.get("similarity") or 0.0)
        value = VALUE_BONUS if part.covered and not part.kinds.isdisjoint(asked.kinds) else 0.0
        words = RARE_WORDS_WEIGHT * sum(rarities[word] for word in part.covered) / full
        bonus = _compute_bonus(question, row, texts[place], asked)
        bonus += RECENCY_WEIGHT * recency.get(place, 0.0)
        bonus -= OTHER_OWNER_LOSS if is_about_other_owner(question, texts[place]) else 0.0
        return float(row.get("score") or 0.0) + meaning + value + words + bonus

    return [fit(place) for place in range(len(rows))]


def _asks_for_present(question: str) -> bool:
    """Return whether a question asks how things are now: "Where is Ada now?", "Is the fridge fixed?"."""
    return _PRESENT.search(question.lower()) is not None


def _rate_recency(rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Return the places of the messages, from nearly 0 for the oldest to 1 for the newest one."""
    times = {
        place: str(row.get("happened_at") or "") for place, row in enumerate(rows) if row.get("table") == "messages"
    }
    ordered = sorted(times, key=lambda place: times[place])
    return {place: number / len(ordered) for number, place in enumerate(ordered, start=1)}


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
    return TITLE_BONUS if _names_topic(_find_title(row, text), asked) else 0.0


def _names_topic(title: str, asked: QuestionWords) -> bool:
    """Return whether a short title is a thing of the question: a name with a word of it, or a topic that ends with one.

    "Company insurance" is about insurance and no company.
    """
    words = title.split()
    if not 0 < len(words) <= MAX_TITLE_WORDS:
        return False
    is_name = all(word[0].isupper() for word in words)
    return not find_content_words(title if is_name else words[-1]).isdisjoint(asked.words)


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
