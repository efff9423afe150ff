"""Work on many rows or a long text without stopping the other tasks of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterable
from typing import TypeVar

MAX_SECONDS_AT_ONCE = 0.01
MAX_CHARS_AT_ONCE = 20_000
"""A thread would cost more than the work on a shorter text."""
T = TypeVar("T")
R = TypeVar("R")


async def map_fairly(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply a function to each item, and let other tasks run after each 10 ms: rows can be large."""
    results = []
    started = time.monotonic()
    for item in items:
        results.append(function(item))
        if time.monotonic() - started > MAX_SECONDS_AT_ONCE:
            await asyncio.sleep(0)
            started = time.monotonic()
    return results


async def for_each_in_thread(function: Callable[[T], None], items: AsyncIterable[T], batch_size: int) -> None:
    """Call a function for each item in a thread, one batch after the other, for work that takes long on large items."""
    batch: list[T] = []
    async for item in items:
        batch.append(item)
        if len(batch) == batch_size:
            await asyncio.to_thread(_call_for_each, function, batch)
            batch = []
    if batch:
        await asyncio.to_thread(_call_for_each, function, batch)


def _call_for_each(function: Callable[[T], None], items: Iterable[T]) -> None:
    for item in items:
        function(item)


async def run_fairly(chars: int, function: Callable[[], R]) -> R:
    """Call a function that works on a text with so many characters: in a thread if the text is long."""
    return await asyncio.to_thread(function) if chars > MAX_CHARS_AT_ONCE else function()
