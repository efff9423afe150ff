"""Undo: takes back what a run said."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.sql import query
from rem.errors import ConflictError, NotFoundError
from rem.memory.retry import when_busy

if TYPE_CHECKING:
    from rem.db.store import Store


async def undo(store: Store, run_id: UUID) -> int:
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

    return await when_busy(work)
