"""Check the scopes of the caller before a tool or a resource of MCP is used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import ResourceError, ToolError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import Middleware

from rem.auth.identity import READ, WRITE, Identity
from rem.tools.binding import get_traits
from rem.tools.registry import TOOLS

if TYPE_CHECKING:
    from fastmcp.server.middleware import CallNext, MiddlewareContext


class ScopeMiddleware(Middleware):
    """Refuses what the caller's token or key does not allow: tools that change something need the scope `write`."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Run a tool if the caller may."""
        needed = get_tool_scope(context.message.name)
        if needed not in _get_scopes(needed):
            raise ToolError(
                f"{context.message.name} needs a login with the scope {needed}: this token or key does not have it.",
                log_level=logging.DEBUG,
            )
        return await call_next(context)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Read a resource if the caller may."""
        if READ not in _get_scopes(READ):
            raise ResourceError("This needs the scope read: the token or key does not have it.")
        return await call_next(context)


def get_tool_scope(name: str) -> str:
    """Return the scope that a tool needs. An unknown tool needs the stronger one."""
    function = TOOLS.get(name)
    return READ if function is not None and get_traits(function).is_read_only else WRITE


def _get_scopes(default: str) -> frozenset[str]:
    """Return the scopes of the caller. A server without authentication middleware allows everything."""
    identity = getattr(get_http_request().state, "user", None)
    return identity.scopes if isinstance(identity, Identity) else frozenset((default,))
