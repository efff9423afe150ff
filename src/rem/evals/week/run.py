"""WeekRun: live through a week in a REM of its own, ask the questions at every stage, and record the answers."""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from time import perf_counter
from typing import TypeAlias
from uuid import uuid4

from rem.agents.chat import AgentRequest
from rem.agents.local.model import LOCAL_MODEL
from rem.agents.service import Agents
from rem.app import Rem
from rem.context import AgentContext, Scope
from rem.db.sql import query
from rem.errors import FileUnreadableError
from rem.evals.week.data import DAYS, Week, WeekQuestion, WeekSession
from rem.evals.week.derived import (
    DerivedCounts,
    MisreadMessage,
    count_derived_from_questions,
    list_misread_messages,
)
from rem.models.field_types import utc_now
from rem.settings import Settings

OnStage: TypeAlias = Callable[[str, list["WeekOutcome"]], None]
"""Called with the name of a stage, and the outcomes of the questions that were just asked."""

SAME_SESSION, OTHER_SESSION, REPEATED = "same session", "other session", "repeated"
QUESTIONS_PER_SESSION = 10
"""Questions that are asked one after the other in one session, after a night."""
NOTES_TIME, EVENING, MORNING = time(7, 0), time(22, 30), time(6, 30)
DAYS_BEFORE_WEEK = 14
"""Age of the notes from before the week, on its first day."""
_NUMBERED = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
_LABEL = re.compile(r"^`[^`]*`(?: \((?:[^“)]*“([^”]*)”)?[^)]*\))?: ")
"""The key and the kind of a row, with the title of a note."""


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

    def __init__(self, rem: Rem, settings: Settings, week: Week, *, tenant: str, on_stage: OnStage) -> None:
        self._rem = rem
        self._agents = Agents(rem, settings)
        self._week = week
        self._scope = Scope.for_user(week.user, tenant)
        self._on_stage = on_stage
        self._result = WeekResult()
        today = utc_now().date()
        self._monday = today - timedelta(days=today.weekday() + DAYS)

    async def run(self, days: int = DAYS, *, with_nights: bool = True) -> WeekResult:
        """Live through the first `days` days, and return what was measured. Without nights nothing is dreamt."""
        started = perf_counter()
        try:
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
        finally:
            await self._agents.close()
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
        with tempfile.TemporaryDirectory(prefix="rem-week-") as folder:
            for note in notes:
                path = Path(folder) / note.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(note.text, encoding="utf-8")
                written_at = self._time_of(note.day or 1 - DAYS_BEFORE_WEEK, NOTES_TIME).timestamp()
                os.utime(path, (written_at, written_at))
            report = await self._rem.ingest(folder, user=self._scope)
        failure = next((file for file in report.files if file.status == "failed"), None)
        if failure is not None:
            raise FileUnreadableError(f"The note {failure.name} was not ingested: {failure.error}")

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
        dreamer = self._rem.dreamer(None, self._agents.output_schemas)
        await dreamer.dream(self._scope, email=self._week.user)
        self._result.dream_seconds += perf_counter() - started

    async def _ask_in_sessions(self, stage: str, day: int, morning: int | None) -> list[WeekOutcome]:
        """Ask what is known at the end of a day, some questions in one session, in a mixed but repeatable order."""
        questions = self._week.list_known_questions(day)
        random.Random(stage).shuffle(questions)  # noqa: S311  # an order, not a secret
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
        return (await self._agents.run(AgentRequest(context=context, text=text, model=LOCAL_MODEL))).text

    async def _look_up_people(self, day: int) -> LookupCount:
        people = [person for person in self._week.people if self._week.day_of(person.source) <= day]
        missing = []
        for person in people:
            quoted = person.name.replace("\\", "\\\\").replace('"', '\\"')
            result = await self._rem.query(f'LOOKUP "{quoted}"', user=self._scope)
            if not result.results:
                missing.append(person.name)
        return LookupCount(night_stage(day), tuple(missing), len(people))

    async def _move_session(self, session_id: str, day: int, at: time) -> None:
        """Move a session and its messages back to a time of the week. The order of the messages stays."""
        owner = self._scope.tenant_id, self._scope.user_id, session_id
        async with self._rem.database.connection() as connection, connection.transaction():
            for name in ("move_messages", "move_session"):
                await connection.execute(query("bench", name), *owner, self._time_of(day, at))
            await connection.execute(query("bench", "move_passages"), *owner)

    def _time_of(self, day: int, at: time) -> datetime:
        return datetime.combine(self._monday + timedelta(days=day - 1), at, UTC)

    def _add(self, stage: str, outcomes: list[WeekOutcome]) -> None:
        self._result.outcomes += outcomes
        self._on_stage(stage, outcomes)


def split_extracts(answer: str) -> tuple[str, ...]:
    """Return the numbered extracts of an answer without their labels; the whole answer if it has none.

    The title of a note is a part of what it says, so it is kept.
    """
    extracts = _NUMBERED.findall(answer)
    return tuple(_LABEL.sub(_keep_title, extract) for extract in extracts) or (answer,)


def _keep_title(label: re.Match[str]) -> str:
    return f"{label[1]} " if label[1] else ""
