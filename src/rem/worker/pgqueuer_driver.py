"""The database connection of a worker, which reconnects and repeats the statement when the connection is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

import asyncpg
from loguru import logger

from rem.db.driver_errors import DRIVER_ERRORS, to_rem_error
from rem.errors import DatabaseUnavailableError, RemError

if TYPE_CHECKING:
    from pgqueuer.core.tm import TaskManager
    from pgqueuer.ports.driver import NotifyCallback

    from rem.db.database import Database

    DriverConnection = asyncpg.Connection[asyncpg.Record]

R = TypeVar("R")
FIRST_DELAY_SECONDS = 0.2
MAX_DELAY_SECONDS = 30.0


class ReconnectingDriver:
    """A driver for pgqueuer with one connection that is replaced, with growing delays, when it is lost.

    A statement that was interrupted is run again, so every statement must tolerate that. `on_reconnect` is called with
    every new connection except the first, before any other statement.
    """

    def __init__(
        self, database: Database, timeout_seconds: float, on_reconnect: Callable[[DriverConnection], Awaitable[None]]
    ) -> None:
        self._database = database
        self._timeout_seconds = timeout_seconds
        self._on_reconnect = on_reconnect
        self._connection: DriverConnection | None = None
        self._was_connected = False
        self._listeners: list[tuple[str, Callable[..., None]]] = []
        self._lock = asyncio.Lock()
        self._is_closing = asyncio.Event()
        self._shutdown = asyncio.Event()

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """Run a statement, and return its rows."""
        return [dict(row) for row in await self._run(lambda connection: connection.fetch(query, *args))]

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement, and return its command tag."""
        return await self._run(lambda connection: connection.execute(query, *args))

    async def notify(self, channel: str, payload: str) -> None:
        """Send a notification to all listeners on a channel."""
        await self.execute("SELECT pg_notify($1, $2)", channel, payload)

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Listen on a channel with this connection and all later ones."""

        def relay(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if isinstance(payload, str):
                callback(payload)

        await self._run(lambda connection: connection.add_listener(channel, relay))
        self._listeners.append((channel, relay))

    @property
    def shutdown(self) -> asyncio.Event:
        """Part of the driver interface of pgqueuer."""
        return self._shutdown

    @property
    def tm(self) -> TaskManager:
        """Part of the driver interface of pgqueuer."""
        from pgqueuer.core.tm import TaskManager

        return TaskManager()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Do nothing: the creator of the driver closes the connection, not pgqueuer."""

    def give_up(self) -> None:
        """Stop reconnecting. Statements without a connection fail."""
        self._is_closing.set()

    async def close(self) -> None:
        """Close the connection."""
        self.give_up()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=2)
            except DRIVER_ERRORS:
                connection.terminate()

    async def _run(self, call: Callable[[DriverConnection], Awaitable[R]]) -> R:
        async with self._lock:
            while True:
                connection = self._connection or await self._reconnect()
                try:
                    async with asyncio.timeout(self._timeout_seconds):
                        return await call(connection)
                except DRIVER_ERRORS as error:
                    if not _is_connection_loss(error):
                        raise
                    self._drop_connection(error)

    async def _reconnect(self) -> DriverConnection:
        """Return a new connection with the same listeners. Retry until the server answers or `give_up` is called."""
        delay = FIRST_DELAY_SECONDS
        while not self._is_closing.is_set():
            try:
                connection = await self._database.connect_as({})
                self._connection = connection
                async with asyncio.timeout(self._timeout_seconds):
                    for channel, relay in self._listeners:
                        await connection.add_listener(channel, relay)
                    if self._was_connected:
                        await self._on_reconnect(connection)
                        logger.info("The worker has reconnected to the database.")
                self._was_connected = True
                return connection
            except (RemError, *DRIVER_ERRORS) as error:
                if not _is_connection_loss(error):
                    raise
                self._drop_connection(error)
            await self._sleep(delay * random.uniform(0.8, 1.2))  # noqa: S311  # no secret
            delay = min(delay * 2, MAX_DELAY_SECONDS)
        raise DatabaseUnavailableError("The worker is stopping, and the database does not answer.")

    def _drop_connection(self, error: Exception) -> None:
        logger.warning("The worker has lost its connection to the database ({}) and reconnects.", type(error).__name__)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_closing.wait()
        except TimeoutError:
            return


def _is_connection_loss(error: Any) -> bool:
    """Return whether a new connection may help. A read-only server may have become a replica of a new primary."""
    if isinstance(error, DatabaseUnavailableError | asyncpg.ReadOnlySQLTransactionError):
        return True
    return not isinstance(error, RemError) and isinstance(to_rem_error(error), DatabaseUnavailableError)
