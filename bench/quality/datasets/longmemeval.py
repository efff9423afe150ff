"""Read LongMemEval: each question has its own history, and the ids of the sessions that answer it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

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

METRICS = ("recall_all@5", "recall_all@10", "recall_any@5", "ndcg_any@10")
UNANSWERABLE_SUFFIX = "_abs"
WEEKDAY = re.compile(r"(?:(?<!\s)\s+)?\(\w+\)\s*")
TIME_FORMATS = ("%Y/%m/%d %H:%M", "%Y/%m/%d")


class _Turn(BaseModel):
    role: Role
    content: str


class _Entry(BaseModel):
    question_id: str
    question_type: str
    question: str
    question_date: str | None = None
    answer: str | int | float | None = None
    answer_session_ids: list[str]
    haystack_dates: list[str]
    haystack_session_ids: list[str]
    haystack_sessions: list[list[_Turn]]


def read_dataset(path: Path, limit: int | None = None) -> Dataset:
    """Return the questions of an official file, each with its history; with `limit`, only the first ones."""
    file = find_file(path, "longmemeval")
    dropped = DroppedCounts()
    cases = tuple(
        _build_case(
            validate_model(_Entry, entry, f"{file} is not a file of LongMemEval: entry {number}"), dropped, str(file)
        )
        for number, entry in enumerate(read_entries(file, "LongMemEval")[:limit], start=1)
    )
    return Dataset("longmemeval", cases, "sessions", "session_id", METRICS, dropped)


def _build_case(entry: _Entry, dropped: DroppedCounts, file: str) -> Case:
    where = f"{file}: question {entry.question_id}"
    ids, dates, sessions = entry.haystack_session_ids, entry.haystack_dates, entry.haystack_sessions
    if not len(ids) == len(dates) == len(sessions):
        raise InvalidInputError(f"{where}: {len(sessions)} sessions have {len(ids)} ids and {len(dates)} dates.")
    dataset_sessions = tuple(
        _build_session(session_id, _parse_time(date, where), turns, dropped)
        for session_id, date, turns in zip(ids, dates, sessions, strict=True)
    )
    has_answer = not entry.question_id.endswith(UNANSWERABLE_SUFFIX)
    question = Question(
        entry.question_id,
        entry.question,
        entry.question_type,
        keep_known_gold(entry.answer_session_ids, set(ids), dropped) if has_answer else (),
        _parse_time(entry.question_date, where) if entry.question_date else None,
        None if entry.answer is None else str(entry.answer),
        has_answer,
    )
    return Case(f"question-{entry.question_id}", (question,), dataset_sessions)


def _build_session(session_id: str, at: datetime, turns: list[_Turn], dropped: DroppedCounts) -> DatasetSession:
    messages = tuple(
        DatasetMessage(None, index, turn.role, clean_text(turn.content), at + timedelta(seconds=index))
        for index, turn in enumerate(turns)
        if turn.content.strip()
    )
    dropped.blank_messages += len(turns) - len(messages)
    return DatasetSession(session_id, at, messages)


def _parse_time(text: str, where: str) -> datetime:
    """Parse a time such as 2023/05/20 (Sat) 02:21."""
    return parse_time(WEEKDAY.sub(" ", text), TIME_FORMATS, where)
