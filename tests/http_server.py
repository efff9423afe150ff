"""Serve an application on a real socket, in the event loop of the test or in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp


class _Server(uvicorn.Server):
    """A server that leaves the signals to pytest, and stops at once: uvicorn waits for 0.1 s twice or three times."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = threading.Event()

    @property
    def address(self) -> str:
        port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Stop the server, from any thread."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._stopped.set)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)
        self.is_listening.set()

    async def main_loop(self) -> None:
        # The first tick sets the headers of all answers.
        await self.on_tick(0)
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


@asynccontextmanager
async def serve_in_loop(app: ASGIApp, **options: Any) -> AsyncIterator[str]:
    """Serve an application in the event loop of the test, and yield its address."""
    server = _Server(_configure(app, **options))
    running = asyncio.create_task(server.serve())
    try:
        while not server.is_listening.is_set():
            assert not running.done(), "the application did not start"
            await asyncio.sleep(0.002)
        yield server.address
    finally:
        if server.is_listening.is_set():
            server.stop()
        await running


@contextmanager
def serve_in_thread(app: ASGIApp, **options: Any) -> Iterator[str]:
    """Serve an application in a thread, and yield its address."""
    server = _Server(_configure(app, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.is_listening.wait(60), "the application did not start"
    try:
        yield server.address
    finally:
        server.stop()
        thread.join(timeout=10)


def _configure(app: ASGIApp, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(app, port=0, log_config=None, access_log=False, **{"timeout_graceful_shutdown": 5, **options})
