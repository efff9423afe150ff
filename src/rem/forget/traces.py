"""Remove erased values from what PostgreSQL keeps besides the tables: planner statistics and the server's log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rem.db.retry import retry_when_busy
from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Database


async def erase_traces(database: Database) -> None:
    """Reset the planner statistics, and empty the log of the embedded server."""
    await _reset_planner_stats(database)
    await asyncio.to_thread(database.erase_server_log)


async def _reset_planner_stats(database: Database) -> None:
    """Delete the planner's sample values of all REM tables, and collect new ones.

    The samples (`pg_stats`) contain texts, which would outlive the erased rows. PostgreSQL reads a bounded number of
    rows for new samples, whatever the size of a table.
    """

    async def reset() -> None:
        async with database.connection() as connection:
            await connection.execute(query("forget/forget", "reset_planner_stats"))

    await retry_when_busy(reset)
