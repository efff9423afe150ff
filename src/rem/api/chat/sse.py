"""SseResponse: a stream of server-sent events that notices at once when nobody listens any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from starlette.responses import Response

from rem.api.disconnect import disconnected

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

PING = b": ping\n\n"
_PING_SECONDS = 15.0
_WAITING = 256
"""So many chunks may wait for a slow client before the model has to wait, too."""


class SseResponse(Response):
    """Sends what an iterator yields, several pieces at once if they are there, and a ping when it is quiet.

    Starlette's own response learns of a closed connection only when it sends the next piece: a model that thinks for
    a minute would think for nobody.
    """

    media_type = "text/event-stream"

    def __init__(
        self, pieces: AsyncGenerator[bytes], headers: Mapping[str, str], ping_seconds: float = _PING_SECONDS
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._pieces = pieces
        self._ping_seconds = ping_seconds
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, until it ends or the client goes away."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        producing = asyncio.create_task(self._produce())
        sending = asyncio.create_task(self._send(send))
        listening = asyncio.create_task(disconnected(receive))
        tasks = (producing, sending, listening)
        try:
            await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in (producing, sending):
            if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, OSError):
                raise error

    async def _produce(self) -> None:
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    await self._queue.put(piece)
        finally:
            with suppress(asyncio.QueueFull):
                self._queue.put_nowait(None)

    async def _send(self, send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(self._ping_seconds):
                    pieces = [await self._queue.get()]
            except TimeoutError:
                await send({"type": "http.response.body", "body": PING, "more_body": True})
                continue
            while not self._queue.empty():
                pieces.append(self._queue.get_nowait())
            body = b"".join(piece for piece in pieces if piece is not None)
            is_over = None in pieces
            await send({"type": "http.response.body", "body": body, "more_body": not is_over})
            if is_over:
                return
