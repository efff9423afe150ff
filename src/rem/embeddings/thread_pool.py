"""Threads for models in this process: bounded, named, and one short batch at a time, so that a query need not wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Batch = TypeVar("Batch")

_MOST_BY_DEFAULT = 4


def thread_count(wanted: int) -> int:
    """How many threads to use: what was asked for, or one per CPU that this process may use, up to 4."""
    if wanted:
        return wanted
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, _MOST_BY_DEFAULT)


class BatchThreadPool(Generic[Batch]):
    """Runs batches in threads. Each call has at most one batch per thread under way, so calls take turns."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rem-embed")

    async def run(self, work: Callable[[Batch], None], batches: Iterable[Batch]) -> None:
        """Do the work of every batch; the first failure ends the call."""
        left = iter(batches)
        runners = [asyncio.ensure_future(self._run_in_turn(work, left)) for _ in range(self._threads)]
        try:
            await asyncio.gather(*runners)
        finally:
            for runner in runners:
                runner.cancel()

    async def _run_in_turn(self, work: Callable[[Batch], None], left: Iterator[Batch]) -> None:
        loop = asyncio.get_running_loop()
        for batch in left:
            await loop.run_in_executor(self._pool, work, batch)

    async def close(self) -> None:
        """Wait for what is running, drop the rest."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
