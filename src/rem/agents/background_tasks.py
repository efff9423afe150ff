"""Afterwards: what is still to be done when an answer is out, and a server that waits for it before it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from loguru import logger

T = TypeVar("T")
_LONGEST_WAIT_SECONDS = 15.0


class BackgroundTasks:
    """Knows the answers that are being given and the work that they leave behind."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._answers = 0

    @contextmanager
    def track_answer(self) -> Iterator[None]:
        """While an answer is given: at its end it may leave work behind, however it ends."""
        self._answers += 1
        try:
            yield
        finally:
            self._answers -= 1

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something that goes on even if whoever waits for it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("What was to be done after an answer failed: {}", type(error).__name__)

    async def close(self) -> None:
        """Wait until all is done, but not for ever."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _LONGEST_WAIT_SECONDS
        while (self._tasks or self._answers) and loop.time() < ends:
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=ends - loop.time())
            else:
                await asyncio.sleep(0.01)
