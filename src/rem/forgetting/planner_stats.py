"""Samples: what PostgreSQL's planner keeps of the rows of a table, which would outlive the rows that are erased."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.db.retry import retry_when_busy
from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Database


async def reset_planner_stats(database: Database) -> None:
    """Let the planner know only rows that are there by now. However much there is, a bounded number of rows is read."""

    async def work() -> None:
        async with database.connection() as connection:
            await connection.execute(query("forgetting", "renew_samples"))

    await retry_when_busy(work)
