"""Measuring side by side: the machine's noise hits the baseline and the measured call alike."""

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
    """A goal, and whether it was reached."""

    name: str
    measured: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the measured value keeps within the limit."""
        return self.measured <= self.limit


@dataclass(slots=True)
class Result:
    """The figures of one benchmark and the goals they are held against."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def check(self, name: str, measured: float, limit: float) -> None:
        """Hold a figure against its goal."""
        self.checks.append(Check(name, round(measured, 3), limit))


async def alternate(
    calls: dict[str, Call], rounds: int, warm_up: int = 50, after: Callable[[], Awaitable[object]] | None = None
) -> dict[str, float]:
    """The median time of each call in microseconds; the calls take turns. What is done `after` each is not timed."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for number in range(rounds + warm_up):
        # In turns, and each as often first: who comes second finds the row in the cache.
        order.reverse()
        for name, call in ((name, calls[name]) for name in order):
            started = time.perf_counter()
            await call(number)
            times[name].append(time.perf_counter() - started)
            if after is not None:
                await after()
    return {name: round(median(values[warm_up:]) * 1e6, 1) for name, values in times.items()}


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def say(message: str) -> None:
    """Tell a person how far it is, beside the JSON."""
    print(message, file=sys.stderr, flush=True)
