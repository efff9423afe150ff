"""Serve MCP over HTTP as a part of the API. It is stateless: any worker can answer any request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from fastmcp.server.dependencies import get_http_request
from starlette.requests import Request
from starlette.routing import Route

from rem.context import AgentContext
from rem.mcp.scopes import ScopeMiddleware
from rem.mcp.server import create_mcp
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from fastmcp.server.http import StarletteWithLifespan
    from fastmcp.server.middleware import Middleware
    from starlette.applications import Starlette
    from starlette.types import Message, Receive, Scope, Send

MCP_PATH = "/api/v1/mcp"
MAX_QUEUED_MESSAGES = 16
"""Parts of a request body that are read ahead."""
DISCONNECT_GRACE_SECONDS = 0.5
EnvFactory: TypeAlias = Callable[[AgentContext], ToolEnv | Awaitable[ToolEnv]]
Authenticate: TypeAlias = Callable[[Request], AgentContext]


def create_mcp_app(
    env_of: EnvFactory,
    authenticate: Authenticate = AgentContext.from_request,
    *,
    path: str = MCP_PATH,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    middleware: Sequence[Middleware] = (),
) -> StarletteWithLifespan:
    """Return an application that serves MCP at `path`. `authenticate` returns the caller of a request.

    `middleware` runs for each call that the scopes of the caller allow.

    The Host header must name this machine, the address of the connection or one of `allowed_hosts`; the Origin, if any,
    must be one of `allowed_origins`. Otherwise a web page in the user's browser could reach a server on this machine.
    """

    async def env() -> ToolEnv:
        provided = env_of(authenticate(get_http_request()))
        return provided if isinstance(provided, ToolEnv) else await provided

    # The scopes are checked first: also before the user's answer to a question is carried out.
    return create_mcp(env, middleware=[ScopeMiddleware(), *middleware]).http_app(
        path=path,
        stateless_http=True,
        json_response=True,
        host_origin_protection=True,
        allowed_hosts=list(allowed_hosts) or None,
        allowed_origins=list(allowed_origins) or None,
    )


def mount_mcp(
    app: Starlette,
    env_of: EnvFactory,
    *,
    path: str = MCP_PATH,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    middleware: Sequence[Middleware] = (),
) -> None:
    """Serve MCP at `path` of `app`, with and without a trailing slash. Call it before the application starts.

    `env_of` is called for each request, so it can read `app.state`:
    `mount_mcp(app, lambda context: app.state.agents.env_with_delegate(context))`. The caller is that of
    `AgentContext.from_request`, with the state of `app`. The lifespan of MCP runs inside of the lifespan of `app`.
    """

    def authenticate(request: Request) -> AgentContext:
        # The request names MCP's own application, which has no state of REM.
        return AgentContext.from_request(Request({**request.scope, "app": app}))

    mcp_app = create_mcp_app(
        env_of,
        authenticate,
        path=path,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        middleware=middleware,
    )
    endpoint = _Endpoint(mcp_app, path)
    app.router.routes += [
        Route(path, endpoint, include_in_schema=False),
        Route(f"{path}/", endpoint, include_in_schema=False),
    ]
    own_lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def both_lifespans(outer: Any) -> AsyncIterator[Any]:
        async with own_lifespan(outer) as state, mcp_app.router.lifespan_context(mcp_app):
            yield state

    app.router.lifespan_context = both_lifespans


class _Endpoint:
    """Passes requests on, and cancels them when their client leaves.

    Requests are passed on without a trailing slash, because a redirect would lose their credentials. Without the
    cancellation, a model that a tool asks would go on without a reader.
    """

    def __init__(self, app: Starlette, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "path": self._path, "raw_path": self._path.encode()}
        messages: asyncio.Queue[Message] = asyncio.Queue(MAX_QUEUED_MESSAGES)

        async def forward_until_disconnect() -> None:
            while True:
                message = await receive()
                await messages.put(message)
                if message["type"] == "http.disconnect":
                    return

        work = asyncio.create_task(self._app(scope, messages.get, send))
        listener = asyncio.create_task(forward_until_disconnect())
        try:
            await asyncio.wait((work, listener), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                # A request that is almost done ends by itself: the queue tells it about the disconnect.
                await asyncio.wait((work,), timeout=DISCONNECT_GRACE_SECONDS)
        finally:
            for task in (work, listener):
                task.cancel()
            await asyncio.wait((work, listener))
        if listener.done() and not listener.cancelled():
            # The body is refused, such as one that is too large.
            listener.result()
        if not work.cancelled():
            work.result()
