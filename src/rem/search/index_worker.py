"""The background worker that indexes new rows while a server runs. Only one process per database does it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from loguru import logger

from rem.db.sql import query
from rem.errors import RemError

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.search.indexer import Indexer

PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0


async def keep_indexed(database: Database, indexer: Indexer) -> None:
    """Index new rows until cancelled. Log a failure, and retry after a pause that doubles until one succeeds."""
    pause = PAUSE_SECONDS
    while True:
        try:
            async for _ in _index_as_leader(database, indexer):
                pause = PAUSE_SECONDS
            # Another process does it.
            pause = PAUSE_SECONDS
        except RemError as error:
            pause = min(pause * 2, MAX_PAUSE_SECONDS)
            logger.warning("Indexing failed and will be retried in {:.0f} s: {}", pause, error)
        except Exception:  # noqa: BLE001  # the worker must survive, or new rows would wait for a restart of the server
            pause = min(pause * 2, MAX_PAUSE_SECONDS)
            logger.exception("Indexing failed unexpectedly and will be retried in {:.0f} s.", pause)
        await asyncio.sleep(pause)


async def _index_as_leader(database: Database, indexer: Indexer) -> AsyncIterator[None]:
    """Index new rows in a loop, as the only process that does, and yield after each success.

    Return at once if another process already does it.
    """
    async with database.unpooled_connection() as connection:
        if not await connection.fetchval(query("search/passages", "try_lock_worker")):
            return
        while True:
            await indexer.run()
            await indexer.reembed_outdated()
            yield
            await asyncio.sleep(PAUSE_SECONDS)
            # If this connection is lost, the lock is lost, too: this statement then raises.
            await connection.execute("SELECT 1")
