"""Night: what a dream has at hand. One owner's memory, one run, and perhaps a mind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import UUID

from loguru import logger

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query
from rem.dreaming.claims import Changes, Claim, ClaimSource, RowRef
from rem.dreaming.extraction_model import AgentSchemas, ExtractionModel, ModelBudget
from rem.dreaming.ledger import Ledger
from rem.dreaming.owner_queries import rewrite_owner_filter
from rem.errors import EmbeddingDisabledError, ModelError, RemError
from rem.models import Entity

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.store import Store
    from rem.embeddings import Embedder, Vector
    from rem.settings import DreamingSettings

T = TypeVar("T", bound=Entity)
S = TypeVar("S")
OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with the dream's name, how many subjects are done, and of how many."""
MAX_MODEL_FAILURES = 3


class ModelBudgetSpentError(Exception):
    """The mind may not be asked again tonight."""


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A conversation with something new in it."""

    id: UUID
    key: str
    seen_index: int
    """The last message that the dream has seen; -1 for none."""
    last_index: int
    again: Sequence[Sequence[int]] = ()
    """From where to where it is to look again at what it has seen, because something that it said of it is gone."""

    @property
    def ref(self) -> RowRef:
        """The session's row."""
        return RowRef("sessions", self.id)

    @property
    def has_grown(self) -> bool:
        """Whether something was said that the dream has not seen."""
        return self.last_index > self.seen_index


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """A message of a person or an assistant."""

    id: UUID
    key: str
    index: int
    role: str
    content: str
    metadata: dict[str, Any]
    at: datetime

    @property
    def is_persons(self) -> bool:
        """Whether a person said it: the user, or a speaker with a name."""
        return self.role == "user" or isinstance(self.metadata.get("speaker"), str)

    @property
    def source(self) -> ClaimSource:
        """The message as where a claim comes from."""
        return ClaimSource(RowRef("messages", self.id), self.key)


@dataclass(frozen=True, slots=True)
class SubjectStatement:
    """A statement of a subject that stands."""

    id: UUID
    kind: str
    entity: RowRef
    name: str
    value: dict[str, Any]
    source_ids: frozenset[UUID]


@dataclass(slots=True)
class DreamRun:
    """One owner's dreams of one run."""

    store: Store
    settings: DreamingSettings
    run_id: UUID
    embedder: Embedder
    mind: ExtractionModel | None = None
    budget: ModelBudget = field(default_factory=lambda: ModelBudget(0))
    schemas: AgentSchemas | None = None
    """Who knows what agents return; without, what is stored of them has to do."""
    on_progress: OnProgress = lambda _dream, _done, _of: None
    changes: dict[str, Changes] = field(default_factory=dict)
    address: str | None = None
    """The owner's e-mail address, where it is known: the id is made from it and does not tell."""
    notes: list[str] = field(default_factory=list)
    """What the owner should know of how it went."""
    versions: dict[tuple[str, RowRef], datetime] = field(default_factory=dict)
    """Of the rows that each dream has read."""

    @property
    def scope(self) -> Scope:
        """Whose memory it is."""
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
        stretch: tuple[int, int] | None = None,
        marks: bool = True,
    ) -> Changes:
        """Let what a dream says of a subject be these claims, and mark it as seen, as a whole or not at all.

        Statements to keep stay as they are; with `only`, all but these do. Without `marks` it is not marked. A subject
        that is a session is seen up to a message, and `stretch` says from where to where it was looked at for that;
        another one is seen in the version that was read.
        """

        async def work() -> Changes:
            async with self.store.transaction() as store, store.executor.connection() as connection:
                if marks:
                    # First: an edge that is drawn from the subject lets the mark move along with its version.
                    await self._mark(connection, dream, subject, seen_index, stretch)
                changes = await Ledger(store, connection, self.run_id).replace_statements(
                    dream, subject, claims, keep=keep, only=only
                )
                if marks and changes.vanished:
                    # Something was deleted after it was read: what is left is to be looked at again.
                    name = "forget_subject" if stretch is None else "look_at_stretch_again"
                    place = self.scope.tenant_id, dream, subject.id
                    await connection.execute(query("dreaming", name), *place, *(stretch or ()))
            return changes

        changes = await retry_when_busy(work)
        self.changes.setdefault(dream, Changes()).add(changes)
        return changes

    async def mark_seen(self, dream: str, subject: RowRef, *, seen_index: int | None = None) -> None:
        """Remember that a dream has looked at a subject, which said nothing to it."""
        async with self.store.executor.connection() as connection:
            await self._mark(connection, dream, subject, seen_index)

    async def _mark(
        self,
        connection: Any,
        dream: str,
        subject: RowRef,
        seen_index: int | None,
        stretch: tuple[int, int] | None = None,
    ) -> None:
        owner = self.scope.tenant_id, self.scope.user_id, dream, subject.type
        if seen_index is not None:
            if subject.type == "sessions":
                seen = subject.id, seen_index, *(stretch or (0, max(seen_index, 0)))
                await connection.execute(query("dreaming", "mark_session_seen"), *owner, *seen)
            else:
                await connection.execute(query("dreaming", "mark_seen"), *owner, subject.id, None, seen_index)
            return
        version = self.versions.get((dream, subject))
        name = "mark_seen_as_stored" if version is None else "mark_seen_in_version"
        statement = fill(query("dreaming", name), table=identifier(subject.type))
        await connection.execute(statement, *owner, subject.id, *(() if version is None else (version,)))

    def remember_version(self, dream: str, subject: RowRef, version: datetime | None) -> None:
        """Remember which version of a row a dream has read. One that is edited meanwhile is news to the next dream."""
        if version is not None:
            self.versions[dream, subject] = version

    async def fetch_pending_sessions(self, dream: str) -> list[PendingSession]:
        """The owner's conversations with messages that a dream has not seen, the oldest first."""
        if self.scope.user_id is None:
            return []
        rows = await self._rows("new_sessions", dream, self.settings.max_sources)
        return [PendingSession(*row) for row in rows]

    async def fetch_new_rows(self, dream: str, model: type[T]) -> list[T]:
        """The owner's own rows of a type that a dream has not seen in this version, the oldest first."""
        new_rows = rewrite_owner_filter(query("dreaming", "new_rows"), self.scope.user_id)
        statement = fill(new_rows, table=identifier(model.entity_type.table))
        async with self.store.executor.connection() as connection:
            found = await connection.fetch(
                statement, self.scope.tenant_id, self.scope.user_id, dream, self.settings.max_sources
            )
        rows = [model.from_row(record) for (record,) in found]
        for row in rows:
            self.remember_version(dream, RowRef(model.entity_type.table, row.id), row.revision)
        return rows

    async def fetch_statements(self, dream: str, subject_id: UUID) -> list[SubjectStatement]:
        """What a dream says of a subject by now, in the order of time."""
        rows = await self._rows("statements_of_subject", dream, subject_id)
        return [
            SubjectStatement(
                row["id"],
                row["kind"],
                RowRef(row["entity_type"], row["entity_id"]),
                row["name"],
                row["value"],
                frozenset(row["source_ids"]),
            )
            for row in rows
        ]

    async def _rows(self, name: str, *parameters: Any) -> list[Any]:
        async with self.store.executor.connection() as connection:
            statement = rewrite_owner_filter(query("dreaming", name), self.scope.user_id)
            return list(await connection.fetch(statement, self.scope.tenant_id, self.scope.user_id, *parameters))

    async def embed(self, texts: Sequence[str]) -> list[Vector] | None:
        """The vectors of texts; None where nothing embeds, so that words have to do."""
        if not texts:
            return []
        try:
            return list(await self.embedder.embed(list(texts)))
        except EmbeddingDisabledError:
            return None

    async def ask_model(self, agent: str, text: str) -> dict[str, Any]:
        """What a built-in agent makes of a text. Ask only if there is a mind."""
        if self.mind is None or not self.budget.spend_call():
            raise ModelBudgetSpentError
        return await self.mind.think(agent, text, self.scope)

    async def process_each(self, dream: str, subjects: Iterable[S], work: Callable[[S], Awaitable[object]]) -> None:
        """Dream on subjects one by one. One that a model fails on is left for another night, and so is the rest when
        the model may not be asked again; three failures in a row end the dream."""
        waiting = list(subjects)
        failures = 0
        for done, subject in enumerate(waiting):
            self.on_progress(dream, done, len(waiting))
            try:
                await work(subject)
                failures = 0
            except ModelBudgetSpentError:
                self.notes.append(
                    f"{dream}: {len(waiting) - done} of {len(waiting)} wait for the next dream, because this one may "
                    "ask the model no more (DREAMING__MAX_MODEL_CALLS)."
                )
                return
            except ModelError as error:
                failures += 1
                self._note_failure(dream, error)
                if failures >= MAX_MODEL_FAILURES:
                    raise
        self.on_progress(dream, len(waiting), len(waiting))

    def _note_failure(self, dream: str, error: RemError) -> None:
        logger.warning("A subject of {} is left for another night: {}", dream, error)
        note = f"{dream}: the model failed, and what it failed on waits for the next dream: {error}"
        if note not in self.notes:
            self.notes.append(note)
