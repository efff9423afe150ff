"""Recognise which rows of an answer a newer one replaces, and put the newer one first.

"I live in Svendborg" is superseded by a later "We moved to Aarhus". A row is compared only with the other rows of the
same answer, so both are about the question. A small model reads the question and two rows; rules say when a change is
stated in so many words (`replacement_rules.py`). Without the model the rules decide alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from loguru import logger

from rem.db.sql import query as sql
from rem.errors import RerankerError
from rem.query.compared_rows import MAX_COMPARED_ROWS, AnswerRow, AskedQuestion, parse_question, prepare_rows
from rem.query.question_words import QuestionWords, stem_word
from rem.query.replacement_rules import SAME_NOTE_COSINE, drops_value, leaves_alone, replaces
from rem.query.stated_changes import filler_words, general_words
from rem.text import split_words

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.retrieval.reranker import Reranker

MAX_READ_PAIRS = 8
"""Pairs of rows that the model reads for an answer. Most answers have two or three that it could change."""
MAX_OLDER_ROWS, MAX_NEWER_ROWS = 5, 10
"""The model reads pairs of the best rows only: what comes first matters."""
MAX_TEXT_CHARS = 400
SEPARATOR = " | later: "
"""What stands between an older and a newer text. The model was trained with it."""
MIN_PAIR_COSINE = 0.25
"""Two rows without a common word are read if they have at least this cosine."""
MIN_OLDER_LOGIT, MIN_NEWER_LOGIT = 0.0, -4.0
"""The reranker must take the older row for an answer, and the newer one for a possible answer."""
MIN_REPLACEMENT_LOGIT = 1.0
"""A right answer that is marked as replaced is worse than an old one that comes first."""
MAX_LEFT_OUT_WORDS = 1
"""Words of the question that a newer row without a word of change may leave out."""
MIN_PARALLEL_RATIO = 0.5
"""The share of common words of two texts that say the same of different things."""
RULE_BONUS = 7.0
"""Added to the logit of a replacement by rules, so that the model can refuse it only if it is sure."""
_FORMER = re.compile(
    r"\b(?:originally|initially|at first|used? to|previously|formerly|did \w+ (?:first|plan))\b"
    r"|\b(?:did|was|were|had) .*\bbefore\W*\Z"
)
"""In a question: it asks for what was so before, and what was replaced comes first."""

Pair = tuple[int, int]
"""The places of an older and a newer row."""


@dataclass(frozen=True, slots=True)
class AnswerModels:
    """What the models say about the rows of an answer."""

    logits: Mapping[int, float]
    """The logit of the reranker for each row that it has read, by place."""
    replacements: Reranker | None
    """Scores whether the newer one of two texts replaces the older one."""


NO_MODELS = AnswerModels(MappingProxyType({}), None)


async def mark_superseded(
    store: Store,
    question: str,
    words: QuestionWords,
    rows: list[dict[str, Any]],
    models: AnswerModels = NO_MODELS,
) -> list[dict[str, Any]]:
    """Return the rows with each newer one before those that it replaces.

    A replaced row gets `superseded_by`, the key of the newer row, and `superseded_at`, its date.
    """
    asked = parse_question(question, words)
    compared = list(prepare_rows(asked, rows))
    if len(compared) < 2:
        return rows
    cosines = await load_cosines(store, rows[:MAX_COMPARED_ROWS])
    replaced = await _find_replaced(asked, compared, cosines, models)
    newest = _find_newest(compared, replaced)
    if _FORMER.search(question.lower()):
        return _put_older_first(rows, newest)
    return _reorder(rows, newest, {row.place for row in compared if row.is_long})


async def _find_replaced(
    asked: AskedQuestion,
    compared: Sequence[AnswerRow],
    cosines: Mapping[frozenset[str], float],
    models: AnswerModels,
) -> set[Pair]:
    """Return the pairs whose newer row replaces the older one."""
    pairs = [(older, newer) for older in compared for newer in compared]
    confirmed = {
        (older.place, newer.place)
        for older, newer in pairs
        if older.entity_id in newer.corrected_ids and not leaves_alone(newer, older, asked)
    }
    # What was said of somebody later does not change who it is.
    if asked.is_introduction:
        return confirmed
    found = [
        (older, newer)
        for older, newer in pairs
        # What the reranker has not read may be an answer. A row that is none is replaced by nothing.
        if models.logits.get(older.place, math.inf) > MIN_OLDER_LOGIT
        and replaces(newer, older, asked, _get_cosine(cosines, newer, older))
    ]
    by_rules = {(older.place, newer.place) for older, newer in found}
    certain = confirmed | {(older.place, newer.place) for older, newer in found if drops_value(newer, older, asked)}
    read = _choose_pairs(asked, compared, cosines, models.logits, by_rules - certain)
    logits = await _read_pairs(asked, read, models.replacements)
    rows = {row.place: row for row in compared}
    return certain | {
        (older, newer)
        for older, newer in by_rules | logits.keys()
        if logits.get((older, newer), 0.0) + RULE_BONUS * ((older, newer) in by_rules) > MIN_REPLACEMENT_LOGIT
        and not _is_beside_question(rows[newer], rows[older])
    }


def _is_beside_question(newer: AnswerRow, older: AnswerRow) -> bool:
    """Return whether the older row lacks a word of the question and comes after the newer one: it is no old answer.

    "When is my second exam?" is answered by the second one, and says nothing about the first.
    """
    return newer.place < older.place and bool(newer.part.covered - older.covered - general_words())


def _choose_pairs(
    asked: AskedQuestion,
    compared: Sequence[AnswerRow],
    cosines: Mapping[frozenset[str], float],
    logits: Mapping[int, float],
    by_rules: set[Pair],
) -> list[tuple[AnswerRow, AnswerRow]]:
    """Return the pairs for the model to read: those of rules, and of related rows that answer the question."""
    possible = [
        (older, newer)
        for older in compared[:MAX_OLDER_ROWS]
        for newer in compared[:MAX_NEWER_ROWS]
        if (older.place, newer.place) in by_rules
        or (
            logits.get(older.place, MIN_OLDER_LOGIT) > MIN_OLDER_LOGIT
            and logits.get(newer.place, MIN_NEWER_LOGIT) > MIN_NEWER_LOGIT
            and _is_related(newer, older, asked, _get_cosine(cosines, newer, older))
        )
    ]
    possible.sort(
        key=lambda pair: (
            (pair[0].place, pair[1].place) not in by_rules,
            pair[0].place,
            -logits.get(pair[1].place, 0.0),
        )
    )
    return possible[:MAX_READ_PAIRS]


def _is_related(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion, cosine: float) -> bool:
    """Return whether a row is newer, and may be about the same thing. What came later does not change why it was so."""
    if newer.time <= older.time or newer.is_about_other_owner or "reason" in asked.shapes:
        return False
    # What was said is not outdated because a note was stored later.
    if newer.is_note and not (older.is_note and cosine >= SAME_NOTE_COSINE):
        return False
    has_common_word = bool((newer.words & older.words) - filler_words())
    if not (has_common_word or cosine >= MIN_PAIR_COSINE) or leaves_alone(newer, older, asked):
        return False
    missing = older.part.covered - newer.covered - general_words()
    return not _is_parallel(newer, older, missing) and (len(missing) <= MAX_LEFT_OUT_WORDS or newer.part.has_change)


def _is_parallel(newer: AnswerRow, older: AnswerRow, missing: frozenset[str]) -> bool:
    """Return whether a row says the same of something else: "Team Beta deploys on Friday" for team Alpha.

    `missing` are the words of the question that only the older one has. The model tells most such rows from
    replacements, but hardly those with words of nearly the same meaning.
    """
    if not missing:
        return False
    old, new = (list(map(stem_word, split_words(text[:MAX_TEXT_CHARS]))) for text in (older.text, newer.text))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    exchanged = (old[start:end] for change, start, end, _, _ in matcher.get_opcodes() if change == "replace")
    return matcher.ratio() >= MIN_PARALLEL_RATIO and any(not missing.isdisjoint(words) for words in exchanged)


async def _read_pairs(
    asked: AskedQuestion, pairs: Sequence[tuple[AnswerRow, AnswerRow]], model: Reranker | None
) -> dict[Pair, float]:
    """Return the logit of each pair; none if there is no model, or if it fails."""
    if model is None or not pairs:
        return {}
    texts = [f"{older.text[:MAX_TEXT_CHARS]}{SEPARATOR}{newer.text[:MAX_TEXT_CHARS]}" for older, newer in pairs]
    try:
        logits = await model.scores(asked.text, texts)
    except RerankerError as error:
        logger.warning("The model that finds replaced rows failed, so rules decide alone: {}", error)
        return {}
    return {(older.place, newer.place): logit for (older, newer), logit in zip(pairs, logits, strict=True)}


def _get_cosine(cosines: Mapping[frozenset[str], float], newer: AnswerRow, older: AnswerRow) -> float:
    return cosines.get(frozenset((newer.entity_id, older.entity_id)), 0.0)


def _find_newest(compared: Sequence[AnswerRow], replaced: set[Pair]) -> dict[int, AnswerRow]:
    """Return the newest row that replaces each replaced one, by its place."""
    rows = {row.place: row for row in compared}
    newest: dict[int, AnswerRow] = {}
    for older, newer in sorted(replaced):
        if older not in newest or newest[older].time < rows[newer].time:
            newest[older] = rows[newer]
    return newest


def _put_older_first(rows: list[dict[str, Any]], newest: Mapping[int, AnswerRow]) -> list[dict[str, Any]]:
    """Return the rows with each replaced one before the newer one, for a question about what was so before."""
    ordered: list[int] = []
    for place in range(len(rows)):
        older = (replaced for replaced, newer in newest.items() if newer.place == place)
        ordered += [added for added in (*sorted(older), place) if added not in ordered]
    return [rows[place] for place in ordered]


def _reorder(rows: list[dict[str, Any]], newest: dict[int, AnswerRow], long_places: set[int]) -> list[dict[str, Any]]:
    """Return the rows with each newer one before the older ones. Long texts are not marked: most of them holds."""
    ordered: list[dict[str, Any]] = []
    seen: set[int] = set()

    def add(place: int) -> None:
        if place in seen:
            return
        seen.add(place)
        newer = newest.get(place)
        if newer is None:
            ordered.append(rows[place])
            return
        add(newer.place)
        if place in long_places:
            ordered.append(rows[place])
            return
        ordered.append({**rows[place], "superseded_by": newer.key, "superseded_at": newer.at.date().isoformat()})

    for place in range(len(rows)):
        add(place)
    return ordered


async def load_cosines(store: Store, rows: Sequence[dict[str, Any]]) -> dict[frozenset[str], float]:
    """Return the cosine of each two shown passages, by the ids of their rows."""
    shown = [(UUID(str(row["record"]["id"])), row["passage"]["start"]) for row in rows if row.get("passage")]
    pairs = await store.executor.read(
        lambda connection: connection.fetch(
            sql("query", "passage_cosines"),
            store.scope.tenant_id,
            [entity_id for entity_id, _ in shown],
            [start for _, start in shown],
        )
    )
    return {frozenset((str(first), str(second))): cosine for first, second, cosine in pairs}
