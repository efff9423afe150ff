"""ReadTimeLimit: end a read that takes too long."""

from __future__ import annotations

import asyncio
from types import TracebackType

from rem.errors import QueryTimeoutError

DEFAULT_MAX_SECONDS = 30.0


class ReadTimeLimit:
    """Cancels its block after `max_seconds`, and raises QueryTimeoutError. It is a class for speed.

    The driver cancels the running statement in the database, too.
    """

    __slots__ = ("_limit", "_max_seconds")

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._limit = asyncio.timeout(max_seconds)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(error_type, error, trace)
        except TimeoutError as timeout:
            raise to_timeout_error(self._max_seconds) from timeout


def to_timeout_error(max_seconds: float) -> QueryTimeoutError:
    """Return the error for a read that took too long."""
    return QueryTimeoutError(
        f"The query took longer than {max_seconds:g} s and was stopped: ask for less, or try again later. "
        "POSTGRES__READ_TIMEOUT_SECONDS is the limit."
    )
