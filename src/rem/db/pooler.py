"""Connections through a connection pooler in transaction mode, such as PgBouncer.

Each transaction may run on another connection to the server, so nothing may stay on a connection after a transaction:
no settings, no session locks, no listeners and, with older poolers, no prepared statements.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg

from rem.db.sql import fill, query
from rem.errors import SettingsError

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.preflight import ServerInfo
    from rem.settings import EncryptionSettings

MAX_FETCHED_ROWS = 50
"""The number of rows that a cursor fetches at once, as in the driver."""


class UnpreparedConnection(asyncpg.Connection):
    """A connection that leaves no prepared statement on the server. Every statement runs in a transaction.

    The driver always sends a statement in two steps. A pooler could send each step to another connection.
    """

    def get_reset_query(self) -> str:
        """Return no reset query, as for other connections of the pool."""
        return ""

    async def fetch(self, query: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Run a statement, and return its rows."""
        if self.is_in_transaction():
            return list(await super().fetch(query, *args, **kwargs))
        async with self.transaction():
            return list(await super().fetch(query, *args, **kwargs))

    async def fetchrow(self, query: str, *args: Any, **kwargs: Any) -> Any:
        """Run a statement, and return its first row."""
        if self.is_in_transaction():
            return await super().fetchrow(query, *args, **kwargs)
        async with self.transaction():
            return await super().fetchrow(query, *args, **kwargs)

    async def fetchval(self, query: str, *args: Any, column: int = 0, **kwargs: Any) -> Any:
        """Run a statement, and return one column of its first row."""
        row = await self.fetchrow(query, *args, **kwargs)
        return None if row is None else row[column]

    async def execute(self, query: str, *args: Any, **kwargs: Any) -> str:
        """Run a statement, and return its command tag."""
        # Without arguments the driver sends the statement in one step.
        if not args or self.is_in_transaction():
            return await super().execute(query, *args, **kwargs)
        async with self.transaction():
            return await super().execute(query, *args, **kwargs)

    async def executemany(self, command: str, args: Any, **kwargs: Any) -> None:
        """Run a statement for each row of arguments."""
        async with self.transaction():
            await super().executemany(command, args, **kwargs)

    def cursor(self, query: str, *args: Any, prefetch: int | None = None, **_kwargs: Any) -> Any:
        """Return a cursor of the current transaction."""
        return self._iterate(query, args, prefetch)

    async def _iterate(self, query: str, args: tuple[Any, ...], prefetch: int | None) -> AsyncIterator[Any]:
        # A cursor of the driver has a prepared statement with a number, which another client may use, too.
        name = f"rem_{uuid4().hex}"
        await self.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {query}", *args)
        while rows := await self.fetch(f"FETCH FORWARD {prefetch or MAX_FETCHED_ROWS} FROM {name}"):
            for row in rows:
                yield row
        await self.execute(f"CLOSE {name}")


async def set_role_defaults(connection: Connection, info: ServerInfo) -> None:
    """Give each new connection of this role the settings that a pooler does not pass on."""
    await connection.execute(fill(query("db/migrations", "role_defaults"), search_path=info.search_path))


async def require_role_defaults(connection: Connection, info: ServerInfo) -> None:
    """Raise SettingsError if a connection of the pooler does not find the schema of REM and of the extensions."""
    if not await connection.fetchval(query("db/migrations", "has_schemas"), info.schemas):
        raise SettingsError(
            "The connections of the connection pooler lack the search_path of REM: run `rem db migrate` with "
            "POSTGRES__DIRECT_CONNECTION_STRING of the same role, then RECONNECT in the pooler's console."
        )


async def refuse_encryption(connection: Connection, settings: EncryptionSettings) -> None:
    """Raise SettingsError if texts are or shall be encrypted: the key of their words is a setting of a connection."""
    if settings.enabled or await connection.fetchval(query("db/installation", "index_key")) is not None:
        raise SettingsError(
            "Encrypted texts need connections with a key, which a connection pooler in transaction mode would give to "
            "others: set POSTGRES__CONNECTION_STRING to the address of the server itself, and remove "
            "POSTGRES__DIRECT_CONNECTION_STRING."
        )
