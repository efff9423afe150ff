"""RetrievalBenchmark: stores a data set as a user would, asks its questions and keeps the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

from rem.app import Rem
from rem.context import Scope
from rem.db.repository import WriteReport
from rem.db.sql import query
from rem.embeddings import open_embedder
from rem.errors import InvalidInputError
from rem.evals.dataset import Case, Dataset, DatasetMessage, DatasetSession, DatasetText, Question
from rem.models import Entity, Message, Resource, Session
from rem.query.result import QueryResult
from rem.query.tree import Mode, Search
from rem.settings import Settings

OnProgress: TypeAlias = Callable[[int, int | None], None]
"""Called with how much is done, and of how much."""

_ROWS_AT_ONCE = 5_000
_WARM_UP = "What was said last?"
_DREAMS = ("moments", "affinity")
"""What of the dreams SEARCH goes by."""


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """What a question found, best first, and how long it took."""

    question: Question
    user: str
    found: tuple[str, ...]
    scores: tuple[float, ...]
    milliseconds: float
    embedding_milliseconds: float
    """The part of it that went into embedding the question."""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Timing:
    """How long the parts of a run took, in seconds."""

    store: float = 0.0
    index: float = 0.0
    dream: float = 0.0
    ask: float = 0.0


class RetrievalBenchmark:
    """One measurement on one data set, in a tenant of its own: `store`, then `index`, then `ask`."""

    def __init__(self, rem: Rem, dataset: Dataset, *, tenant: str, mode: Mode = "hybrid", concurrency: int = 1) -> None:
        self._rem = rem
        self._dataset = dataset
        self._tenant = tenant
        self._mode: Mode = mode
        self._concurrency = concurrency
        self._total = sum(case.size for case in dataset.cases)
        self.timing = Timing()

    async def store(self, on_progress: OnProgress) -> None:
        """Store every case in the memory of its own user."""
        # What cannot be searched is told now, and not when everything is stored.
        await self._warm_up()
        started = perf_counter()
        done = 0
        for case in self._dataset.cases:
            store = self._rem.store(case.user, tenant=self._tenant)
            rows: Sequence[Entity]
            for rows in _rows_of(case, self._dataset.id_field):
                for start in range(0, len(rows), _ROWS_AT_ONCE):
                    _require_new(await store.upsert_many(rows[start : start + _ROWS_AT_ONCE]))
            done += case.size
            on_progress(done, self._total)
        self.timing.store = perf_counter() - started

    async def index(self, on_progress: OnProgress) -> None:
        """Index what was stored, one user after the other."""
        started = perf_counter()
        finished = 0
        for case in self._dataset.cases:
            embedded = 0

            def on_indexed(what: str, more: int, size: int = case.size, before: int = finished) -> None:
                # There are at least as many passages as rows, and embedding them is what takes long.
                nonlocal embedded
                embedded += more if what == "embedded" else 0
                on_progress(before + min(embedded, size), self._total)

            await self._rem.index(user=case.user, tenant=self._tenant, on_progress=on_indexed)
            finished += case.size
            on_progress(finished, self._total)
        self.timing.index = perf_counter() - started

    async def dream(self, on_progress: OnProgress) -> None:
        """Sleep on what was stored, without a language model, one user after the other; then index that, too."""
        started = perf_counter()
        dreamer = self._rem.dreamer()
        for done, case in enumerate(self._dataset.cases, 1):
            await dreamer.dream(Scope.for_user(case.user, self._tenant), _DREAMS)
            await self._rem.index(user=case.user, tenant=self._tenant)
            on_progress(done, len(self._dataset.cases))
        self.timing.dream = perf_counter() - started

    async def ask(self, on_progress: OnProgress) -> list[QuestionOutcome]:
        """Ask every question of its own case, some at a time; the outcomes in the order of the questions."""
        waiting = [(case.user, question) for case in self._dataset.cases for question in case.questions]
        await self._warm_up()
        outcomes: dict[int, QuestionOutcome] = {}
        numbers = iter(range(len(waiting)))

        async def work() -> None:
            for number in numbers:
                outcomes[number] = await self._ask(*waiting[number])
                on_progress(len(outcomes), len(waiting))

        started = perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        self.timing.ask = perf_counter() - started
        return [outcomes[number] for number in range(len(waiting))]

    async def _warm_up(self) -> None:
        """Let a search that does not count pay for what the first one loads."""
        await self._search(self._dataset.cases[0].user, _WARM_UP)

    async def _ask(self, user: str, question: Question) -> QuestionOutcome:
        started = perf_counter()
        result = await self._search(user, question.text)
        milliseconds = (perf_counter() - started) * 1e3
        found: dict[str, float] = {}
        for row in result.results:
            # The same text may be remembered twice under one id.
            found.setdefault(str(row["record"]["metadata"][self._dataset.id_field]), row["score"])
        return QuestionOutcome(
            question,
            user,
            tuple(found),
            tuple(found.values()),
            milliseconds,
            sum(step.milliseconds for step in result.steps if step.name == "embed"),
            result.notes,
        )

    async def _search(self, user: str, text: str) -> QueryResult:
        return await self._rem.query(self._search_for(text), user=user, tenant=self._tenant)

    def _search_for(self, text: str) -> Search:
        """The product's own defaults."""
        return Search(text, table=self._dataset.table, mode=self._mode)

    async def configuration(self, settings: Settings) -> dict[str, Any]:
        """What the figures depend on."""
        embedder = open_embedder(settings)
        await embedder.close()
        search = self._search_for("")
        return {
            "embedder": embedder.model,
            "mode": search.mode,
            "limit": search.limit,
            "min_similarity": search.min_similarity,
            "table": search.table,
            "language": settings.search.language,
            "concurrency": self._concurrency,
            "dreamt": self.timing.dream > 0,
            "postgresql": self._rem.database.server_info.version,
        }

    async def erase(self) -> None:
        """Remove what was stored."""
        async with self._rem.database.connection() as connection:
            for table in ("sessions", "resources", "statements"):
                await connection.execute(query("bench", f"erase_{table}"), self._tenant)


def _rows_of(case: Case, id_field: str) -> tuple[list[Session], list[Message], list[Resource]]:
    """What is stored of a case, in an order in which it can be."""
    sessions = [_session(conversation) for conversation in case.conversations]
    messages = [
        _message(session, conversation, turn, id_field)
        for session, conversation in zip(sessions, case.conversations, strict=True)
        for turn in conversation.turns
    ]
    return sessions, messages, [_resource(text, id_field) for text in case.texts]


def _require_new(report: WriteReport) -> None:
    """Each row has a place of its own. Only the names of texts, which come from users, can fail to."""
    for row in report.rows:
        if row.outcome != "inserted":
            raise InvalidInputError(f"The ids of two texts come to the same key {row.key!r}: change one of them.")


def _session(conversation: DatasetSession) -> Session:
    # Without a name: those of some data sets tell which session holds the answer.
    return Session(
        message_count=len(conversation.turns),
        metadata={"session_id": conversation.id},
        **_created(conversation.at),
    )


def _message(session: Session, conversation: DatasetSession, turn: DatasetMessage, id_field: str) -> Message:
    metadata = {"session_id": conversation.id}
    if turn.id is not None:
        metadata[id_field] = turn.id
    if turn.speaker is not None:
        metadata["speaker"] = turn.speaker
    return Message(
        session_id=session.id,
        message_index=turn.index,
        role=turn.role,
        content=turn.content,
        metadata=metadata,
        **_created(turn.at),
    )


def _resource(text: DatasetText, id_field: str) -> Resource:
    return Resource(name=text.id, content=text.content, metadata={id_field: text.id}, **_created(text.at))


def _created(at: Any) -> dict[str, Any]:
    return {} if at is None else {"created_at": at}
