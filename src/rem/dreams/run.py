"""DreamRun: one execution of the dreams for one owner. A dream reads and writes the owner's memory through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

from loguru import logger

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query
from rem.dreams.claims import Changes, Claim, ClaimSource, RowRef
from rem.dreams.extraction_model import AgentSchemas, ExtractionModel, ModelBudget
from rem.dreams.ledger import Ledger
from rem.dreams.owner_queries import OwnerQueries
from rem.dreams.statement_matcher import LiveStatement
from rem.errors import EmbeddingDisabledError, ModelError, RemError
from rem.models import Entity

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection
    from rem.db.store import Store
    from rem.search.embedder import Embedder, Vector
    from rem.settings import DreamingSettings

T = TypeVar("T", bound=Entity)
S = TypeVar("S")
OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the dream, the number of subjects that are done, and the number of all subjects."""
MAX_MODEL_FAILURES = 3
"""In a row: the model is down, and the next subject would fail as well."""


class Dream(Protocol):
    """One kind of derivation, such as moments or profiles."""

    name: str

    async def derive(self, run: DreamRun) -> None:
        """Read the new and changed rows of the owner, and store claims about them."""
        ...


class ModelBudgetSpentError(Exception):
    """The run has no model call left."""


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A session with messages that a dream has to read."""

    id: UUID
    key: str
    seen_index: int
    """Index of the last message that the dream has read; -1 for none."""
    last_index: int
    rescan_ranges: Sequence[Sequence[int]] = ()
    """First and last index of each range to read again, because a statement about it is gone."""

    @property
    def ref(self) -> RowRef:
        """The row of the session."""
        return RowRef("sessions", self.id)

    @property
    def has_new_messages(self) -> bool:
        """Return whether the session has messages that the dream has never read."""
        return self.last_index > self.seen_index


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A stored message with a statement of a person."""

    id: UUID
    key: str
    index: int
    content: str
    """With spaces in place of everything but the statements."""
    metadata: dict[str, Any]
    created_at: datetime

    @property
    def source(self) -> ClaimSource:
        """The message as source of a claim."""
        return ClaimSource(RowRef("messages", self.id), self.key)


@dataclass(slots=True)
class DreamRun:
    """One execution of the dreams for one owner."""

    store: Store
    settings: DreamingSettings
    run_id: UUID
    embedder: Embedder
    schemas: AgentSchemas
    model: ExtractionModel | None = None
    budget: ModelBudget = field(default_factory=lambda: ModelBudget(0))
    on_progress: OnProgress = lambda _dream, _done, _of: None
    changes: dict[str, Changes] = field(default_factory=dict)
    """Changes by the name of the dream."""
    email: str | None = None
    """E-mail address of the owner, if the caller gave it: the user id is a hash of it."""
    notes: list[str] = field(default_factory=list)
    """Messages to the owner about this run."""
    skipped: Counter[str] = field(default_factory=Counter)
    """New messages without a statement, by kind."""
    versions: dict[tuple[str, RowRef], datetime] = field(default_factory=dict)
    """Version of each row that a dream has read, by dream and row."""

    @property
    def scope(self) -> Scope:
        """Owner of the memory."""
        return self.store.scope

    async def store_claims(
        self,
        dream: str,
        subject: RowRef,
        claims: Sequence[Claim],
        *,
        keep: Collection[UUID] = (),
        only: Collection[UUID] | None = None,
        seen_index: int | None = None,
        seen_range: tuple[int, int] | None = None,
        mark_seen: bool = True,
    ) -> Changes:
        """Replace the dream's statements about a subject by claims, and mark the subject as seen, in one transaction.

        The statements in `keep` stay. With `only`, just these statements are replaced. A session is marked as seen up
        to the message `seen_index`, and `seen_range` is the range of messages that was read for that; any other subject
        is marked as seen in the version that was read.
        """

        async def replace() -> Changes:
            async with self.store.transaction() as store, store.executor.connection() as connection:
                if mark_seen:
                    # Before the claims: an edge from the subject changes its version, and moves this mark along.
                    await self._mark_seen(connection, dream, subject, seen_index, seen_range)
                changes = await Ledger(store, connection, self.run_id).replace_statements(
                    dream, subject, claims, keep=keep, only=only
                )
                if mark_seen and changes.vanished:
                    # A source was deleted after it was read: the next run has to read the rest again.
                    name = "forget_progress_of_subject" if seen_range is None else "rescan_range"
                    parameters = dream, subject.id, *(seen_range or ())
                    await self._queries(connection).fetch(name, *parameters)
            return changes

        changes = await retry_when_busy(replace)
        self.changes.setdefault(dream, Changes()).add(changes)
        return changes

    async def mark_seen(self, dream: str, subject: RowRef, *, seen_index: int | None = None) -> None:
        """Mark a subject as seen by a dream that has no claims about it."""
        async with self.store.executor.connection() as connection:
            await self._mark_seen(connection, dream, subject, seen_index)

    async def _mark_seen(
        self,
        connection: Connection,
        dream: str,
        subject: RowRef,
        seen_index: int | None,
        seen_range: tuple[int, int] | None = None,
    ) -> None:
        owner = self.scope.tenant_id, self.scope.user_id, dream, subject.type, subject.id
        if seen_index is None:
            statement = fill(query("dreams/dreams", "mark_version_seen"), table=identifier(subject.type))
            await connection.execute(statement, *owner, self.versions.get((dream, subject)))
        elif subject.type == "sessions":
            seen = seen_range or (0, max(seen_index, 0))
            await connection.execute(query("dreams/dreams", "mark_session_seen"), *owner, seen_index, *seen)
        else:
            await connection.execute(query("dreams/dreams", "mark_seen"), *owner, None, seen_index)

    def remember_version(self, dream: str, subject: RowRef, version: datetime | None) -> None:
        """Remember which version of a row a dream has read. The next run reads a row that is edited meanwhile."""
        if version is not None:
            self.versions[dream, subject] = version

    async def fetch_pending_sessions(self, dream: str) -> list[PendingSession]:
        """Return the owner's sessions with messages that a dream has to read, oldest first."""
        if self.scope.user_id is None:
            return []
        rows = await self.fetch_owned("dreams/dreams", "pending_sessions", dream, self.settings.max_sources)
        return [PendingSession(*row) for row in rows]

    async def fetch_new_rows(self, dream: str, model: type[T]) -> list[T]:
        """Return the owner's rows of a type that a dream has not seen in their current version, oldest first."""
        table = model.entity_type.table
        records = await self.fetch_owned("dreams/dreams", "new_rows", dream, self.settings.max_sources, table=table)
        rows = [model.from_row(record) for (record,) in records]
        for row in rows:
            self.remember_version(dream, RowRef(table, row.id), row.revision)
        return rows

    async def fetch_statements(self, dream: str, subject_id: UUID) -> list[LiveStatement]:
        """Return the dream's live statements about a subject, in the order of `valid_from`."""
        async with self.store.executor.connection() as connection:
            return await Ledger(self.store, connection, self.run_id).fetch_statements(dream, subject_id)

    async def fetch(self, file: str, name: str, *parameters: Any, table: str | None = None) -> list[Any]:
        """Run the query `name` of `{file}.sql` with the tenant ($1) and `parameters`, and return its rows."""
        async with self.store.executor.connection() as connection:
            return await self._queries(connection, file).fetch(name, *parameters, table=table)

    async def fetch_owned(self, file: str, name: str, *parameters: Any, table: str | None = None) -> list[Any]:
        """Run the query `name` of `{file}.sql` with the tenant ($1), the user ($2) and `parameters`."""
        async with self.store.executor.connection() as connection:
            return await self._queries(connection, file).fetch_owned(name, *parameters, table=table)

    def _queries(self, connection: Connection, file: str = "dreams/dreams") -> OwnerQueries:
        return OwnerQueries(connection, self.scope.tenant_id, self.scope.user_id, file)

    async def embed(self, texts: Sequence[str]) -> list[Vector] | None:
        """Return the vectors of texts, or None if embeddings are off."""
        if not texts:
            return []
        try:
            return list(await self.embedder.embed(list(texts)))
        except EmbeddingDisabledError:
            return None

    async def ask_model(self, agent: str, text: str) -> dict[str, Any]:
        """Return the output of an agent for a text. Raise ModelBudgetSpentError if the run has no model call left."""
        if self.model is None or not self.budget.spend_call():
            raise ModelBudgetSpentError
        return await self.model.extract(agent, text, self.scope)

    async def process_each(self, dream: str, subjects: Iterable[S], process: Callable[[S], Awaitable[object]]) -> None:
        """Process subjects one by one.

        A subject on which the model fails is left to the next run; three failures in a row raise the error. When the
        model budget is spent, all remaining subjects are left to the next run.
        """
        pending = list(subjects)
        failures = 0
        for done, subject in enumerate(pending):
            self.on_progress(dream, done, len(pending))
            try:
                await process(subject)
                failures = 0
            except ModelBudgetSpentError:
                self.notes.append(
                    f"{dream}: {len(pending) - done} of {len(pending)} wait for the next run, because this one has no "
                    "model call left (DREAMING__MAX_MODEL_CALLS)."
                )
                return
            except ModelError as error:
                failures += 1
                self._note_failure(dream, error)
                if failures >= MAX_MODEL_FAILURES:
                    raise
        self.on_progress(dream, len(pending), len(pending))

    def _note_failure(self, dream: str, error: RemError) -> None:
        logger.warning("The dream {} leaves a subject to the next run: {}", dream, error)
        note = f"{dream}: the model failed; the next run tries again: {error}"
        if note not in self.notes:
            self.notes.append(note)
