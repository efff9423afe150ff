"""MCP over HTTP, as a part of the API: stateless, so that any worker answers any request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from fastmcp.server.dependencies import get_http_request
from starlette.requests import Request
from starlette.routing import Route

from rem.context import AgentContext
from rem.mcp.server import create_mcp
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from fastmcp.server.http import StarletteWithLifespan
    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

MCP_PATH = "/api/v1/mcp"
EnvFactory: TypeAlias = Callable[[AgentContext], ToolEnv | Awaitable[ToolEnv]]
Authenticate: TypeAlias = Callable[[Request], AgentContext]


def create_mcp_app(
    env_of: EnvFactory,
    authenticate: Authenticate = AgentContext.from_request,
    *,
    path: str = MCP_PATH,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
) -> StarletteWithLifespan:
    """An application that serves MCP at `path`, for each request as the caller whom `authenticate` finds in it.

    Requests must name this machine, the address they came in by or an allowed host as their Host, and come from no
    other web page than an allowed one, so that a page in the user's browser cannot reach a server on this machine.
    """

    async def env() -> ToolEnv:
        found = env_of(authenticate(get_http_request()))
        return found if isinstance(found, ToolEnv) else await found

    return create_mcp(env).http_app(
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
) -> None:
    """Serve MCP at `path` of an application, with and without a slash at the end.

    `env_of` makes the environment of a call, when a request comes, so that it may read `app.state`:
    `mount_mcp(app, lambda context: app.state.agents.env_with_delegate(context))`. Who calls is what
    `AgentContext.from_request` says, with the state of `app`. The lifespan of MCP begins within the one that `app` was
    made with and ends before it: nothing else is to be done for that, if this comes before the application starts.
    """

    def authenticate(request: Request) -> AgentContext:
        # Inside, the application of a request is MCP's own.
        return AgentContext.from_request(Request({**request.scope, "app": app}))

    served = create_mcp_app(
        env_of, authenticate, path=path, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins
    )
    endpoint = _AtOnePath(served, path)
    app.router.routes += [
        Route(path, endpoint, include_in_schema=False),
        Route(f"{path}/", endpoint, include_in_schema=False),
    ]
    own = app.router.lifespan_context

    @asynccontextmanager
    async def both(outer: Any) -> AsyncIterator[Any]:
        async with own(outer) as state, served.router.lifespan_context(served):
            yield state

    app.router.lifespan_context = both


class _AtOnePath:
    """Passes requests on as if all had come without the slash: a redirect would lose their credentials."""

    def __init__(self, app: Starlette, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "path": self._path, "raw_path": self._path.encode()}, receive, send)
