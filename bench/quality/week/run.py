"""WeekRun: live through a week in a REM of its own, ask the questions at every stage, and record the answers."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from time import perf_counter
from typing import TypeAlias
from uuid import uuid4

from bench.quality.week.data import DAYS, Week, WeekQuestion, WeekSession
from bench.quality.week.derived import (
    SQL,
    DerivedCounts,
    MisreadMessage,
    count_derived_from_questions,
    list_misread_messages,
)
from rem.agents.chat import AgentRequest
from rem.agents.model_registry import LOCAL_MODEL
from rem.app import Rem
from rem.context import AgentContext, Scope
from rem.errors import FileUnreadableError
from rem.models.field_types import utc_now

OnStage: TypeAlias = Callable[[str, list["WeekOutcome"]], None]
"""Called with the name of a stage, and the outcomes of the questions that were just asked."""

SAME_SESSION, OTHER_SESSION, REPEATED = "same session", "other session", "repeated"
QUESTIONS_PER_SESSION = 10
"""Questions that are asked one after the other in one session, after a night."""
NOTES_TIME, EVENING, MORNING = time(7, 0), time(22, 30), time(6, 30)
DAYS_BEFORE_WEEK = 14
"""Age of the notes from before the week, on its first day."""


@dataclass(frozen=True, slots=True)
class WeekOutcome:
    """The answer to a question at one stage."""

    stage: str
    question: WeekQuestion
    extracts: tuple[str, ...]
    """The numbered extracts of the answer, best first; the whole answer if it has none."""
    is_first: bool
    """Whether the right answer is in the first extract, and nothing outdated before it."""
    is_among: bool
    """Whether the right answer is in any extract."""
    milliseconds: float


@dataclass(frozen=True, slots=True)
class LookupCount:
    """The people that LOOKUP should find after a night."""

    stage: str
    missing: tuple[str, ...]
    people: int

    @property
    def found(self) -> int:
        """The number of people that LOOKUP found."""
        return self.people - len(self.missing)


@dataclass(slots=True)
class WeekResult:
    """Everything that a run of a week has measured."""

    outcomes: list[WeekOutcome] = field(default_factory=list)
    lookups: list[LookupCount] = field(default_factory=list)
    derived: DerivedCounts = field(default_factory=DerivedCounts)
    misread: list[MisreadMessage] = field(default_factory=list)
    dream_seconds: float = 0.0
    seconds: float = 0.0


def night_stage(day: int) -> str:
    """Return the name of the stage after the night of a day."""
    return f"night {day}"


class WeekRun:
    """One run of a week, in its own tenant. Messages go to the agent with the model `rem:local`, as in `rem chat`.

    The days are those of the last whole week from Monday to Sunday. A session takes place now and is then moved to its
    day, with all its messages, before the night in which dreams read it.
    """

    def __init__(self, rem: Rem, week: Week, *, tenant: str, on_stage: OnStage) -> None:
        self._rem = rem
        self._week = week
        self._scope = Scope.for_user(week.user, tenant)
        self._on_stage = on_stage
        self._result = WeekResult()
        today = utc_now().date()
        self._monday = today - timedelta(days=today.weekday() + DAYS)

    async def run(self, days: int = DAYS, *, with_nights: bool = True) -> WeekResult:
        """Live through the first `days` days, and return what was measured. Without nights nothing is dreamt."""
        started = perf_counter()
        last_day = min(days, self._week.last_day)
        for day in range(1, last_day + 1):
            await self._spend_day(day)
            await self._ask_other_sessions(day)
            if with_nights:
                await self._spend_night(day, is_last=day == last_day)
        if with_nights:
            await self._repeat(last_day)
        self._result.derived = await count_derived_from_questions(self._rem, self._scope, self._week)
        self._result.misread = await list_misread_messages(self._rem, self._scope, self._week)
        self._result.seconds = perf_counter() - started
        return self._result

    async def _spend_day(self, day: int) -> None:
        """Ingest the notes of a day and have its sessions. Ask about each session at its end."""
        await self._ingest_notes(day)
        outcomes = []
        for session in self._week.list_sessions(day):
            session_id = await self._say_all(session)
            outcomes += await self._ask_all(SAME_SESSION, self._week.list_questions(session), session_id)
            await self._move_session(session_id, day, time.fromisoformat(session.at))
        self._add(SAME_SESSION, outcomes)

    async def _ingest_notes(self, day: int) -> None:
        notes = self._week.list_notes(day)
        if not notes:
            return
        written = [
            (note.file, note.text, self._time_of(note.day or 1 - DAYS_BEFORE_WEEK, NOTES_TIME)) for note in notes
        ]
        await ingest_notes(self._rem, self._scope, written)

    async def _say_all(self, session: WeekSession) -> str:
        """Send the messages of a session, and return its id."""
        session_id = str(uuid4())
        for message in session.messages:
            await self._send(message.text, session_id)
        return session_id

    async def _ask_other_sessions(self, day: int) -> None:
        """Ask about the day, each question in a session of its own, before the night."""
        questions = [item for item in self._week.list_known_questions(day) if self._week.day_of(item.source) == day]
        outcomes = []
        for question in questions:
            session_id = str(uuid4())
            outcomes.append(await self._ask(OTHER_SESSION, question, session_id))
            await self._move_session(session_id, day, EVENING)
        self._add(OTHER_SESSION, outcomes)

    async def _spend_night(self, day: int, *, is_last: bool) -> None:
        """Dream, then ask everything that is known."""
        await self._dream()
        morning = None if is_last else day + 1
        self._add(night_stage(day), await self._ask_in_sessions(night_stage(day), day, morning))
        self._result.lookups.append(await self._look_up_people(day))

    async def _repeat(self, day: int) -> None:
        """Ask everything once more. All questions were asked at least twice by now, and dreams have read them."""
        await self._dream()
        self._add(REPEATED, await self._ask_in_sessions(REPEATED, day, None))

    async def _dream(self) -> None:
        started = perf_counter()
        dreamer = self._rem.dreamer()
        await dreamer.dream(self._scope, email=self._week.user)
        self._result.dream_seconds += perf_counter() - started

    async def _ask_in_sessions(self, stage: str, day: int, morning: int | None) -> list[WeekOutcome]:
        """Ask what is known at the end of a day, some questions in one session, in a mixed but repeatable order."""
        questions = self._week.list_known_questions(day)
        random.Random(stage).shuffle(questions)  # an order, not a secret
        outcomes = []
        for start in range(0, len(questions), QUESTIONS_PER_SESSION):
            session_id = str(uuid4())
            outcomes += await self._ask_all(stage, questions[start : start + QUESTIONS_PER_SESSION], session_id)
            if morning is not None:
                await self._move_session(session_id, morning, MORNING)
        return outcomes

    async def _ask_all(self, stage: str, questions: Sequence[WeekQuestion], session_id: str) -> list[WeekOutcome]:
        """Ask questions one after the other in the same session."""
        return [await self._ask(stage, question, session_id) for question in questions]

    async def _ask(self, stage: str, question: WeekQuestion, session_id: str) -> WeekOutcome:
        started = perf_counter()
        extracts = split_extracts(await self._send(question.ask, session_id))
        milliseconds = (perf_counter() - started) * 1e3
        is_first = question.is_answered_by(extracts[0]) and not question.is_outdated_in(extracts[0])
        is_among = any(question.is_answered_by(extract) for extract in extracts)
        return WeekOutcome(stage, question, extracts, is_first, is_among, milliseconds)

    async def _send(self, text: str, session_id: str) -> str:
        """Send a message of the user to the agent `rem`, and return its answer."""
        context = AgentContext(
            user_id=self._scope.user_id,
            user_email=self._week.user if "@" in self._week.user else None,
            tenant_id=self._scope.tenant_id,
            session_id=session_id,
        )
        return (await self._rem.agents.run(AgentRequest(context=context, text=text, model=LOCAL_MODEL))).text

    async def _look_up_people(self, day: int) -> LookupCount:
        people = [person for person in self._week.people if self._week.day_of(person.source) <= day]
        missing = []
        for person in people:
            quoted = person.name.replace("\\", "\\\\").replace('"', '\\"')
            result = await self._rem.for_user(self._scope).query(f'LOOKUP "{quoted}"')
            if not result.hits:
                missing.append(person.name)
        return LookupCount(night_stage(day), tuple(missing), len(people))

    async def _move_session(self, session_id: str, day: int, at: time) -> None:
        await move_session(self._rem, self._scope, session_id, self._time_of(day, at))

    def _time_of(self, day: int, at: time) -> datetime:
        return datetime.combine(self._monday + timedelta(days=day - 1), at, UTC)

    def _add(self, stage: str, outcomes: list[WeekOutcome]) -> None:
        self._result.outcomes += outcomes
        self._on_stage(stage, outcomes)


async def ingest_notes(rem: Rem, scope: Scope, notes: Sequence[tuple[str, str, datetime]]) -> None:
    """Ingest files with a name, a text and the time at which they were written. Raise an error if one fails."""
    with tempfile.TemporaryDirectory(prefix="rem-bench-") as parent:
        folder = Path(parent) / "notes"  # a part of the keys, so it is the same in every run
        for name, text, written_at in notes:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            os.utime(path, (written_at.timestamp(),) * 2)
        report = await rem.for_user(scope).ingest(folder)
    failure = next((file for file in report.files if file.status == "failed"), None)
    if failure is not None:
        raise FileUnreadableError(f"The note {failure.name} was not ingested: {failure.error}")


async def move_session(rem: Rem, scope: Scope, session_id: str, at: datetime) -> None:
    """Move a session and its messages back to a time. The order of the messages stays."""
    owner = scope.tenant_id, scope.user_id, session_id
    async with rem.database.connection() as connection, connection.transaction():
        for name in ("move_messages", "move_session"):
            await connection.execute(SQL[name], *owner, at)
        await connection.execute(SQL["move_passages"], *owner)


def split_extracts(answer: str) -> tuple[str, ...]:
    """Return the lines of an answer with their sources, without the line that introduces the nearest rows."""
    lines = [line.removeprefix("- ") for line in answer.splitlines() if line.strip()]
    return tuple(lines[1:] if len(lines) > 1 and lines[0].endswith(":") else lines) or (answer,)
