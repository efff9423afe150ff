"""Serve MCP over real HTTP in tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from rem import Rem
from rem.agents.catalog import AgentCatalog
from rem.context import AgentContext
from rem.mcp.http import mount_mcp
from rem.settings import Settings
from rem.tools.env import ToolEnv
from tests.http_server import serve_in_loop


def app_for(rem: Rem | None, settings: Settings, *, trusts_headers: bool = True) -> FastAPI:
    """Return an application whose callers identify themselves by headers."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.agents = AgentCatalog(settings, rem)
        yield

    def env(context: AgentContext) -> ToolEnv:
        return ToolEnv(context, rem, agents=app.state.agents)

    app = FastAPI(lifespan=lifespan, redirect_slashes=False)
    app.state.trusts_headers = trusts_headers
    mount_mcp(app, env, allowed_origins=["https://app.example.com"])

    @app.get("/hello")
    async def hello() -> str:
        return "hello"

    return app


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """Serve the application, and yield the address of MCP."""
    async with serve_in_loop(app, lifespan="on") as address:
        yield f"{address}/api/v1/mcp"


def client_of(url: str, user: str | None = None, **headers: str) -> Client[Any]:
    """Return an MCP client of `user`."""
    user_header = {"X-User-Id": user} if user else {}
    return Client(StreamableHttpTransport(url, headers={**user_header, **headers}))
