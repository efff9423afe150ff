"""ASGI middleware that finds out who calls, and puts the identity into `request.state.user`."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from rem.auth.headers import trust_headers
from rem.errors import InvalidInputError


class AuthMiddleware:
    """Sets `request.state.user` to the identity of the caller."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            state = scope.setdefault("state", {})
            try:
                state["user"] = trust_headers(Headers(scope=scope))
            except InvalidInputError:
                # The routes that need a caller raise the same error.
                state["user"] = None
        await self._app(scope, receive, send)
