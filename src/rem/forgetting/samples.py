"""Samples: what PostgreSQL's planner keeps of the rows of a table, which would outlive the rows that are erased."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.db.sql import query
from rem.memory.retry import when_busy

if TYPE_CHECKING:
    from rem.db.database import Database


async def renew_samples(database: Database) -> None:
    """Let the planner know only rows that are there by now. However much there is, a bounded number of rows is read."""

    async def work() -> None:
        async with database.connection() as connection:
            await connection.execute(query("forgetting", "renew_samples"))

    await when_busy(work)
