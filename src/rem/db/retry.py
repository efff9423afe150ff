"""Retry work on a busy database: after lock conflicts, serialization failures and exhausted connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
from loguru import logger

from rem.errors import RemError

R = TypeVar("R")
BUSY_ERRORS = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.TooManyConnectionsError,
)
"""After these errors nothing was stored, so the same work can run again."""
MAX_ATTEMPTS = 6
FIRST_WAIT_SECONDS = 0.05
"""Each further wait is twice as long: 1.5 s in total."""


async def retry_when_busy(work: Callable[[], Awaitable[R]]) -> R:
    """Return the result of `work()`. Retry it while the database is busy; after the last attempt raise its error."""
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return await work()
        except RemError as error:
            if not isinstance(error.__cause__, BUSY_ERRORS):
                raise
            # A random factor, because callers that conflict would otherwise retry at the same time.
            seconds = FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)  # noqa: S311
            logger.debug("The database is busy, attempt {}, retry in {:.2f} s: {}", attempt, seconds, error)
            await asyncio.sleep(seconds)
    return await work()
