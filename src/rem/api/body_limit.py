"""A bound on the size of what a client may send."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import error_response


class BodyLimit:
    """Refuses bodies that are larger than `most_bytes`: at once if they say so, else when they become so."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > self._most_bytes:
            await error_response(413, "body_too_large", self._reason)(scope, receive, send)
            return
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most_bytes:
                raise HTTPException(413, self._reason)
            return message

        await self._app(scope, bounded, send)

    @property
    def _reason(self) -> str:
        return f"The body is larger than {self._most_bytes:,} bytes, which is the most that one request may send."
