"""Dreamer: runs the dreams for one owner, undoes a run, and audits the statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson

from rem.context import resolve_user_id
from rem.db.sql import query
from rem.dreams.audit import AuditReport, run_audit
from rem.dreams.claims import Changes
from rem.dreams.extraction_model import ExtractionModel, ModelBudget, ModelSource
from rem.dreams.history import SKIPPED_COUNT, undo_run
from rem.dreams.owner_lock import OwnerBusyError, hold_owner_lock
from rem.dreams.registry import load_dreams
from rem.dreams.report import describe_run
from rem.dreams.run import Dream, DreamRun, OnProgress
from rem.dreams.text.statements import STATEMENT_RULES_VERSION

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Database
    from rem.db.store import Store
    from rem.search.embedder import Embedder
    from rem.search.indexer import Indexer
    from rem.settings import DreamingSettings


DREAMS_OF_MESSAGES = ("entities", "moments", "profiles")


@dataclass(frozen=True, slots=True)
class DreamReport:
    """Result of one dream run."""

    run_id: UUID | None
    """None if the run changed nothing."""
    changes: dict[str, Changes] = field(default_factory=dict)
    """Changes by the name of the dream."""
    notes: list[str] = field(default_factory=list)
    learnt: list[str] = field(default_factory=list)
    """New knowledge of the run, in words: the most important first, and how many more there are."""
    dropped: list[str] = field(default_factory=list)
    """Knowledge that it has dropped, replaced or left out, and why."""
    model: str | None = None
    was_busy: bool = False
    """Nothing was done, because another run for the same owner was in progress."""

    @property
    def statement_count(self) -> int:
        """Number of new statements."""
        return sum(changes.said for changes in self.changes.values())


class Dreamer:
    """Runs dreams. Runs for the same owner wait for each other."""

    def __init__(
        self,
        database: Database,
        store_for: Callable[[Scope], Store],
        indexer: Indexer,
        embedder: Embedder,
        settings: DreamingSettings,
        get_models: Callable[[], ModelSource],
    ) -> None:
        self._database = database
        self._store_for = store_for
        self._indexer = indexer
        self._embedder = embedder
        self._settings = settings
        self._get_models = get_models

    async def dream(
        self,
        scope: Scope,
        names: Sequence[str] | None = None,
        *,
        rescan: bool = False,
        wait: bool = True,
        email: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> DreamReport:
        """Run all dreams, or those with the given names, for an owner.

        `rescan` reads everything again, not only new and changed rows; refused statements stay refused. Without `wait`,
        do nothing if another run for the owner is in progress. The owner's e-mail address is stored in the profile.
        """
        dreams = load_dreams(names)
        try:
            async with hold_owner_lock(self._database, scope, timeout_seconds=None if wait else 0) as connection:
                if rescan:
                    dream_names = [dream.name for dream in dreams]
                    await connection.execute(query("dreams/dreams", "forget_progress"), *_owner(scope), dream_names)
                await _forget_outdated_progress(connection, scope, dreams)
                return await self._run_dreams(connection, scope, dreams, email, on_progress)
        except OwnerBusyError:
            return DreamReport(None, was_busy=True)

    async def _run_dreams(
        self,
        connection: Connection,
        scope: Scope,
        dreams: Sequence[Dream],
        email: str | None,
        on_progress: OnProgress | None,
    ) -> DreamReport:
        run = self._new_run(scope, await self._begin_run(connection, scope, dreams), on_progress)
        if email is not None and "@" in email and resolve_user_id(email) == scope.user_id:
            run.email = email.strip().lower()
        try:
            for dream in dreams:
                # A dream searches the rows that the one before it has written.
                await self._indexer.run(scope)
                await dream.derive(run)
        except BaseException as error:
            await self._end_run(connection, run, "failed", str(error) or type(error).__name__)
            raise
        has_changes = await self._end_run(connection, run, "done", None)
        refused = sum(changes.refused for changes in run.changes.values())
        report = await describe_run(run.store, run.run_id, run.skipped, refused)
        return DreamReport(
            run.run_id if has_changes else None,
            run.changes,
            run.notes,
            report.learnt,
            report.dropped,
            self._model_name,
        )

    @property
    def _model(self) -> ExtractionModel | None:
        return self._get_models().extraction_model if self._settings.use_model else None

    @property
    def _model_name(self) -> str | None:
        model = self._model
        return model.model if model else None

    def _new_run(self, scope: Scope, run_id: UUID, on_progress: OnProgress | None) -> DreamRun:
        model = self._model
        run = DreamRun(
            self._store_for(scope),
            self._settings,
            run_id,
            self._embedder,
            self._get_models().output_schemas,
            model,
            ModelBudget(self._settings.max_model_calls if model else 0),
        )
        if on_progress is not None:
            run.on_progress = on_progress
        return run

    async def _begin_run(self, connection: Connection, scope: Scope, dreams: Sequence[Dream]) -> UUID:
        """Store a new run, mark killed runs of the owner as failed, and return the id of the new one."""
        names = [dream.name for dream in dreams]
        run_id: UUID = await connection.fetchval(
            query("dreams/dreams", "begin_run"), *_owner(scope), names, self._model_name
        )
        await connection.execute(query("dreams/dreams", "fail_abandoned_runs"), *_owner(scope), run_id)
        return run_id

    async def _end_run(self, connection: Connection, run: DreamRun, state: str, error: str | None) -> bool:
        """Store the result of a run, or delete the run if it changed nothing. Return whether it is kept."""
        counts: dict[str, Any] = {name: asdict(changes) for name, changes in run.changes.items()}
        counts[SKIPPED_COUNT] = {str(kind): number for kind, number in run.skipped.items()}
        # Connections of the pool encode JSON; this one is not of the pool.
        encoded = orjson.dumps(counts).decode()
        tenant_id = run.scope.tenant_id
        await connection.execute(query("dreams/dreams", "end_run"), tenant_id, run.run_id, state, encoded, error)
        if state == "failed":
            return True
        deleted = await connection.execute(query("dreams/dreams", "delete_empty_run"), tenant_id, run.run_id)
        return bool(deleted.endswith(" 0"))

    async def undo(self, scope: Scope, run_id: UUID) -> int:
        """Delete the statements of a run, reopen those that it ended, and return how many were deleted.

        The sources count as seen: a dream derives an undone statement again only when a source changes.
        """
        async with hold_owner_lock(self._database, scope):
            return await undo_run(self._store_for(scope), run_id)

    async def audit(self, scope: Scope, *, fix: bool = False) -> AuditReport:
        """Check an owner's statements for duplicates, missing sources, dangling edges and stale profiles."""
        async with hold_owner_lock(self._database, scope):
            return await run_audit(self._store_for(scope), self._embedder.embed, fix=fix)

    async def list_owners(self, tenant: str | None = None) -> list[tuple[str, str | None]]:
        """Return tenant and user of everyone with memories; the user is None for the rows that a tenant shares."""
        async with self._database.connection() as connection:
            return [(row[0], row[1]) for row in await connection.fetch(query("dreams/dreams", "owners"), tenant)]


async def _forget_outdated_progress(connection: Connection, scope: Scope, dreams: Sequence[Dream]) -> None:
    """Let dreams read all messages again if other sentences count as statements since their last run."""
    names = [dream.name for dream in dreams if dream.name in DREAMS_OF_MESSAGES]
    owner = _owner(scope)
    rules_id = uuid5(NAMESPACE_URL, "\n".join(("rem", "statement rules", owner[0], owner[1] or "")))
    await connection.execute(
        query("dreams/dreams", "forget_outdated_progress"), *owner, names, rules_id, STATEMENT_RULES_VERSION
    )


def _owner(scope: Scope) -> tuple[str, str | None]:
    return scope.tenant_id, scope.user_id
