"""Serve an application on a real socket, in the event loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2
import uvicorn
from starlette.types import ASGIApp

from rem.api.http_protocol import ProtectedHttpProtocol


class _Server(uvicorn.Server):
    """A server that leaves the signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an application, and yield its address."""
    config = uvicorn.Config(
        app,
        port=0,
        log_config=None,
        access_log=False,
        # As `rem serve`: the application itself decides which proxies it trusts.
        proxy_headers=False,
        http=ProtectedHttpProtocol,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=5,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not running.done(), "the application did not start"
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def client(address: str, user: str | None = None, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client with the headers of a user."""
    named = {"X-User-Id": user} if user else {}
    async with httpx2.AsyncClient(base_url=address, headers={**named, **headers}, timeout=30) as opened:
        yield opened
