"""The worker's connection. When it breaks, the statement waits for another one: nothing above has to know."""

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

    Plain = asyncpg.Connection[asyncpg.Record]

R = TypeVar("R")
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 30.0


class ReconnectingDriver:
    """pgqueuer's driver over one connection that is replaced whenever it breaks, after growing pauses.

    A statement that broke off is run again, so each must bear that; pgqueuer's and ours do. `on_return` is called
    with every new connection but the first, before anything else is done with it.
    """

    def __init__(
        self, database: Database, patience_seconds: float, on_return: Callable[[Plain], Awaitable[None]]
    ) -> None:
        self._database = database
        self._patience = patience_seconds
        self._on_return = on_return
        self._connection: Plain | None = None
        self._was_connected = False
        self._listeners: list[tuple[str, Callable[..., None]]] = []
        self._lock = asyncio.Lock()
        self._given_up = asyncio.Event()
        self._shutdown = asyncio.Event()

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        """The rows of a statement."""
        return [dict(row) for row in await self._run(lambda connection: connection.fetch(query, *args))]

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement."""
        return await self._run(lambda connection: connection.execute(query, *args))

    async def notify(self, channel: str, payload: str) -> None:
        """Tell everyone who listens on a channel."""
        await self.execute("SELECT pg_notify($1, $2)", channel, payload)

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Listen on a channel, on this connection and on all that follow."""

        def relay(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if isinstance(payload, str):
                callback(payload)

        await self._run(lambda connection: connection.add_listener(channel, relay))
        self._listeners.append((channel, relay))

    @property
    def shutdown(self) -> asyncio.Event:
        """A part of pgqueuer's interface."""
        return self._shutdown

    @property
    def tm(self) -> TaskManager:
        """A part of pgqueuer's interface."""
        from pgqueuer.core.tm import TaskManager

        return TaskManager()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """pgqueuer's managers leave; the connection is closed by who made the driver."""

    def give_up(self) -> None:
        """Wait for no connection any more: what needs one fails."""
        self._given_up.set()

    async def close(self) -> None:
        """Give the connection back to the server."""
        self.give_up()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=2)
            except DRIVER_ERRORS:
                connection.terminate()

    async def _run(self, call: Callable[[Plain], Awaitable[R]]) -> R:
        async with self._lock:
            while True:
                connection = self._connection or await self._connected()
                try:
                    async with asyncio.timeout(self._patience):
                        return await call(connection)
                except DRIVER_ERRORS as error:
                    if not _is_loss(error):
                        raise
                    self._lose(error)

    async def _connected(self) -> Plain:
        """A new connection that listens as the one before did; waits for the server as long as it takes."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._given_up.is_set():
            try:
                connection = await self._database.connect_as({})
                self._connection = connection
                async with asyncio.timeout(self._patience):
                    for channel, relay in self._listeners:
                        await connection.add_listener(channel, relay)
                    if self._was_connected:
                        await self._on_return(connection)
                        logger.info("The worker is connected to the database again.")
                self._was_connected = True
                return connection
            except (RemError, *DRIVER_ERRORS) as error:
                if not _is_loss(error):
                    raise
                self._lose(error)
            await self._pause(pause * random.uniform(0.8, 1.2))  # noqa: S311  # no secret
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        raise DatabaseUnavailableError("The worker stops, and the database does not answer.")

    def _lose(self, error: Exception) -> None:
        logger.warning("The worker has no connection to the database ({}) and tries again.", type(error).__name__)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._given_up.wait()
        except TimeoutError:
            return


def _is_loss(error: Any) -> bool:
    """Whether another connection may help. One to a server that became a replica may find the new primary."""
    if isinstance(error, DatabaseUnavailableError | asyncpg.ReadOnlySQLTransactionError):
        return True
    return not isinstance(error, RemError) and isinstance(to_rem_error(error), DatabaseUnavailableError)
