"""History: lists the dream runs and statements of an owner, and undoes a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, query
from rem.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from rem.db.store import Store


SKIPPED_COUNT = "skipped"
"""The entry of a run's counts with the number of messages that are no memories, by kind. The others are of dreams."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A dream run."""

    id: UUID
    user_id: str | None
    dreams: list[str]
    model: str | None
    state: str
    counts: dict[str, Any]
    error: str | None
    started_at: datetime
    ended_at: datetime | None

    @property
    def skipped(self) -> dict[str, int]:
        """Return the number of messages without a statement that the run has read, by kind."""
        skipped: dict[str, int] = self.counts.get(SKIPPED_COUNT, {})
        return skipped

    def count(self, name: str) -> int:
        """Return a count of statements or claims, such as `said`, over all dreams of the run."""
        return sum(self.counts.get(dream, {}).get(name, 0) for dream in self.dreams)


@dataclass(frozen=True, slots=True)
class StatementRecord:
    """A statement with its sources and the time for which it was valid."""

    id: UUID
    run_id: UUID
    dream: str
    kind: str
    entity_type: str
    entity_id: UUID
    name: str
    value: Any
    sources: list[str]
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None
    state: str
    stated_at: datetime
    ended_at: datetime | None
    key: str
    """Key of the row that it is about; if the row is gone, its former name or its id."""
    is_evidence: bool
    """Its row does not exist, because there is too little evidence."""


@dataclass(frozen=True, slots=True)
class StatementPage:
    """The first of some statements."""

    statements: list[StatementRecord]
    total: int
    """The number of all statements."""
    hidden_links: int
    """The number of links between related texts that were left out."""


async def list_runs(store: Store, limit: int = 20) -> list[RunRecord]:
    """Return the dream runs of an owner, latest first."""
    async with store.executor.connection() as connection:
        rows = await connection.fetch(query("dreams/dreams", "runs"), store.scope.tenant_id, store.scope.user_id, limit)
    return [RunRecord(*row) for row in rows]


async def get_run(store: Store, run_id: UUID) -> RunRecord:
    """Return a dream run of an owner. Raise NotFoundError if the owner has no such run."""
    async with store.executor.connection() as connection:
        row = await connection.fetchrow(
            query("dreams/dreams", "run"), store.scope.tenant_id, store.scope.user_id, run_id
        )
    if row is None:
        raise _no_such_run(run_id)
    return RunRecord(*row)


def _no_such_run(run_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no dream run {run_id} of this owner: `rem dreaming runs` lists them.")


async def list_statement_page(
    store: Store,
    key: str | None = None,
    *,
    at: datetime | None = None,
    limit: int = 100,
    with_links: bool = True,
) -> StatementPage:
    """Return the statements about the rows with a key, or about all rows: live ones first, then newest first.

    Edges to these rows are listed as well; links between related texts only if they are wanted. With `at`, return the
    statements that were valid at that time. Refused statements are left out. Raise NotFoundError if no row has the key.
    """
    ids, keys = None, None
    if key is not None:
        entities = await store.lookup(key)
        ids, keys = [entity.id for entity in entities], [str(entity.key) for entity in entities]
        if not ids:
            raise NotFoundError(f"Nothing is stored under {key!r}: `rem query 'FUZZY \"…\"'` finds similar keys.")
    condition = query("dreams/dreams", "statement_condition")
    parameters = store.scope.tenant_id, store.scope.user_id, ids, at, keys, with_links
    async with store.executor.connection() as connection:
        rows = await connection.fetch(
            fill(query("dreams/dreams", "statements_about"), condition=condition), *parameters, limit
        )
        (counts,) = await connection.fetch(
            fill(query("dreams/dreams", "count_statements"), condition=condition), *parameters
        )
    hidden_links = 0 if with_links else counts["links"]
    return StatementPage([StatementRecord(*row) for row in rows], counts["statements"], hidden_links)


async def undo_run(store: Store, run_id: UUID) -> int:
    """Delete the statements of a run, reopen those that it ended, and return how many were deleted.

    Rows that the owner has changed since stay as they are. Raise NotFoundError if the owner has no such run, and
    ConflictError if it is undone already.
    """

    async def undo() -> int:
        tenant_id, user_id = store.scope.tenant_id, store.scope.user_id
        async with store.transaction() as inside, inside.executor.connection() as connection:
            run = await connection.fetchrow(query("dreams/dreams", "run"), tenant_id, user_id, run_id)
            if run is None:
                raise _no_such_run(run_id)
            if run["state"] == "undone":
                raise ConflictError(f"The dream run {run_id} is undone already.")
            touched = await connection.fetch(query("dreams/dreams", "entities_of_run"), tenant_id, run_id)
            entities = [row["entity_type"] for row in touched], [row["entity_id"] for row in touched]
            await connection.fetch(query("dreams/dreams", "detect_edits"), tenant_id, *entities)
            changed = await connection.fetch(query("dreams/dreams", "undo"), tenant_id, run_id)
            for row in changed:
                entity = tenant_id, row["entity_type"], row["entity_id"]
                if row["kind"] == "field":
                    await connection.execute(query("dreams/dreams", "set_field"), *entity, row["name"])
                elif row["kind"] == "row":
                    await connection.execute(query("dreams/dreams", "project_row"), *entity, row["filled"])
            await connection.fetch(query("dreams/dreams", "project"), tenant_id, *entities)
            await connection.execute(query("dreams/dreams", "mark_undone"), tenant_id, run_id)
            return sum(row["is_deleted"] for row in changed)

    return await retry_when_busy(undo)
