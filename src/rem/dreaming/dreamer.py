"""Dreamer: lets the dreams of one owner happen, one run at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import orjson

from rem.context import resolve_user_id
from rem.db.sql import query
from rem.dreaming.claims import Changes
from rem.dreaming.extraction_model import AgentSchemas, ExtractionModel, ModelBudget
from rem.dreaming.owner_lock import OwnerBusyError, hold_owner_lock
from rem.dreaming.run import DreamRun, OnProgress
from rem.errors import InvalidInputError

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Database
    from rem.db.store import Store
    from rem.dreaming.audit import AuditReport
    from rem.embeddings import Embedder
    from rem.retrieval.indexer import Indexer
    from rem.settings import DreamingSettings


class Dream(Protocol):
    """One way to look at memories."""

    name: str

    async def dream(self, night: DreamRun) -> None:
        """Say what is new."""
        ...


@dataclass(frozen=True, slots=True)
class DreamReport:
    """What a dream did for an owner."""

    run_id: UUID | None
    """None if there was nothing to say."""
    changes: dict[str, Changes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    model: str | None = None
    was_busy: bool = False
    """Whether another one was dreaming for the same owner, so that this one left it at that."""

    @property
    def statement_count(self) -> int:
        """How many statements are new."""
        return sum(changes.said for changes in self.changes.values())


class Dreamer:
    """Dreams for one owner at a time. Any number may run: those for the same owner wait for each other."""

    def __init__(
        self,
        database: Database,
        store_for: Callable[[Scope], Store],
        indexer: Indexer,
        embedder: Embedder,
        settings: DreamingSettings,
        mind: ExtractionModel | None = None,
        schemas: AgentSchemas | None = None,
    ) -> None:
        self._database = database
        self._store_for = store_for
        self._indexer = indexer
        self._embedder = embedder
        self._settings = settings
        self._mind = mind if settings.use_model else None
        self._schemas = schemas or mind

    async def dream(
        self,
        scope: Scope,
        names: Sequence[str] | None = None,
        *,
        again: bool = False,
        waits: bool = True,
        address: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> DreamReport:
        """Dream for an owner: all dreams, or those that are named, in their order.

        `again` looks at everything, and not only at what is new; what was taken back stays taken back. Without `waits`
        it is left to whoever dreams for the owner already. An e-mail address of the owner gets into the profile.
        """
        dreams = _select_dreams(names)
        try:
            async with hold_owner_lock(self._database, scope, timeout_seconds=None if waits else 0) as connection:
                if again:
                    await connection.execute(
                        query("dreaming", "forget_progress"), *_owner(scope), [dream.name for dream in dreams]
                    )
                return await self._dream_locked(connection, scope, dreams, address, on_progress)
        except OwnerBusyError:
            return DreamReport(None, was_busy=True)

    async def _dream_locked(
        self,
        connection: Connection,
        scope: Scope,
        dreams: Sequence[Dream],
        address: str | None,
        on_progress: OnProgress | None,
    ) -> DreamReport:
        run_id = await self._begin_run(connection, scope, dreams)
        night = self._new_run(scope, run_id, on_progress)
        if address is not None and "@" in address and resolve_user_id(address) == scope.user_id:
            night.address = address.strip().lower()
        try:
            for dream in dreams:
                # Each builds on what the one before it has written.
                await self._indexer.run(scope)
                await dream.dream(night)
        except BaseException as error:
            await self._end_run(connection, scope, night, "failed", str(error) or type(error).__name__)
            raise
        kept = await self._end_run(connection, scope, night, "done", None)
        model = self._mind.model if self._mind else None
        return DreamReport(run_id if kept else None, night.changes, night.notes, model)

    def _new_run(self, scope: Scope, run_id: UUID, on_progress: OnProgress | None) -> DreamRun:
        night = DreamRun(
            self._store_for(scope),
            self._settings,
            run_id,
            self._embedder,
            self._mind,
            ModelBudget(self._settings.max_model_calls if self._mind else 0),
            self._schemas,
        )
        if on_progress is not None:
            night.on_progress = on_progress
        return night

    async def _begin_run(self, connection: Connection, scope: Scope, dreams: Sequence[Dream]) -> UUID:
        names = [dream.name for dream in dreams]
        model = self._mind.model if self._mind else None
        run_id: UUID = await connection.fetchval(query("dreaming", "begin_run"), *_owner(scope), names, model)
        await connection.execute(query("dreaming", "fail_abandoned_runs"), *_owner(scope), run_id)
        return run_id

    async def _end_run(
        self, connection: Connection, scope: Scope, night: DreamRun, state: str, error: str | None
    ) -> bool:
        """Record how a run ended; whether there is something to record."""
        counts: dict[str, Any] = {name: asdict(changes) for name, changes in night.changes.items()}
        # This connection is none of the pool's, which take objects for JSON.
        told = orjson.dumps(counts).decode()
        await connection.execute(query("dreaming", "end_run"), scope.tenant_id, night.run_id, state, told, error)
        if state == "failed":
            return True
        done = await connection.execute(query("dreaming", "forget_empty_run"), scope.tenant_id, night.run_id)
        return bool(done.endswith(" 0"))

    async def undo(self, scope: Scope, run_id: UUID) -> int:
        """Take back what a run said, and let stand again what it ended; how many statements it were.

        Its sources count as seen: what was undone is not dreamt again until something about it is new.
        """
        from rem.dreaming.history import undo_run

        async with hold_owner_lock(self._database, scope):
            return await undo_run(self._store_for(scope), run_id)

    async def audit(self, scope: Scope, *, mend: bool = False) -> AuditReport:
        """Look through what was dreamt for an owner: duplicates, statements without source, edges to nothing."""
        from rem.dreaming.audit import run_audit

        async with hold_owner_lock(self._database, scope):
            return await run_audit(self._store_for(scope), self._embedder.embed, mend=mend)

    async def list_owners(self, tenant: str | None = None) -> list[tuple[str, str | None]]:
        """Everyone who has memories, as tenant and user; without a user, what the tenant shares."""
        async with self._database.connection() as connection:
            return [(row[0], row[1]) for row in await connection.fetch(query("dreaming", "owners"), tenant)]


def _owner(scope: Scope) -> tuple[str, str | None]:
    return scope.tenant_id, scope.user_id


def _select_dreams(names: Sequence[str] | None) -> list[Dream]:
    from rem.dreaming.registry import DREAMS

    unknown = set(names or ()) - set(DREAMS)
    if unknown:
        raise InvalidInputError(f"There is no dream {', '.join(sorted(unknown))}; there are {', '.join(DREAMS)}.")
    return [dream for name, dream in DREAMS.items() if names is None or name in names]
