"""Run batches of model work in a bounded number of threads, so that a query never waits for a long batch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Batch = TypeVar("Batch")

MAX_DEFAULT_THREADS = 4
MAX_BATCH_TOKENS = 512
"""A batch of this size fits into a core's cache with all activations. Larger ones are slower (measured: 512 tokens
8.0 ms for each text, 2,048 tokens 12.4 ms), and a query waits longer for them."""


def thread_count(configured: int) -> int:
    """Return the number of threads to use: `configured`, or for 0 one for each available CPU, up to 4."""
    if configured:
        return configured
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, MAX_DEFAULT_THREADS)


def plan_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield batches of text positions, longest text first, with little padding and a bounded number of tokens.

    `lengths` has the number of tokens of each text.
    """
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * lengths[batch[0]] > MAX_BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


class BatchThreadPool(Generic[Batch]):
    """Runs batches in threads. A call has at most one running batch for each thread, so concurrent calls alternate."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rem-embed")

    async def run(self, work: Callable[[Batch], None], batches: Iterable[Batch]) -> None:
        """Call `work` for every batch. The first failure ends the call and is raised."""
        remaining = iter(batches)
        runners = [asyncio.ensure_future(self._run_in_sequence(work, remaining)) for _ in range(self._threads)]
        try:
            await asyncio.gather(*runners)
        finally:
            for runner in runners:
                runner.cancel()

    async def _run_in_sequence(self, work: Callable[[Batch], None], remaining: Iterator[Batch]) -> None:
        loop = asyncio.get_running_loop()
        for batch in remaining:
            await loop.run_in_executor(self._pool, work, batch)

    async def close(self) -> None:
        """Wait for the running batches, and drop the others."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
