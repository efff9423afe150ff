"""Alone: while something of an owner is being forgotten, nobody dreams for that owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rem.db.sql import query
from rem.errors import ConflictError

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Database

LOCK_TIMEOUT_SECONDS = 30.0
RETRY_INTERVAL_SECONDS = 0.1


@asynccontextmanager
async def hold_owner_lock(database: Database, scope: Scope) -> AsyncIterator[None]:
    """Hold the lock that dreams of an owner hold. It is free again when the process ends, however it ends."""
    async with database.unpooled_connection() as connection:
        deadline = asyncio.get_running_loop().time() + LOCK_TIMEOUT_SECONDS
        while not await connection.fetchval(query("dreaming", "try_lock_owner"), scope.tenant_id, scope.user_id):
            if asyncio.get_running_loop().time() > deadline:
                raise ConflictError("A dream for the same owner is running: try again when it is over.")
            await asyncio.sleep(RETRY_INTERVAL_SECONDS)
        yield
