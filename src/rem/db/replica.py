"""Replica: send reads to a streaming replica when it has everything that the primary had committed before the read.

So a read from the replica sees at least what the same read from the primary would have seen, no matter which process
wrote it. If the replica is behind, down or frozen, the primary answers (docs/decisions/0015-replica-reads.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import asyncpg
from loguru import logger

from rem.db.driver_errors import DRIVER_ERRORS, to_rem_error
from rem.db.sql import query
from rem.errors import DatabaseUnavailableError, RemError, SettingsError

if TYPE_CHECKING:
    from rem.db.database import Connection

    Connect: TypeAlias = Callable[[], Awaitable[asyncpg.Connection[asyncpg.Record]]]
    Lease: TypeAlias = Callable[[], AbstractAsyncContextManager[Connection]]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]

R = TypeVar("R")
MAX_BEHIND_SECONDS = 0.1
"""A read waits this long for the replica before the primary answers it."""
POLL_SECONDS = 0.005
MAX_ANSWER_SECONDS = 1.0
"""A replica that takes longer to tell its position counts as down."""
MAX_READ_SECONDS = 10.0
"""Time after which the primary is asked instead."""
RETRY_SECONDS = 1.0
"""Pause between two attempts to use a replica that was behind or down."""
_BEHIND = "it is behind the primary, or not a replica any more"
_CONFLICT_ERRORS = (
    asyncpg.TransactionRollbackError,  # a conflict with recovery
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.FeatureNotSupportedError,  # an unlogged table
)


class ReplicaUnusableError(Exception):
    """The replica cannot answer this read. The primary can."""


class Replica:
    """A streaming replica with its pool. `connect` opens one more connection, `primary` leases one of the primary."""

    def __init__(self, address: str, pool: Pool, connect: Connect, primary: Lease) -> None:
        self._address = address
        self._pool = pool
        self._connect = connect
        self._primary = primary
        self._watcher: asyncpg.Connection[asyncpg.Record] | None = None
        """Asks for the position. Reads that wait for a connection of the pool do not delay it."""
        self._ask_primary = _SharedCall(self._fetch_primary_position)
        self._ask_replica = _SharedCall(self._fetch_replica_position)
        self._replayed = -1
        self._is_usable = False
        self._retrying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Use the replica from now on, or as soon as it answers."""
        try:
            await self._check()
        except ReplicaUnusableError as error:
            self._suspend(str(error))

    async def close(self) -> None:
        """End all connections. Wait for none of them: the replica may be frozen."""
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait([self._retrying])
        self._drop_watcher()
        self._pool.terminate()

    async def read(self, work: Callable[[Connection], Awaitable[R]]) -> R:
        """Return the result of `work` on the replica. Raise ReplicaUnusableError if the primary has to do it."""
        await self.require_current()
        try:
            async with asyncio.timeout(MAX_READ_SECONDS):
                return await self._run(work)
        except (RemError, *DRIVER_ERRORS) as error:
            self.raise_if_unusable(error)
            raise

    async def require_current(self) -> None:
        """Wait a short time until the replica has all that is committed now. Raise ReplicaUnusableError if it lags."""
        if not self._is_usable:
            raise ReplicaUnusableError("it was behind or down a moment ago")
        if not await self._wait_for(await self._ask_primary()):
            self._suspend(_BEHIND)
            raise ReplicaUnusableError(_BEHIND)

    async def _wait_for(self, position: int) -> bool:
        """Wait until the replica has replayed the WAL up to a position. Return False if that takes too long."""
        deadline = asyncio.get_running_loop().time() + MAX_BEHIND_SECONDS
        while self._replayed < position:
            try:
                self._replayed = await self._ask_replica()
            except (RemError, *DRIVER_ERRORS) as error:
                self.raise_if_unusable(error)
                raise
            if self._replayed < position:
                if asyncio.get_running_loop().time() > deadline:
                    return False
                await asyncio.sleep(POLL_SECONDS)
        return True

    def raise_if_unusable(self, error: Exception) -> None:
        """Raise ReplicaUnusableError if the error of a read comes from the replica and not from the read itself."""
        cause = error.__cause__ if isinstance(error, RemError) else error
        if isinstance(cause, _CONFLICT_ERRORS):
            raise ReplicaUnusableError(str(cause)) from error
        explained = error if isinstance(error, RemError) else to_rem_error(error)
        if isinstance(explained, DatabaseUnavailableError):
            self._suspend(str(error) or type(error).__name__)
            raise ReplicaUnusableError(str(error)) from error

    def _suspend(self, reason: str) -> None:
        """Send reads to the primary until the replica is current again."""
        self._is_usable = False
        if self._retrying is None or self._retrying.done():
            logger.warning("The replica at {} is not used: {}.", self._address, reason)
            self._retrying = asyncio.create_task(self._retry())

    async def _retry(self) -> None:
        while not self._is_usable:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._check()
            except (ReplicaUnusableError, SettingsError, *DRIVER_ERRORS) as error:
                logger.debug("The replica at {} is still not used: {}.", self._address, error)
        logger.info("The replica at {} is used again.", self._address)

    async def _check(self) -> None:
        """Use the replica if it answers and is current. Raise SettingsError if it is a copy of another server."""
        try:
            replica_id = await self._watch("system_identifier")
            async with self._primary() as connection:
                primary_id = await connection.fetchval(query("db/replica", "system_identifier"))
        except (RemError, *DRIVER_ERRORS) as error:
            raise ReplicaUnusableError(str(error) or type(error).__name__) from error
        if primary_id != replica_id:
            raise SettingsError(
                f"The server at {self._address} is not a replica of the primary: fix "
                "POSTGRES__REPLICA_CONNECTION_STRING."
            )
        self._replayed = -1
        if not await self._wait_for(await self._ask_primary()):
            raise ReplicaUnusableError(_BEHIND)
        self._is_usable = True

    async def _fetch_primary_position(self) -> int:
        async with self._primary() as connection:
            return int(await connection.fetchval(query("db/replica", "committed_position")))

    async def _fetch_replica_position(self) -> int:
        return int(await self._watch("replayed_position"))

    async def _watch(self, name: str) -> Any:
        """Return the result of a short query. Close the connection if there is none in time."""
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                if self._watcher is None:
                    self._watcher = await self._connect()
                return await self._watcher.fetchval(query("db/replica", name))
        except (asyncio.CancelledError, *DRIVER_ERRORS):
            self._drop_watcher()
            raise

    def _drop_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.terminate()
            self._watcher = None

    async def _run(self, work: Callable[[Connection], Awaitable[R]]) -> R:
        connection = await self._pool.acquire()
        try:
            return await work(connection)
        finally:
            # If the read was cancelled, the server cancels the statement first. A frozen server does not.
            await self._pool.release(connection, timeout=MAX_ANSWER_SECONDS)


class _SharedCall(Generic[R]):
    """Runs a call once for all callers that arrive before it starts.

    A call that has already started is of no use to a caller: it may have read a position before the caller's write.
    """

    def __init__(self, call: Callable[[], Awaitable[R]]) -> None:
        self._call = call
        self._running: asyncio.Task[R] | None = None
        self._next: asyncio.Task[R] | None = None

    async def __call__(self) -> R:
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
            # If all callers are cancelled, nobody reads its error.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _run(self, previous: asyncio.Task[Any] | None) -> R:
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
        self._running, self._next = self._next, None
        return await self._call()
