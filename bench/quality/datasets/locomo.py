"""Read LoCoMo: long conversations of two friends, and questions with the ids of turns that answer them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bench.quality.dataset import (
    Case,
    Dataset,
    DatasetMessage,
    DatasetSession,
    DroppedCounts,
    Question,
    keep_known_gold,
)
from bench.quality.datasets.published_files import find_file, parse_time, read_entries
from rem.errors import InvalidInputError
from rem.evals.json_files import validate_model
from rem.models import Role
from rem.text import clean_text

METRICS = ("recall@5", "recall@10")
KINDS = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop", 5: "adversarial"}
SESSION_KEY = re.compile(r"session_(\d+)\Z")
ADVERSARIAL = 5
"""The category of questions about something that nobody said."""
TIME_FORMATS = ("%I:%M %p on %d %B, %Y",)


class _Turn(BaseModel):
    speaker: str
    dia_id: str
    text: str
    blip_caption: str | None = None


class _Session(BaseModel):
    turns: list[_Turn]


class _Question(BaseModel):
    question: str
    category: int
    evidence: list[str] = []
    answer: str | int | float | None = None


class _Entry(BaseModel):
    sample_id: str | None = None
    conversation: dict[str, Any]
    qa: list[_Question]


def read_dataset(path: Path, limit: int | None = None) -> Dataset:
    """Return the conversations of an official file; with `limit`, only the first ones."""
    file = find_file(path, "locomo")
    dropped = DroppedCounts()
    cases = tuple(
        _build_case(
            validate_model(_Entry, entry, f"{file} is not a file of LoCoMo: entry {number}"), number, dropped, str(file)
        )
        for number, entry in enumerate(read_entries(file, "LoCoMo")[:limit], start=1)
    )
    return Dataset("locomo", cases, "messages", "dia_id", METRICS, dropped)


def _build_case(entry: _Entry, number: int, dropped: DroppedCounts, file: str) -> Case:
    name = entry.sample_id or f"conversation-{number}"
    sessions = tuple(_build_sessions(entry.conversation, f"{file}: {name}"))
    if not sessions:
        raise InvalidInputError(f"{file}: {name} has no session_1, session_2, ...: is it a file of LoCoMo?")
    known_ids = {message.id for session in sessions for message in session.messages if message.id}
    questions = tuple(
        Question(
            f"{name}:{index}",
            question.question,
            KINDS.get(question.category, f"category {question.category}"),
            keep_known_gold(question.evidence, known_ids, dropped),
            answer=_get_answer(question),
            is_answerable=question.category != ADVERSARIAL,
        )
        for index, question in enumerate(entry.qa, start=1)
    )
    return Case(name, questions, sessions)


def _get_answer(question: _Question) -> str | None:
    """Return the correct answer. The file has a wrong one for questions about something that nobody said."""
    if question.category == ADVERSARIAL:
        return "Nobody said this in the conversations."
    return None if question.answer is None else str(question.answer)


def _build_sessions(conversation: dict[str, Any], where: str) -> Iterator[DatasetSession]:
    """Yield the sessions in order. Some sessions have a date but no turns; they are skipped."""
    numbers = sorted(int(match[1]) for key in conversation if (match := SESSION_KEY.match(key)))
    user = conversation.get("speaker_a")
    for number in numbers:
        key = f"session_{number}"
        turns = validate_model(_Session, {"turns": conversation[key]}, f"{where}: {key}").turns
        if not turns:
            continue
        user = user or turns[0].speaker
        at = parse_time(str(conversation.get(f"{key}_date_time", "")), TIME_FORMATS, f"{where}: {key}_date_time")
        yield DatasetSession(
            key,
            at,
            tuple(
                DatasetMessage(
                    turn.dia_id,
                    index,
                    Role.USER if turn.speaker == user else Role.ASSISTANT,
                    _format_content(turn),
                    at + timedelta(seconds=index),
                    turn.speaker,
                )
                for index, turn in enumerate(turns)
            ),
        )


def _format_content(turn: _Turn) -> str:
    photo = f" [shares photo: {turn.blip_caption}]" if turn.blip_caption else ""
    return clean_text(f"{turn.speaker}: {turn.text}{photo}")
