"""Prepare the rows of an answer and its question for a comparison of older and newer rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from rem.models.resource import REMEMBERED_ORIGIN
from rem.query.continuations import get_continued, join_texts
from rem.query.own_properties import MAX_SENTENCES, find_asked_properties, is_about_other_owner
from rem.query.question_words import QuestionWords, find_asked_name, find_content_words, stem_word
from rem.query.stated_changes import Part, find_replaced_values, parse_sentence, pick_part
from rem.query.value_kinds import ValueKind, find_names, find_possible_names
from rem.text import find_sentence_spans

MAX_COMPARED_ROWS = 20
"""Rows of an answer that are compared with each other."""
COMPARED_TABLES = ("messages", "resources")
"""What dreams derived repeats these rows, under the date of the dream."""
MAX_REPLACED_SENTENCES = 4
"""A text of more sentences is long: most of it holds if one fact in it is replaced."""
_POLAR = re.compile(
    r"\s*(?:so |and |but )*(?:is|are|was|were|am|do|does|did|has|have|had|will|would|can|could|should)(?:n't)? "
    r"(?!you\b)"
)
_ACRONYM = re.compile(r"\b[A-Z]{2,}s?\b")
"""A word such as RTOS names a kind of things."""
_HOLDER = re.compile(r"\bwho(?:'s|s)? (?:has|have|had|got|keeps|holds|looks after|is keeping)\b")


@dataclass(frozen=True, slots=True)
class AnswerRow:
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
    text: str
    """The passage, after the messages that it continues."""
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

    def fits(self, share: float, other: AnswerRow) -> bool:
        """Return whether the row fits the question at least this share as well as another."""
        return self.score >= share * other.score and self.similarity >= share * other.similarity


@dataclass(frozen=True, slots=True)
class AskedQuestion:
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


def prepare_rows(asked: AskedQuestion, rows: Sequence[dict[str, Any]]) -> Iterator[AnswerRow]:
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
        yield AnswerRow(
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
            join_texts(get_continued(row), text),
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


def parse_question(question: str, words: QuestionWords) -> AskedQuestion:
    text = question.lower().replace("’", "'")
    return AskedQuestion(
        words,
        find_asked_properties(question),
        question,
        find_asked_name(question) is not None,
        _POLAR.match(text) is not None,
        _HOLDER.search(text) is not None,
        frozenset(map(stem_word, find_names(_ACRONYM.sub(" ", question)))),
    )
