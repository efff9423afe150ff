"""MonthRun: store the month of each person, ask the questions as a user does, and score the visible answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time
from time import perf_counter
from typing import Literal, TypeAlias
from uuid import uuid4

from bench.quality.month.data import Month, MonthPerson, MonthQuestion, MonthTalk
from bench.quality.month.texts import visible_words
from bench.quality.retrieval_benchmark import OnProgress
from bench.quality.week.run import ingest_notes, move_session
from rem.agents.chat import AgentRequest
from rem.agents.model_registry import LOCAL_MODEL
from rem.agents.service import Agents
from rem.app import Rem
from rem.context import AgentContext, Scope
from rem.events import MetadataEvent, TextEvent
from rem.sessions.message import NewMessage

Status: TypeAlias = Literal["answered", "nearest", "nothing"]
FIRST_WORDS = 40
NOTES_TIME = time(7, 0)
BEFORE = "before"
"""The stage before any night."""


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """An answer as its reader sees it."""

    status: Status
    text: str
    hits: int
    """The number of rows that were found for it."""


async def ask_plainly(agents: Agents, scope: Scope, email: str, text: str, session_id: str) -> PlainAnswer:
    """Ask without a language model, as `rem ask` does. Only this function knows how REM answers."""
    context = AgentContext(user_id=scope.user_id, user_email=email, tenant_id=scope.tenant_id, session_id=session_id)
    answer = await agents.start(AgentRequest(context=context, text=text, model=LOCAL_MODEL))
    # A message that is taken for a statement is not answered at all.
    written = ""
    status: Status = "nothing"
    rows = 0
    async for event in answer.events():
        match event:
            case TextEvent():
                written += event.content
            case MetadataEvent(extra=dict() as extra) if "status" in extra:
                status, rows = extra["status"], extra["rows"]
    return PlainAnswer(status, written, rows)


@dataclass(frozen=True, slots=True)
class MonthOutcome:
    """The answer to a question at one stage, and its score."""

    stage: str
    question: MonthQuestion
    answer: PlainAnswer
    milliseconds: float

    @property
    def words(self) -> int:
        """The number of words that the reader sees."""
        return len(visible_words(self.answer.text))

    @property
    def claim(self) -> str:
        """The text in which the answer must stand: for a count or sum its first line. Below, any number could be it."""
        text = self.answer.text.strip()
        is_computed = self.question.compute is not None and self.question.compute.do in ("count", "sum")
        return text.partition("\n")[0] if is_computed else text

    @property
    def right40(self) -> bool:
        """Whether the first words hold the whole expected answer and nothing forbidden. See README.md."""
        if not self.right_all:
            return False
        first = " ".join(visible_words(self.claim)[:FIRST_WORDS])
        return self.question.is_answered_by(first) and not self.question.is_wrong_in(first)

    @property
    def right_all(self) -> bool:
        """Whether the whole answer holds everything that is expected."""
        is_answer = self.question.is_answerable and self.answer.status != "nothing"
        return is_answer and self.question.is_answered_by(self.claim)


class MonthRun:
    """One run of a month: every person is a user in one tenant."""

    def __init__(self, rem: Rem, month: Month, *, tenant: str) -> None:
        self._rem = rem
        self._month = month
        self._tenant = tenant
        self._outcomes: list[MonthOutcome] = []
        self._sessions: dict[tuple[str, str], str] = {}
        """The session of a talk, by user and id."""

    async def run(self, nights: tuple[int, ...], on_progress: Callable[[str], OnProgress]) -> list[MonthOutcome]:
        """Store and ask everything; then ask again after each of the given nights, counted from 1."""
        await self._live(on_progress("Storing"))
        await self._ask_all(BEFORE, on_progress(BEFORE))
        for night in range(1, max(nights, default=0) + 1):
            await self._dream(on_progress(f"Night {night}"))
            if night in nights:
                await self._ask_all(f"night {night}", on_progress(f"After night {night}"))
        return self._outcomes

    async def _live(self, on_progress: OnProgress) -> None:
        """Store the notes and the talks. What was just said is asked at the end of its talk."""
        for done, person in enumerate(self._month.people):
            on_progress(done, len(self._month.people))
            scope = self._scope_of(person)
            notes = [(note.name, note.text, datetime.combine(note.written, NOTES_TIME, UTC)) for note in person.notes]
            await ingest_notes(self._rem, scope, notes)
            for talk in person.talks:
                session_id = await self._talk(scope, talk)
                self._sessions[person.user, talk.id] = session_id
                for question in _list_just_said(person, talk):
                    self._outcomes.append(await self._ask(BEFORE, person, question))
                await move_session(self._rem, scope, session_id, talk.at)
        on_progress(len(self._month.people), len(self._month.people))

    async def _talk(self, scope: Scope, talk: MonthTalk) -> str:
        """Store a talk, and return the id of its session."""
        memory = self._rem.for_user(scope).sessions
        session = await memory.create_session()
        await memory.append(session.id, [NewMessage(role=item.role, content=item.text) for item in talk.messages])
        await self._rem.for_user(scope).index()
        return str(session.id)

    async def _dream(self, on_progress: OnProgress) -> None:
        dreamer = self._rem.dreamer()
        for done, person in enumerate(self._month.people, 1):
            await dreamer.dream(self._scope_of(person), email=person.user)
            on_progress(done, len(self._month.people))

    async def _ask_all(self, stage: str, on_progress: OnProgress) -> None:
        """Ask every question that was not asked at this stage before."""
        asked = {outcome.question.id for outcome in self._outcomes if outcome.stage == stage}
        for person in self._month.people:
            for question in person.questions:
                if question.id not in asked:
                    self._outcomes.append(await self._ask(stage, person, question))
                    asked.add(question.id)
                    on_progress(len(asked), len(self._month.questions))

    async def _ask(self, stage: str, person: MonthPerson, question: MonthQuestion) -> MonthOutcome:
        """Ask in a new session; a question about what was just said, in the session of its talk."""
        session_id = str(uuid4())
        if question.group == "just_said":
            session_id = self._sessions[person.user, question.source[0]]
        scope = self._scope_of(person)
        for text in question.after:
            await ask_plainly(self._rem.agents, scope, person.user, text, session_id)
        started = perf_counter()
        answer = await ask_plainly(self._rem.agents, scope, person.user, question.ask, session_id)
        return MonthOutcome(stage, question, answer, (perf_counter() - started) * 1e3)

    def _scope_of(self, person: MonthPerson) -> Scope:
        return Scope.for_user(person.user, self._tenant)


def _list_just_said(person: MonthPerson, talk: MonthTalk) -> list[MonthQuestion]:
    return [item for item in person.questions if item.group == "just_said" and item.source == [talk.id]]
