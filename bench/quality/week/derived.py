"""Count the derived moments, entities and topics that come from questions and not from statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.quality.week.data import Week, simplify
from rem.app import Rem
from rem.context import Scope
from rem.db.sql import parse_blocks
from rem.models.message import MessageKind

SQL = parse_blocks((Path(__file__).parent / "week.sql").read_text(encoding="utf-8"))
MIN_QUESTION_WORDS = 3
"""A shorter question, such as "Why?", occurs in other texts by chance."""


@dataclass(frozen=True, slots=True)
class MisreadMessage:
    """A message that was stored with another kind than it has."""

    text: str
    kind: MessageKind
    stored_kind: MessageKind | None


@dataclass(frozen=True, slots=True)
class DerivedCounts:
    """The number of derived rows, and the names or texts of those that come from a question."""

    moments: int = 0
    moments_of_questions: tuple[str, ...] = ()
    entities: int = 0
    entities_of_questions: tuple[str, ...] = ()
    topics: int = 0
    topics_of_questions: tuple[str, ...] = ()


async def count_derived_from_questions(rem: Rem, scope: Scope, week: Week) -> DerivedCounts:
    """Count what dreams derived in a week.

    A row comes from a question if all messages that it is based on are questions or small talk, or if its text contains
    a question. A topic comes from a question if it occurs in no note and in no statement.
    """
    asked = {question.ask for question in week.questions}
    unstated = asked | set(week.list_texts(MessageKind.QUESTION, MessageKind.SMALL_TALK))
    async with rem.database.connection() as connection:
        owner = scope.tenant_id, scope.user_id
        rows = await connection.fetch(SQL["derived_rows"], *owner, list(unstated))
        topics = {row["topic"] for row in await connection.fetch(SQL["topics"], *owner)}
    moments = [row for row in rows if row["entity_type"] == "moments"]
    entities = [row for row in rows if row["entity_type"] == "ontologies"]
    questions = [
        _flatten(text)
        for text in asked | set(week.list_texts(MessageKind.QUESTION))
        if len(text.split()) >= MIN_QUESTION_WORDS
    ]
    told = _flatten("\n".join([*week.list_texts(MessageKind.STATEMENT), *(note.text for note in week.notes)]))
    return DerivedCounts(
        len(moments),
        _list_of_questions(moments, questions),
        len(entities),
        _list_of_questions(entities, questions),
        len(topics),
        tuple(sorted(topic for topic in topics if _flatten(topic) not in told)),
    )


async def list_misread_messages(rem: Rem, scope: Scope, week: Week) -> list[MisreadMessage]:
    """Return the messages and questions of a week that were stored with another kind than the week gives them."""
    kinds = {message.text: message.kind for session in week.sessions for message in session.messages}
    kinds |= {question.ask: MessageKind.QUESTION for question in week.questions}
    async with rem.database.connection() as connection:
        rows = await connection.fetch(SQL["message_kinds"], scope.tenant_id, scope.user_id)
    return [
        MisreadMessage(row["content"], kinds[row["content"]], row["kind"])
        for row in rows
        if row["content"] in kinds and row["kind"] != kinds[row["content"]]
    ]


def _list_of_questions(rows: Iterable[Any], questions: list[str]) -> tuple[str, ...]:
    """Return the labels of the rows that come from a question."""
    return tuple(
        row["label"]
        for row in rows
        if row["has_only_questions"] or any(question in _flatten(row["body"]) for question in questions)
    )


def _flatten(text: str) -> str:
    """Return the text for a comparison in which keys are words, too."""
    return simplify(text.replace("-", " ").replace("_", " ")).rstrip("?")
