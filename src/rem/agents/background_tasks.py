"""BackgroundTasks: work that continues after an answer was sent, and that a server waits for when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from loguru import logger

T = TypeVar("T")
MAX_CLOSE_SECONDS = 15.0
POLL_SECONDS = 0.01


class BackgroundTasks:
    """Tracks the running answers and the tasks that they start."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running_answers = 0

    @contextmanager
    def track_answer(self) -> Iterator[None]:
        """Count an answer as running inside of the block, because it may start a task when it ends."""
        self._running_answers += 1
        try:
            yield
        finally:
            self._running_answers -= 1

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that continues even if its caller is cancelled, and return it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A background task failed: {}", type(error).__name__)

    async def close(self) -> None:
        """Wait until all answers and tasks have ended, for at most MAX_CLOSE_SECONDS."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + MAX_CLOSE_SECONDS
        while (self._tasks or self._running_answers) and loop.time() < deadline:
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=deadline - loop.time())
            else:
                await asyncio.sleep(POLL_SECONDS)
