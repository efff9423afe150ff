"""A bound on the size of what a client may send."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import error_response


class BodyLimit:
    """Refuses bodies that are larger than `most_bytes`: at once if they say so, else when they become so.

    `by_path` has the paths that take more, or less.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, by_path: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._by_path = by_path or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._by_path.get(scope["path"], self._most_bytes)
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > most:
            await error_response(413, "body_too_large", _reason(most))(scope, receive, send)
            return
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, _reason(most))
            return message

        await self._app(scope, bounded, send)


def _reason(most: int) -> str:
    return f"The body is larger than {most:,} bytes, which is the most that one request may send."
