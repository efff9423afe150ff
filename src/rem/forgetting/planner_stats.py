"""Remove erased values from the statistics of PostgreSQL's query planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.db.retry import retry_when_busy
from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Database


async def reset_planner_stats(database: Database) -> None:
    """Delete the planner's sample values of all REM tables, and collect new ones.

    The samples (`pg_stats`) contain texts, which would outlive the erased rows. PostgreSQL reads a bounded number of
    rows for new samples, whatever the size of a table.
    """

    async def reset() -> None:
        async with database.connection() as connection:
            await connection.execute(query("forgetting", "reset_planner_stats"))

    await retry_when_busy(reset)
