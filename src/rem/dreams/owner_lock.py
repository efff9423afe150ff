"""Let only one dream run, removal or audit work on an owner's memory at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rem.db.sql import query
from rem.errors import ConflictError

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Database

RETRY_INTERVAL_SECONDS = 0.1


class OwnerBusyError(ConflictError):
    """Another process holds the lock of the same owner."""


@asynccontextmanager
async def hold_owner_lock(
    database: Database, scope: Scope, *, timeout_seconds: float | None = None
) -> AsyncIterator[Connection]:
    """Hold the owner's lock, and yield the connection that holds it.

    Wait up to `timeout_seconds` for the lock, without limit if it is None. Raise OwnerBusyError after that. The lock
    belongs to the connection, so PostgreSQL releases it even if the process is killed.
    """
    async with database.unpooled_connection() as connection:
        if timeout_seconds is None:
            await connection.execute(query("dreams/dreams", "lock_owner"), scope.tenant_id, scope.user_id)
        else:
            await _poll_lock(connection, scope, timeout_seconds)
        yield connection


async def _poll_lock(connection: Connection, scope: Scope, timeout_seconds: float) -> None:
    clock = asyncio.get_running_loop()
    deadline = clock.time() + timeout_seconds
    while not await connection.fetchval(query("dreams/dreams", "try_lock_owner"), scope.tenant_id, scope.user_id):
        if clock.time() >= deadline:
            raise OwnerBusyError("A dream for the same owner is running: try again when it has ended.")
        await asyncio.sleep(RETRY_INTERVAL_SECONDS)
