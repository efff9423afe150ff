"""RateLimiter: count the requests of each caller in PostgreSQL, so that all server processes share one allowance."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from loguru import logger

from rem.auth.identity import Tier
from rem.db.sql import query
from rem.errors import RemError
from rem.settings import RATE_PERIOD_SECONDS

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.settings import RateLimitSettings

RETRY_SECONDS = 5.0
"""Time for which a process counts by itself after the database has not answered."""
MAX_LOCAL_CALLERS = 100_000
"""Callers that a process counts by itself. One more lets it forget the caller that has not called for the longest time.

Nobody gains by that: to be forgotten, one must be silent while 100,000 others call, and each of these has an allowance
of its own. A caller that goes on is not forgotten. Counters that callers share would let a few of them use up the
allowance of everyone."""


class RateLimit(NamedTuple):
    """A number of requests in a period."""

    requests: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a caller may still do in its current period."""

    limit: int
    used: int
    seconds: float
    """Time until the period ends."""

    @property
    def is_exceeded(self) -> bool:
        """Return True if the request that was just counted is one too many."""
        return self.used > self.limit

    @property
    def remaining(self) -> int:
        """Return the number of further requests in this period."""
        return max(self.limit - self.used, 0)

    @property
    def reset_seconds(self) -> int:
        """Return the time until the period ends, in whole seconds, at least 1."""
        return max(math.ceil(self.seconds), 1)


class LimitedCaller(NamedTuple):
    """Whose requests are counted together."""

    tenant_id: str
    user_id: str


def parse_rate(text: str) -> RateLimit | None:
    """Parse `50/minute`. Return None for `unlimited`. The settings have checked the text."""
    if text == "unlimited":
        return None
    requests, _, period = text.partition("/")
    return RateLimit(int(requests), RATE_PERIOD_SECONDS[period.strip()])


class RateLimiter:
    """Counts requests in the database. If it does not answer in time, each process counts by itself for a while."""

    def __init__(self, database: Database | None, settings: RateLimitSettings) -> None:
        self._database = None if database is None or database.server_info.is_replica else database
        self._limits = {tier: parse_rate(getattr(settings, tier.value)) for tier in Tier}
        self._timeout_seconds = settings.timeout_seconds
        self._local_counts: OrderedDict[LimitedCaller, tuple[int, float]] = OrderedDict()
        self._retry_at = 0.0
        self._running: set[asyncio.Task[Allowance]] = set()

    async def count(self, caller: LimitedCaller, tier: Tier) -> Allowance | None:
        """Count a request, and return what the caller may still do; None if its tier has no limit."""
        limit = self._limits[tier]
        if limit is None:
            return None
        if self._database is None or time.monotonic() < self._retry_at:
            return self._count_locally(caller, limit)
        # A task, because a cancelled statement waits for the server that does not answer.
        task = asyncio.create_task(self._count_in(self._database, caller, limit))
        self._running.add(task)
        task.add_done_callback(self._forget_task)
        await asyncio.wait([task], timeout=self._timeout_seconds)
        if task.done() and task.exception() is None:
            return task.result()
        self._pause(task)
        return self._count_locally(caller, limit)

    async def _count_in(self, database: Database, caller: LimitedCaller, limit: RateLimit) -> Allowance:
        async with database.connection() as connection:
            row = await connection.fetchrow(query("rate_limits", "count"), *caller, float(limit.seconds))
        if row is None:
            raise RemError("The counter returned nothing.")
        return Allowance(limit.requests, *row)

    def _forget_task(self, task: asyncio.Task[Allowance]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Mark the exception as read: the caller may be gone.
            task.exception()

    def _pause(self, task: asyncio.Task[Allowance]) -> None:
        """Count locally for a while. Any error of the database must not stop the service, but it is logged once."""
        now = time.monotonic()
        if now >= self._retry_at:
            reason = type(task.exception()).__name__ if task.done() else f"no answer in {self._timeout_seconds:g} s"
            logger.warning("Rate limits are counted by each server process for {:g} s ({}).", RETRY_SECONDS, reason)
        self._retry_at = now + RETRY_SECONDS

    def _count_locally(self, caller: LimitedCaller, limit: RateLimit) -> Allowance:
        now = time.monotonic()
        used, ends_at = self._local_counts.get(caller, (0, 0.0))
        if ends_at <= now:
            used, ends_at = 0, now + limit.seconds
        self._local_counts[caller] = (used + 1, ends_at)
        self._local_counts.move_to_end(caller)
        if len(self._local_counts) > MAX_LOCAL_CALLERS:
            self._local_counts.popitem(last=False)
        return Allowance(limit.requests, used + 1, ends_at - now)

    async def close(self) -> None:
        """Stop statements that still run, so that the connection pool can close."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running), timeout=self._timeout_seconds)


async def delete_ended_periods(database: Database) -> None:
    """Delete the counters that nobody needs any more."""
    async with database.connection() as connection:
        await connection.execute(query("rate_limits", "delete_ended"))
