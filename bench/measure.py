"""Measure calls in turns, so that noise of the machine affects the baseline and the measured call alike."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Call = Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Check:
    """A figure and its limit."""

    name: str
    measured: float
    limit: float

    @property
    def passed(self) -> bool:
        """Return True if the measured value is within the limit."""
        return self.measured <= self.limit


@dataclass(slots=True)
class Result:
    """The figures of one benchmark, and their checks against limits."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def check(self, name: str, measured: float, limit: float) -> None:
        """Add a check of a figure against its limit."""
        self.checks.append(Check(name, round(measured, 3), limit))


async def measure_in_turns(
    calls: dict[str, Call], rounds: int, warm_up: int = 50, after: Callable[[], Awaitable[object]] | None = None
) -> dict[str, float]:
    """Return the median time of each call in microseconds. Run the calls in turns, and `after` untimed after each."""
    times = await time_in_turns(calls, rounds, warm_up, after)
    return {name: round(median(values) * 1e6, 1) for name, values in times.items()}


async def time_in_turns(
    calls: dict[str, Call], rounds: int, warm_up: int = 50, after: Callable[[], Awaitable[object]] | None = None
) -> dict[str, list[float]]:
    """Return the seconds of each run of each call. Run the calls in turns, and `after` untimed after each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for number in range(rounds + warm_up):
        # Each call comes first equally often: the second one finds the row in the cache.
        order.reverse()
        for name, call in ((name, calls[name]) for name in order):
            started = time.perf_counter()
            await call(number)
            times[name].append(time.perf_counter() - started)
            if after is not None:
                await after()
    return {name: values[warm_up:] for name, values in times.items()}


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that this share of the values does not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def print_progress(message: str) -> None:
    """Print a progress message to standard error, beside the JSON on standard output."""
    print(message, file=sys.stderr, flush=True)
