"""RetrievalBenchmark stores the cases of a data set, asks their questions, and records the results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from bench.quality.dataset import Case, Dataset, DatasetMessage, DatasetSession, DatasetText, Question
from rem.app import Rem
from rem.context import Scope
from rem.db.repository import WriteReport
from rem.db.sql import parse_blocks
from rem.errors import InvalidInputError
from rem.models import Entity, Message, Resource, Session
from rem.models.results import Result
from rem.query.tree import Mode, Search
from rem.settings import Settings

OnProgress: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of finished items, and the total."""

SQL = parse_blocks((Path(__file__).parent / "retrieval.sql").read_text(encoding="utf-8"))
MAX_BATCH_ROWS = 5_000
WARM_UP_QUESTION = "What was said last?"
DREAMS = ("moments", "affinity")
"""The dreams whose rows and edges SEARCH uses."""


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """The result ids of a question, best first, and its duration."""

    question: Question
    user: str
    found: tuple[str, ...]
    scores: tuple[float, ...]
    milliseconds: float
    embedding_milliseconds: float
    """The part of `milliseconds` that embedding the question took."""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Timing:
    """The durations of the steps, in seconds."""

    store: float = 0.0
    index: float = 0.0
    dream: float = 0.0
    ask: float = 0.0


class RetrievalBenchmark:
    """One measurement on one data set, in its own tenant. Call `store`, `index`, optionally `dream`, then `ask`."""

    def __init__(
        self,
        rem: Rem,
        dataset: Dataset,
        *,
        tenant: str,
        mode: Mode = "hybrid",
        concurrency: int = 1,
        **search_options: Any,
    ) -> None:
        """`search_options` are further fields of `Search`, such as `limit`."""
        self._rem = rem
        self._dataset = dataset
        self._tenant = tenant
        self._mode: Mode = mode
        self._concurrency = concurrency
        self._search_options = search_options
        self._total = sum(case.size for case in dataset.cases)
        self.timing = Timing()

    async def store(self, on_progress: OnProgress) -> None:
        """Store every case in the memory of its own user."""
        # A search that cannot work fails now, and not after everything is stored.
        await self._warm_up()
        started = perf_counter()
        done = 0
        for case in self._dataset.cases:
            store = self._rem.for_user(case.user, tenant=self._tenant).store
            rows: Sequence[Entity]
            for rows in _build_rows(case, self._dataset.id_field):
                for start in range(0, len(rows), MAX_BATCH_ROWS):
                    _require_new(await store.upsert_many(rows[start : start + MAX_BATCH_ROWS]))
            done += case.size
            on_progress(done, self._total)
        self.timing.store = perf_counter() - started

    async def index(self, on_progress: OnProgress) -> None:
        """Index the stored rows, one user after the other."""
        started = perf_counter()
        finished = 0
        for case in self._dataset.cases:
            embedded = 0

            def on_indexed(stage: str, count: int, size: int = case.size, before: int = finished) -> None:
                # Progress counts embedded passages: embedding takes longest, and a row has at least one passage.
                nonlocal embedded
                embedded += count if stage == "embedded" else 0
                on_progress(before + min(embedded, size), self._total)

            await self._rem.for_user(case.user, tenant=self._tenant).index(on_progress=on_indexed)
            finished += case.size
            on_progress(finished, self._total)
        self.timing.index = perf_counter() - started

    async def dream(self, on_progress: OnProgress) -> None:
        """Run dreams on the stored rows without a language model, and index their results, one user after the other."""
        started = perf_counter()
        dreamer = self._rem.dreamer()
        for done, case in enumerate(self._dataset.cases, 1):
            await dreamer.dream(Scope.for_user(case.user, self._tenant), DREAMS)
            await self._rem.for_user(case.user, tenant=self._tenant).index()
            on_progress(done, len(self._dataset.cases))
        self.timing.dream = perf_counter() - started

    async def ask(self, on_progress: OnProgress) -> list[QuestionOutcome]:
        """Ask all questions, `concurrency` at a time. Return the outcomes in the order of the questions."""
        questions = [(case.user, question) for case in self._dataset.cases for question in case.questions]
        await self._warm_up()
        outcomes: dict[int, QuestionOutcome] = {}
        numbers = iter(range(len(questions)))

        async def work() -> None:
            for number in numbers:
                outcomes[number] = await self._ask(*questions[number])
                on_progress(len(outcomes), len(questions))

        started = perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(work())
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from group_error
        self.timing.ask = perf_counter() - started
        return [outcomes[number] for number in range(len(questions))]

    async def find(self, user: str, question: Question) -> tuple[str, ...]:
        """Return the result ids of a question, best first."""
        return (await self._ask(user, question)).found

    async def _warm_up(self) -> None:
        """Search once without measuring, because the first search loads the embedding model."""
        await self._search(self._dataset.cases[0].user, WARM_UP_QUESTION)

    async def _ask(self, user: str, question: Question) -> QuestionOutcome:
        started = perf_counter()
        result = await self._search(user, question.text)
        milliseconds = (perf_counter() - started) * 1e3
        score_by_id: dict[str, float] = {}
        for hit in result.hits:
            # Two rows may have the same id.
            score_by_id.setdefault(str(hit.record["metadata"][self._dataset.id_field]), hit.score or 0.0)
        return QuestionOutcome(
            question,
            user,
            tuple(score_by_id),
            tuple(score_by_id.values()),
            milliseconds,
            sum(step.milliseconds for step in result.steps if step.name == "embed"),
            tuple(note.text for note in result.notes),
        )

    async def _search(self, user: str, text: str) -> Result:
        return await self._rem.for_user(user, tenant=self._tenant).query(self._build_query(text))

    def _build_query(self, text: str) -> Search:
        """Return the query, with the default search options if no others were given."""
        return Search(text, table=self._dataset.table, mode=self._mode, **self._search_options)

    async def configuration(self, settings: Settings) -> dict[str, Any]:
        """Return the settings that influence the results."""
        search = self._build_query("")
        return {
            "embedder": self._rem.embedder.model,
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
        """Erase the stored data."""
        async with self._rem.database.connection() as connection:
            for table in ("sessions", "resources", "dream_runs"):
                await connection.execute(SQL[f"erase_{table}"], self._tenant)


def _build_rows(case: Case, id_field: str) -> tuple[list[Session], list[Message], list[Resource]]:
    """Return the rows of a case; sessions come before their messages."""
    sessions = [_build_session(session) for session in case.sessions]
    messages = [
        _build_message(row, session, message, id_field)
        for row, session in zip(sessions, case.sessions, strict=True)
        for message in session.messages
    ]
    return sessions, messages, [_build_resource(text, id_field) for text in case.texts]


def _require_new(report: WriteReport) -> None:
    """Raise InvalidInputError if a row replaced another. Only texts can, because users choose their ids."""
    for row in report.rows:
        if row.outcome != "inserted":
            raise InvalidInputError(f"The ids of two texts give the same key {row.key!r}: change one of them.")


def _build_session(session: DatasetSession) -> Session:
    # Without a name: in some data sets it tells which session has the answer.
    return Session(
        message_count=len(session.messages),
        metadata={"session_id": session.id},
        **_created_at(session.at),
    )


def _build_message(row: Session, session: DatasetSession, message: DatasetMessage, id_field: str) -> Message:
    metadata = {"session_id": session.id}
    if message.id is not None:
        metadata[id_field] = message.id
    if message.speaker is not None:
        metadata["speaker"] = message.speaker
    return Message(
        session_id=row.id,
        message_index=message.index,
        role=message.role,
        content=message.content,
        metadata=metadata,
        **_created_at(message.at),
    )


def _build_resource(text: DatasetText, id_field: str) -> Resource:
    return Resource(
        name=text.title or text.id, content=text.content, metadata={id_field: text.id}, **_created_at(text.at)
    )


def _created_at(at: datetime | None) -> dict[str, Any]:
    return {} if at is None else {"created_at": at}
