"""Serve an application on a real socket, in the event loop of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2
from starlette.types import ASGIApp

from rem.api.http_protocol import ProtectedHttpProtocol
from tests.http_server import serve_in_loop


def served(app: ASGIApp) -> AbstractAsyncContextManager[str]:
    """Serve an application as `rem serve` does, and yield its address."""
    # The application itself decides which proxies it trusts.
    return serve_in_loop(app, proxy_headers=False, http=ProtectedHttpProtocol, ws="none", lifespan="on")


@asynccontextmanager
async def client(address: str, user: str | None = None, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client with the headers of a user."""
    named = {"X-User-Id": user} if user else {}
    async with httpx2.AsyncClient(base_url=address, headers={**named, **headers}, timeout=30) as opened:
        yield opened
