"""The PostgreSQL processes behind the connections of the SQL verb: limit them, and end those that overrun."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from rem.db.driver_errors import DRIVER_ERRORS
from rem.db.sql import query
from rem.errors import RemError

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

MAX_END_SECONDS = 60.0
"""Time after which REM gives up on a backend that does not end. Until then it counts as a running query."""
POLL_SECONDS = 0.5


async def limit_backend(database: Database, pid: int, max_bytes: int) -> bool:
    """Bound the memory of a backend by the operating system. Return False if REM cannot do that here."""
    return await asyncio.to_thread(_limit_backend, database, pid, max_bytes)


def _limit_backend(database: Database, pid: int, max_bytes: int) -> bool:
    backend = database.find_backend(pid)
    return backend is not None and backend.limit(max_bytes)


async def end_backend(database: Database, login: Mapping[str, Any], pid: int) -> bool:
    """End a backend, wherever its code is, and return whether it has ended. `login` is that of its connection."""
    if database.is_embedded:
        backend = await asyncio.to_thread(database.find_backend, pid)
        if backend is not None:
            return await backend.end(MAX_END_SECONDS)
    try:
        async with _connect_to_server(database, login) as connection:
            return await _terminate(connection, pid)
    except (RemError, *DRIVER_ERRORS):
        return False


@asynccontextmanager
async def _connect_to_server(database: Database, login: Mapping[str, Any]) -> AsyncIterator[Connection]:
    """Yield a connection to the server of the SQL verb, which may be a replica with its own address."""
    if "dsn" not in login:
        async with database.connection() as connection:
            yield connection
        return
    own_connection = await database.connect_as(login)
    try:
        yield own_connection
    finally:
        await own_connection.close(timeout=5)


async def _terminate(connection: Connection, pid: int) -> bool:
    """Ask the server to end a backend, and wait for that. A function that ignores interrupts ends it late."""
    # Without the right to end it, the cancel request of the driver still ends the statement.
    with contextlib.suppress(asyncpg.InsufficientPrivilegeError):
        await connection.execute(query("db/sandbox", "terminate_backend"), pid)
    deadline = time.monotonic() + MAX_END_SECONDS
    while time.monotonic() < deadline:
        if not await connection.fetchval(query("db/sandbox", "is_backend_running"), pid):
            return True
        await asyncio.sleep(POLL_SECONDS)
    return False
