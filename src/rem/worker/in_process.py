"""A worker inside a server, so that one command is enough. Whatever happens to it, the server goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from loguru import logger

from rem.errors import RemError

if TYPE_CHECKING:
    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.settings import Settings
    from rem.worker.worker import Worker

_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0


@asynccontextmanager
async def run_in_process_worker(rem: Rem | None, agents: Agents, settings: Settings) -> AsyncIterator[None]:
    """Do jobs as long as the block runs; not if WORKER__IN_PROCESS=false, nor on a database that can only be read."""
    if rem is None or not settings.worker.in_process or rem.database.server_info.is_replica:
        yield
        return
    keeper = _WorkerSupervisor(rem, agents, settings)
    task = asyncio.create_task(keeper.keep_working())
    try:
        yield
    finally:
        keeper.stop()
        await asyncio.wait([task])


class _WorkerSupervisor:
    """Runs a worker, and another one after it if it fails."""

    def __init__(self, rem: Rem, agents: Agents, settings: Settings) -> None:
        self._rem = rem
        self._agents = agents
        self._settings = settings
        self._worker: Worker | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End in bounded time; jobs that do not wait again."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.stop()

    async def keep_working(self) -> None:
        """Work until stopped. A failure is logged, and worked on after ever longer pauses."""
        pause = _PAUSE_SECONDS
        # pgqueuer takes a while to import, and requests need not wait for it.
        await asyncio.to_thread(import_module, "rem.worker.worker")
        while not self._stopped.is_set():
            began = asyncio.get_running_loop().time()
            try:
                await self._work()
            except RemError as error:
                logger.warning("The worker failed and starts again in {:.0f} s: {}", pause, error)
            except Exception:  # noqa: BLE001  # whatever it is, jobs must not wait for a restart of the server
                logger.exception("The worker failed in a way that it should not, and starts again in {:.0f} s.", pause)
            if asyncio.get_running_loop().time() - began > _LONGEST_PAUSE_SECONDS:
                pause = _PAUSE_SECONDS
            await self._wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _work(self) -> None:
        from rem.worker.worker import Worker

        self._worker = Worker(self._rem, self._agents, self._settings)
        if self._stopped.is_set():
            return
        await self._worker.run()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return
