"""Record: what was dreamt, when, and from what, for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from rem.db.store import Store


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A dream that happened."""

    id: UUID
    user_id: str | None
    dreams: list[str]
    model: str | None
    state: str
    counts: dict[str, Any]
    error: str | None
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class StatementRecord:
    """Something that a dream said, with where it came from and how long it held."""

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
    """Of the row that it is about; if that is gone, of what it was called, or its id."""
    is_evidence: bool
    """Whether it speaks for a row that is not there, because all that does is not enough."""


async def list_runs(store: Store, limit: int = 20) -> list[RunRecord]:
    """An owner's dreams, the latest first."""
    async with store.executor.connection() as connection:
        rows = await connection.fetch(query("dreaming", "runs"), store.scope.tenant_id, store.scope.user_id, limit)
    return [RunRecord(*row) for row in rows]


async def list_statements(
    store: Store, key: str | None = None, *, at: datetime | None = None, limit: int = 100
) -> list[StatementRecord]:
    """What dreams said of what answers to a key, or of everything, the newest valid first.

    With a time: what was believed then. What its owner took back is not among it.
    """
    ids = None
    if key is not None:
        ids = [entity.id for entity in await store.lookup(key)]
        if not ids:
            raise NotFoundError(f"Nothing answers to {key!r}: `rem query 'FUZZY \"…\"'` finds similar keys.")
    async with store.executor.connection() as connection:
        rows = await connection.fetch(
            query("dreaming", "statements_about"), store.scope.tenant_id, store.scope.user_id, ids, at, limit
        )
    return [StatementRecord(*row) for row in rows]


async def undo_run(store: Store, run_id: UUID) -> int:
    """Take back what a run said, and let stand again what it ended; how many statements it were.

    What its owner has changed since stays as it is.
    """

    async def work() -> int:
        tenant_id, user_id = store.scope.tenant_id, store.scope.user_id
        async with store.transaction() as inside, inside.executor.connection() as connection:
            run = await connection.fetchrow(query("dreaming", "run"), tenant_id, user_id, run_id)
            if run is None:
                raise NotFoundError(f"There is no dream {run_id} of this owner: `rem dreaming runs` lists them.")
            if run["state"] == "undone":
                raise ConflictError(f"The dream {run_id} is undone already.")
            touched = await connection.fetch(query("dreaming", "touched_by_run"), tenant_id, run_id)
            places = [row["entity_type"] for row in touched], [row["entity_id"] for row in touched]
            await connection.fetch(query("dreaming", "notice"), tenant_id, *places)
            undone = await connection.fetch(query("dreaming", "undo"), tenant_id, run_id)
            for row in undone:
                place = tenant_id, row["entity_type"], row["entity_id"]
                if row["kind"] == "field":
                    await connection.execute(query("dreaming", "set_field"), *place, row["name"])
                elif row["kind"] == "row":
                    await connection.execute(query("dreaming", "project_row"), *place, row["filled"])
            await connection.fetch(query("dreaming", "project"), tenant_id, *places)
            await connection.execute(query("dreaming", "mark_undone"), tenant_id, run_id)
            return sum(row["is_taken"] for row in undone)

    return await retry_when_busy(work)
