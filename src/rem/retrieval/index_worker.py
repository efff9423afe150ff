"""The worker that keeps the index current while a server runs. Of all processes on a database one does it at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loguru import logger

from rem.db.sql import query
from rem.errors import RemError

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.retrieval.indexer import Indexer

_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


async def keep_indexed(database: Database, indexer: Indexer) -> None:
    """Index whatever is written, until cancelled. A failure is logged, and tried again after ever longer pauses."""
    pause = _PAUSE_SECONDS
    while True:
        try:
            await _lead(database, indexer)
            pause = _PAUSE_SECONDS
        except RemError as error:
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            logger.warning("Indexing failed and is tried again in {:.0f} s: {}", pause, error)
        except Exception:  # noqa: BLE001  # whatever it is, the next rows must not wait for a restart of the server
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            logger.exception("Indexing failed in a way that it should not, and is tried again in {:.0f} s.", pause)
        await asyncio.sleep(pause)


async def _lead(database: Database, indexer: Indexer) -> None:
    """Be the one that indexes, as long as nothing fails; return at once if another is."""
    async with database.unpooled_connection() as connection:
        if not await connection.fetchval(query("passages", "try_to_lead")):
            return
        while True:
            await indexer.run()
            await indexer.reembed_outdated()
            await asyncio.sleep(_PAUSE_SECONDS)
            # Who has lost this connection has lost the lock, too.
            await connection.execute("SELECT 1")
