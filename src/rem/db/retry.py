"""What to do when the database is busy: try again, a few times, each time a little later."""

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
MAX_ATTEMPTS = 6
FIRST_WAIT_SECONDS = 0.05


async def retry_when_busy(work: Callable[[], Awaitable[R]]) -> R:
    """The result of some work on the database; work that found it busy is done again. It stored nothing then."""
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return await work()
        except RemError as error:
            if not isinstance(error.__cause__, BUSY_ERRORS):
                raise
            # Not in step with the others that wait.
            seconds = FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)  # noqa: S311
            logger.debug("The database is busy, attempt {}, again in {:.2f} s: {}", attempt, seconds, error)
            await asyncio.sleep(seconds)
    return await work()
