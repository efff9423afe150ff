"""Run a worker inside `rem serve`. An error of the worker does not affect the server."""

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

FIRST_DELAY_SECONDS = 1.0
MAX_DELAY_SECONDS = 60.0


@asynccontextmanager
async def run_in_process_worker(rem: Rem | None, agents: Agents, settings: Settings) -> AsyncIterator[None]:
    """Run a worker during the block, unless WORKER__IN_PROCESS=false or the database is a replica."""
    if rem is None or not settings.worker.in_process or rem.database.server_info.is_replica:
        yield
        return
    supervisor = _WorkerSupervisor(rem, agents, settings)
    task = asyncio.create_task(supervisor.run())
    try:
        yield
    finally:
        supervisor.stop()
        await asyncio.wait([task])


class _WorkerSupervisor:
    """Runs a worker, and starts a new one when it fails."""

    def __init__(self, rem: Rem, agents: Agents, settings: Settings) -> None:
        self._rem = rem
        self._agents = agents
        self._settings = settings
        self._worker: Worker | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Stop the worker in bounded time. Unfinished jobs are queued again."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.stop()

    async def run(self) -> None:
        """Run workers until stopped. Log each failure, and restart with growing delays."""
        delay = FIRST_DELAY_SECONDS
        # Importing pgqueuer is slow. Requests do not wait for it.
        await asyncio.to_thread(import_module, "rem.worker.worker")
        while not self._stopped.is_set():
            started_at = asyncio.get_running_loop().time()
            try:
                await self._run_worker()
            except RemError as error:
                logger.warning("The worker failed and restarts in {:.0f} s: {}", delay, error)
            except Exception:  # noqa: BLE001  # jobs must not wait for a restart of the server
                logger.exception("The worker failed unexpectedly and restarts in {:.0f} s.", delay)
            if asyncio.get_running_loop().time() - started_at > MAX_DELAY_SECONDS:
                delay = FIRST_DELAY_SECONDS
            await self._sleep(delay)
            delay = min(delay * 2, MAX_DELAY_SECONDS)

    async def _run_worker(self) -> None:
        from rem.worker.worker import Worker

        self._worker = Worker(self._rem, self._agents, self._settings)
        if self._stopped.is_set():
            return
        await self._worker.run()

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return
