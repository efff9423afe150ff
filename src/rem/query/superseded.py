"""Recognise which rows of an answer a newer one replaces, and put the newer one first.

"I live in Svendborg" is superseded by a later "We moved to Aarhus". A row is compared only with the other rows of the
same answer, so both are about the question. Without a language model this is a matter of rules: two statements
about the same thing with another value, a word of change ("no longer", "instead"), a correction of what was just said.
The rules are English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query as sql
from rem.models.resource import REMEMBERED_ORIGIN
from rem.query.continuations import get_continued
from rem.query.own_properties import AUTHOR, MAX_SENTENCES, find_asked_properties, is_about_other_owner
from rem.query.question_words import QuestionWords, find_asked_name, find_content_words, stem_word
from rem.query.stated_changes import (
    Part,
    Sentence,
    calendar_words,
    filler_words,
    find_replaced_values,
    general_words,
    parse_sentence,
    pick_part,
)
from rem.query.value_kinds import ValueKind, find_names, find_possible_names
from rem.text import find_sentence_spans

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_COMPARED_ROWS = 20
"""Rows of an answer that are compared with each other."""
COMPARED_TABLES = ("messages", "resources")
"""What dreams derived repeats these rows, under the date of the dream."""
SAME_TOPIC_COSINE = 0.42
"""Two texts about the same thing have at least this cosine."""
MIN_FIT_SHARE = 0.74
"""A newer row must fit the question about as well as the older one. Otherwise it is about another part of the topic."""
RESTATED_COSINE = 0.5
"""The same for a newer text without a word of change."""
MAX_MISSING_WORDS = 2
"""Words of the question that a text may leave out if it clearly revises an earlier one."""
SURE_TOPIC_COSINE = 0.6
MIN_STATE_SHARE = 0.65
"""The same two for a newer text that says how things are now."""
SAME_NOTE_COSINE = 0.75
"""Two notes with a lower cosine have different subjects."""
MAX_REPLACED_SENTENCES = 4
MIN_MOVED_SHARE = 0.5
"""The same for a newer text with a word of change and the kind of value that is asked for."""
MIN_MOVED_COSINE = 0.28
CLOSER_SHARE = 0.95
"""A newer text with this share of the older one's similarity is as near to the question."""
MIN_DROPPED_SIMILARITY = 0.26
"""The similarity with the question of a newer text that names the value of the older one as dropped."""
MAX_REFERENCE_DISTANCE = 6
"""A correction without a subject ("Actually it's Thursday") refers to one of this many messages before it."""
CERTAIN_LOGIT = 6.0
"""The logit of a row that surely answers a question, or, below zero, surely does not."""
EVIDENCE: Mapping[str, float] = MappingProxyType(
    {
        "newer_answers": 2.2,
        "older_answers": 1.4,
        "difference": 3.1,
        "common_word": 0.8,
        "same_kind": 0.5,
        "missing_kind": -1.7,
        "change": 0.9,
        "revision": 0.3,
        "polar": 1.6,
    }
)
"""Weights of what speaks for a replacement, by logistic regression (docs/retrieval-experiments.md)."""
MIN_EVIDENCE = 6.1
"""A replacement is at least four times as likely as none."""
MAX_COUNTED_WORDS = 4
_POLAR = re.compile(
    r"\s*(?:so |and |but )*(?:is|are|was|were|am|do|does|did|has|have|had|will|would|can|could|should)(?:n't)? "
    r"(?!you\b)"
)
_FORMER = re.compile(r"\b(?:originally|initially|at first|used to|previously|formerly|did \w+ (?:first|plan))\b")
"""In a question: it asks for what was so before, and what was replaced comes first."""
_ACRONYM = re.compile(r"\b[A-Z]{2,}s?\b")
"""A word such as RTOS names a kind of things."""
_HOLDER = re.compile(r"\bwho(?:'s|s)? (?:has|have|had|got|keeps|holds|looks after|is keeping)\b")


@dataclass(frozen=True, slots=True)
class Rating:
    """What the reranker says about a row."""

    logit: float
    total: float
    """The sum by which the rows are ordered: the fit and the weighted logit."""

    @property
    def certainty(self) -> float:
        """Whether the row answers the question: from -1, surely not, to 1, surely."""
        return max(-1.0, min(self.logit / CERTAIN_LOGIT, 1.0))


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the answer, ready to be compared."""

    place: int
    key: str
    at: datetime
    is_note: bool
    """Whether it is a text that somebody stored, and no statement of the user (`_is_statement`)."""
    is_undated: bool
    """Whether it is a note without a date, which counts as older than everything."""
    score: float
    similarity: float
    session_id: str | None
    position: int
    entity_id: str
    part: Part
    """What the row says about the question."""
    words: frozenset[str]
    """The words of the whole text: its sentences may name their subject only once."""
    covered: frozenset[str]
    """The words of the question among them."""
    is_long: bool
    """Whether the text has many sentences."""
    is_about_other_owner: bool
    """Whether it is about the thing of somebody else than the question: "her exam"."""
    possible_names: frozenset[str]
    """The stems of the words that may be names."""
    replaced: frozenset[str]
    """The words of the values that it names as dropped beside a new one."""
    corrected_ids: frozenset[str] = frozenset()
    """Rows that the user has confirmed to be replaced by this one (`metadata.supersedes`)."""

    @property
    def time(self) -> tuple[datetime, int]:
        """The time, and the place in the session for messages that were stored together."""
        return self.at, self.position

    def fits(self, share: float, other: _Row) -> bool:
        """Return whether the row fits the question at least this share as well as another."""
        return self.score >= share * other.score and self.similarity >= share * other.similarity


@dataclass(frozen=True, slots=True)
class _Question:
    """What a question asks for."""

    words: QuestionWords
    properties: frozenset[str]
    """The properties of its author, such as the residence."""
    text: str
    is_introduction: bool
    """Whether it asks who somebody is."""
    is_polar: bool
    """Whether it asks for yes or no: then the newest statement about its subject counts."""
    is_about_holder: bool
    """Whether it asks who has something."""
    names: frozenset[str]
    """The stems of the names in it."""

    @property
    def shapes(self) -> frozenset[ValueKind]:
        """The kinds of values that answer it: a day or a time for "When …?"; empty if any."""
        return self.words.kinds - {"name"}


async def mark_superseded(
    store: Store,
    question: str,
    words: QuestionWords,
    rows: list[dict[str, Any]],
    ratings: Mapping[int, Rating] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return the rows with each newer one before those that it replaces.

    A replaced row gets `superseded_by`, the key of the newer row, and `superseded_at`, its date. `ratings` are those of
    the rows that the reranker has read, by place.
    """
    asked = _parse_question(question, words)
    compared = list(_prepare(asked, rows))
    if len(compared) < 2:
        return rows
    cosines = await load_cosines(store, rows[:MAX_COMPARED_ROWS])
    newest = _find_newest(asked, compared, cosines, ratings)
    if _FORMER.search(question.lower()):
        return _put_older_first(rows, newest)
    return _reorder(rows, newest, {row.place for row in compared if row.is_long})


def _find_newest(
    asked: _Question,
    compared: Sequence[_Row],
    cosines: Mapping[frozenset[str], float],
    ratings: Mapping[int, Rating],
) -> dict[int, _Row]:
    """Return the newest row that replaces each replaced one, by its place."""
    newest: dict[int, _Row] = {}
    for older in compared:
        for newer in compared:
            cosine = cosines.get(frozenset((newer.entity_id, older.entity_id)), 0.0)
            is_newest = older.place not in newest or newest[older.place].time < newer.time
            is_corrected = older.entity_id in newer.corrected_ids and not _leaves_alone(newer, older, asked)
            # What was said of somebody later does not change who it is.
            is_replaced = is_corrected or (
                not asked.is_introduction
                and (_replaces(newer, older, asked, cosine) or _outweighs(newer, older, asked, cosine, ratings))
            )
            if is_newest and is_replaced:
                newest[older.place] = newer
    return newest


def _put_older_first(rows: list[dict[str, Any]], newest: Mapping[int, _Row]) -> list[dict[str, Any]]:
    """Return the rows with each replaced one before the newer one, for a question about what was so before."""
    ordered: list[int] = []
    for place in range(len(rows)):
        older = (replaced for replaced, newer in newest.items() if newer.place == place)
        ordered += [added for added in (*sorted(older), place) if added not in ordered]
    return [rows[place] for place in ordered]


def _reorder(rows: list[dict[str, Any]], newest: dict[int, _Row], long_places: set[int]) -> list[dict[str, Any]]:
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


def _prepare(asked: _Question, rows: Sequence[dict[str, Any]]) -> Iterator[_Row]:
    for place, row in enumerate(rows[:MAX_COMPARED_ROWS]):
        record, passage = row.get("record"), row.get("passage")
        happened_at, key = row.get("happened_at"), row.get("key")
        if not (isinstance(record, dict) and isinstance(passage, dict) and happened_at and key):
            continue
        if row["table"] not in COMPARED_TABLES:
            continue
        # When a note was read says nothing about when it was written: only a clear change of what it says counts.
        is_undated = row["table"] == "resources" and not record.get("timestamp")
        position = record.get("message_index")
        text = str(passage.get("text") or "")
        sentences = [text[start:end] for start, end in islice(find_sentence_spans(text), MAX_SENTENCES)]
        yield _Row(
            place,
            str(key),
            datetime.min.replace(tzinfo=UTC) if is_undated else datetime.fromisoformat(str(happened_at)),
            not _is_statement(row),
            is_undated,
            float(row.get("score") or 0.0),
            float(row.get("similarity") or 0.0),
            str(record["session_id"]) if record.get("session_id") else None,
            position if isinstance(position, int) else -1,
            str(record.get("id")),
            pick_part([parse_sentence(sentence) for sentence in sentences], asked.words, asked.shapes),
            find_content_words(text),
            asked.words.find_in(find_content_words(f"{get_continued(row)}\n{text}")),
            len(sentences) > MAX_REPLACED_SENTENCES,
            is_about_other_owner(asked.text, text),
            frozenset(map(stem_word, find_possible_names(text))),
            find_replaced_values(text),
            _read_corrected_ids(record),
        )


def _is_statement(row: dict[str, Any]) -> bool:
    """Return whether the user said a row: in a session, or as a note that REM was told to remember."""
    return bool(row["table"] == "messages" or row["record"].get("origin") == REMEMBERED_ORIGIN)


def _read_corrected_ids(record: dict[str, Any]) -> frozenset[str]:
    """Return the ids in `metadata.supersedes`, which lists rows as table/id. Users can write anything there."""
    metadata = record.get("metadata")
    names = metadata.get("supersedes") if isinstance(metadata, dict) else None
    return frozenset(str(name).rpartition("/")[2] for name in names) if isinstance(names, list) else frozenset()


def _parse_question(question: str, words: QuestionWords) -> _Question:
    text = question.lower().replace("’", "'")
    return _Question(
        words,
        find_asked_properties(question),
        question,
        find_asked_name(question) is not None,
        _POLAR.match(text) is not None,
        _HOLDER.search(text) is not None,
        frozenset(map(stem_word, find_names(_ACRONYM.sub(" ", question)))),
    )


def _replaces(newer: _Row, older: _Row, asked: _Question, cosine: float) -> bool:
    """Return whether a row says something else about the question than an older one does."""
    if not _is_comparable(newer, older, asked, cosine):
        return False
    if _returns(newer.part, older.part, asked):
        return True
    if _drops_value(newer, older, asked):
        return True
    if _leaves_alone(newer, older, asked):
        return False
    topic = _Topic(
        is_same=cosine >= SAME_TOPIC_COSINE and newer.fits(MIN_FIT_SHARE, older),
        is_sure=cosine >= SURE_TOPIC_COSINE and newer.fits(MIN_STATE_SHARE, older),
        is_near_in_session=_is_near_in_session(newer, older),
        common=(older.part.covered & newer.covered) - general_words(),
        missing=older.part.covered - newer.covered - general_words(),
        is_near=newer.score >= MIN_MOVED_SHARE * older.score and _is_close(newer, older, asked, cosine),
        is_closer=newer.similarity >= CLOSER_SHARE * older.similarity,
        is_asked=bool(asked.shapes) or 2 * len(older.part.covered) > len(asked.words.words),
        has_kind=bool(asked.shapes),
        is_polar=asked.is_polar,
    )
    if _moves(newer, older, asked, topic) or _restates(newer, older, asked, topic, cosine):
        return True
    if topic.is_near and _renews(newer, older, asked):
        return True
    if _succeeds(newer.part, older, asked, topic) or _changes_hands(newer.part, older.part, asked, topic):
        return True
    if _adjusts(newer.part, older.part, asked):
        return True
    pairs = ((new, old) for new in newer.part.sentences for old in older.part.sentences)
    return any(_contradicts(new, old, asked, topic) for new, old in pairs)


def _outweighs(newer: _Row, older: _Row, asked: _Question, cosine: float, ratings: Mapping[int, Rating]) -> bool:
    """Return whether a row answers the question as an older one does, by the reranker and by what both have in common.

    This finds changes without a word of change: "Dad's operation is on the 18th", "Dad rang, op on the 25th".
    """
    new, old = ratings.get(newer.place), ratings.get(older.place)
    if new is None or old is None or older.is_undated or newer.time <= older.time or newer.is_about_other_owner:
        return False
    if newer.is_note and not (older.is_note and cosine >= SAME_NOTE_COSINE):
        return False
    has_kind = bool(asked.shapes & newer.part.shapes & older.part.shapes)
    misses_kind = bool(asked.shapes & older.part.shapes) and not asked.shapes & newer.part.shapes
    common = len((newer.words & older.words) - filler_words())
    if not common or old.certainty <= 0 or _leaves_alone(newer, older, asked):
        return False
    evidence = (
        EVIDENCE["newer_answers"] * new.certainty
        + EVIDENCE["older_answers"] * old.certainty
        + EVIDENCE["difference"] * min(new.total - old.total, 0.0)
        + EVIDENCE["common_word"] * min(common, MAX_COUNTED_WORDS)
        + EVIDENCE["same_kind"] * has_kind
        + EVIDENCE["missing_kind"] * misses_kind
        + EVIDENCE["change"] * newer.part.has_change
        + EVIDENCE["revision"] * newer.part.is_revision
        + EVIDENCE["polar"] * asked.is_polar
    )
    return evidence >= MIN_EVIDENCE


@dataclass(frozen=True, slots=True)
class _Topic:
    """How surely two rows have the same topic."""

    is_same: bool
    is_sure: bool
    is_near_in_session: bool
    common: frozenset[str]
    """The words of the question that both have, without general ones such as "number"."""
    missing: frozenset[str]
    """The words of the question that only the older one has."""
    is_near: bool
    """Whether the newer one fits the question at least half as well, and is about something similar."""

    is_closer: bool
    """Whether the newer one is as near to the question in meaning."""
    is_asked: bool
    """Whether the older one has most words of the question. With a name alone it may be about something else."""
    has_kind: bool
    """Whether the question asks for a kind of value."""
    is_polar: bool
    """Whether the question asks for yes or no."""

    @property
    def is_revised(self) -> bool:
        """Whether a newer text that clearly revises something revises what the question asks for.

        A question for no kind of value may be about another property of the same thing.
        """
        if self.is_polar:
            return self.is_near and len(self.missing) <= MAX_MISSING_WORDS
        can_miss = self.has_kind or self.is_closer
        return self.is_same and len(self.missing) <= (MAX_MISSING_WORDS if can_miss else 0)

    @property
    def is_about_same(self) -> bool:
        """Whether the newer one has nearly all words of the question that the older one has."""
        return len(self.missing) < len(self.common) and len(self.missing) <= 1

    @property
    def has_same_words(self) -> bool:
        """Whether the newer one has all words of the question that the older one has."""
        return bool(self.common) and not self.missing


def _is_comparable(newer: _Row, older: _Row, asked: _Question, cosine: float) -> bool:
    """Return whether a row may replace an older one at all."""
    if newer.time <= older.time or newer.is_about_other_owner:
        return False
    is_change = newer.part.is_revision or _renews(newer, older, asked)
    is_clear_change = _drops_value(newer, older, asked) or (is_change and _is_close(newer, older, asked, cosine))
    if older.is_undated and not is_clear_change:
        return False
    # What was said is not outdated because a note was stored later.
    return not newer.is_note or (older.is_note and cosine >= SAME_NOTE_COSINE)


def _is_close(newer: _Row, older: _Row, asked: _Question, cosine: float) -> bool:
    """Return whether two rows are about something similar.

    The vector of a note with many facts says little about one of them. Then the same words and the same kind of value
    are enough.
    """
    has_same_words = bool(older.part.covered - general_words()) and older.part.covered <= newer.covered
    return cosine >= MIN_MOVED_COSINE or (has_same_words and bool(asked.shapes & newer.part.shapes & older.part.shapes))


def _renews(newer: _Row, older: _Row, asked: _Question) -> bool:
    """Return whether a row says that there is a new value of the asked kind: "The Wi-Fi has a new password: …"."""
    renewed = frozenset().union(*(sentence.renewed for sentence in newer.part.sentences))
    common = (newer.words & older.words) - filler_words() - general_words()
    shapes = asked.shapes & newer.part.shapes & older.part.shapes
    missing = older.part.covered - newer.covered - general_words()
    return bool(shapes) and bool(common) and not missing and bool(asked.words.find_in(renewed))


def _is_near_in_session(newer: _Row, older: _Row) -> bool:
    is_same_session = newer.session_id is not None and newer.session_id == older.session_id
    return is_same_session and 0 < newer.position - older.position <= MAX_REFERENCE_DISTANCE


def _contradicts(new: Sentence, old: Sentence, asked: _Question, topic: _Topic) -> bool:
    """Return whether a sentence says something else than an older one."""
    if new.words <= old.words and not new.negated:
        return False  # it repeats the older one
    return (
        _states_same_property(new, old, asked.properties)
        or _revokes(new, old)
        or (topic.is_same and topic.is_about_same and topic.is_asked and _changes(new, old))
        or (new.is_revision and topic.is_revised and bool(topic.common))
        or (asked.is_polar and topic.is_same and _answers_yes_or_no(new, old, asked))
        or (topic.is_sure and new.is_state and topic.is_about_same and topic.is_asked)
        or _names_old_value(new, old)
        or (topic.is_near_in_session and _corrects(new, old))
    )


def _answers_yes_or_no(new: Sentence, old: Sentence, asked: _Question) -> bool:
    """Return whether a sentence is about the subject of the question, as the older one is.

    Of a subject without words that tell much, such as "my back", only a change is taken for an answer.
    """
    if not new.subject:
        return new.has_change
    return new.subject <= old.words & asked.words.words


def _names_old_value(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence says that the value of the older one is wrong: "on Saturday instead of Friday"."""
    common = (new.words & old.words) - filler_words() - new.negated
    return bool(new.negated & old.words) and len(common) > 1


def _leaves_alone(newer: _Row, older: _Row, asked: _Question) -> bool:
    """Return whether a row, even if it corrects an older one, says nothing about what the question asks for."""
    return (
        _misses_point(newer.part, older.part, asked)
        or _misses_name(newer, older, asked)
        or _changes_other_value(newer, older, asked)
    )


def _misses_point(newer: Part, older: Part, asked: _Question) -> bool:
    """Return whether only the older part has the kind of value that is asked for, and is not revoked."""
    # What is called off has no time or place any more, but a phone number stays the same.
    is_revoked = newer.is_revocation and not asked.shapes & {"code", "reason"}
    return bool(asked.shapes & older.shapes) and not asked.shapes & newer.shapes and not is_revoked


def _misses_name(newer: _Row, older: _Row, asked: _Question) -> bool:
    """Return whether the question asks for a name, and the newer row has no other one than the older row.

    That the dentist's appointment is on Thursday does not change who the dentist is.
    """
    if "name" not in asked.words.kinds or not older.part.names - asked.words.words or newer.part.is_revocation:
        return False
    return not newer.possible_names - older.words - asked.words.words - filler_words() - general_words()


def _changes_other_value(newer: _Row, older: _Row, asked: _Question) -> bool:
    """Return whether a row has nothing new but a day, a time or a number, and the question asks for something else.

    "My sister's wedding is on 21 June" does not change the dress code of the wedding.
    """
    added = newer.part.words - older.part.words - filler_words() - calendar_words()
    if any(not word.isdigit() for word in added) or not newer.part.shapes & {"day", "time", "number"}:
        return False
    if asked.words.kinds:
        return asked.words.kinds.isdisjoint(newer.part.shapes)
    return not newer.part.is_revocation and bool(older.part.covered - newer.covered - general_words())


def _drops_value(newer: _Row, older: _Row, asked: _Question) -> bool:
    """Return whether a row names the value of the older one as dropped, and a new one."""
    if asked.shapes - {"place", "origin"} and _misses_point(newer.part, older.part, asked):
        return False
    dropped = (newer.replaced - asked.words.words) & (older.part.words if older.is_long else older.words)
    # A question for something else of the older text shares little with the new value: "Which channel is for alarms?"
    is_near = newer.similarity >= MIN_DROPPED_SIMILARITY or any(
        sentence.owner == AUTHOR and sentence.properties & asked.properties for sentence in newer.part.sentences
    )
    return bool(dropped) and is_near and asked.names <= newer.words


def _moves(newer: _Row, older: _Row, asked: _Question, topic: _Topic) -> bool:
    """Return whether a row with a word of change has another time, place or code for the thing that is asked for."""
    new, old = newer.part, older.part
    if not new.has_change or not topic.is_near or not topic.common:
        return False
    if len(topic.missing) > (MAX_MISSING_WORDS if new.is_revision or topic.is_sure else 1):
        return False
    shapes = asked.shapes & new.shapes & old.shapes
    if shapes & {"code"}:
        return len(topic.common) > 1 or (new.is_revision and not topic.missing)
    return bool(shapes - {"number", "reason"}) and bool((newer.words & old.words & asked.words.words) - filler_words())


def _restates(newer: _Row, older: _Row, asked: _Question, topic: _Topic, cosine: float) -> bool:
    """Return whether a row says as much about the question, with another day or time."""
    new, old = newer.part, older.part
    shapes = asked.shapes & new.shapes & old.shapes & {"day", "time"}
    is_about_same = topic.is_same and topic.has_same_words and cosine >= RESTATED_COSINE
    return is_about_same and bool(shapes) and not new.words <= old.words


def _states_same_property(new: Sentence, old: Sentence, asked: frozenset[str]) -> bool:
    """Return whether two sentences are about the property of their author that is asked for, such as the residence."""
    is_same_person = new.owner == old.owner == AUTHOR
    return is_same_person and bool(new.properties & old.properties & asked) and new.value != old.value


def _revokes(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence says nothing but that the thing of the older one has changed: "The offsite is off"."""
    return new.has_change and bool(new.thing) and new.thing <= old.words


def _succeeds(new: Part, older: _Row, asked: _Question, topic: _Topic) -> bool:
    """Return whether somebody took the place of the one whom the older row names: "Jonas took over from Priya"."""
    if "name" not in asked.words.kinds or not topic.is_near or len((new.words & older.words) - filler_words()) < 2:
        return False
    return any(sentence.is_succession for sentence in new.sentences)


def _changes_hands(new: Part, old: Part, asked: _Question, topic: _Topic) -> bool:
    """Return whether a thing has another holder, if the question asks who has it.

    "The spare key is with Mrs Doherty", and then "Mrs Doherty moved away, the key is with Tom now".
    """
    is_near = topic.is_near and bool(topic.common) and len(topic.missing) <= 1
    holders = (new.words & old.words) - asked.words.words - filler_words() - general_words()
    return asked.is_about_holder and new.has_change and is_near and bool(holders)


def _adjusts(new: Part, old: Part, asked: _Question) -> bool:
    """Return whether a part has another value of the asked kind for "it": "Aviva put it up to 455"."""
    shapes = asked.shapes & new.shapes & old.shapes
    common = (new.words & old.words) - filler_words() - general_words()
    return bool(shapes) and bool(common) and any(sentence.is_adjustment for sentence in new.sentences)


def _returns(new: Part, old: Part, asked: _Question) -> bool:
    """Return whether a thing is back that was lent, or lay somewhere else, if the question asks where it is."""
    is_back = any(sentence.is_return for sentence in new.sentences)
    was_away = any(sentence.is_absence for sentence in old.sentences)
    return "place" in asked.shapes and is_back and was_away and bool((new.covered & old.covered) - filler_words())


def _changes(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence has a word of change, or states another value of the same kind for the same thing."""
    common = (new.words & old.words) - filler_words()
    if new.has_change or new.negated & old.words:
        return bool(common)
    return bool(new.subject) and new.subject == old.subject and bool(new.shapes & old.shapes)


def _corrects(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence corrects what was just said, without naming it again."""
    if not new.refers_back or not (new.has_change or new.negated):
        return False
    return bool((new.words & old.words) - filler_words() or new.negated & old.words)


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
