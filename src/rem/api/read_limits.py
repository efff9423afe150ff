"""ASGI middleware that bounds what the reads of one caller cost the others."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.caller_turns import find_turns
from rem.api.errors import http_status, make_error_response
from rem.mcp.http import MCP_PATH
from rem.query.read_time import to_timeout_error

LIMITED_PREFIX = "/api/v1/"


class ReadLimitMiddleware:
    """Lets each GET of the API wait for a turn of its caller, and ends it after `max_seconds` or without its client.

    The time is that until the answer begins. MCP is not limited: a GET is a stream of events there.
    """

    def __init__(self, app: ASGIApp, max_seconds: float) -> None:
        self._app = app
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not _is_limited(scope):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        work = asyncio.create_task(self._serve(scope, exchange))
        listener = asyncio.create_task(exchange.listen())
        try:
            await asyncio.wait((work, listener), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not exchange.is_answered:
                raise ClientDisconnect
            await work
        finally:
            for task in (work, listener):
                task.cancel()
            await asyncio.wait((work, listener))

    async def _serve(self, scope: Scope, exchange: _Exchange) -> None:
        async with find_turns(scope):
            try:
                async with asyncio.timeout(self._max_seconds) as exchange.limit:
                    await self._app(scope, exchange.receive, exchange.send)
            except TimeoutError:
                if not exchange.limit.expired():
                    raise
                error = to_timeout_error(self._max_seconds)
                response = make_error_response(http_status(error), error.code, str(error))
                await response(scope, exchange.receive, exchange.send)


class _Exchange:
    """The messages of one request: notices when the answer begins and ends, and when the client disconnects."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        # One message: a body that nobody reads stays in the connection.
        self._received: asyncio.Queue[Message] = asyncio.Queue(1)
        self.limit = asyncio.timeout(None)
        self.is_answered = False

    async def listen(self) -> None:
        """Pass on the parts of the body. Return when the client has disconnected."""
        while (message := await self._receive())["type"] != "http.disconnect":
            await self._received.put(message)

    async def receive(self) -> Message:
        """Return the next part of the body. Never return after it: without its client, the request is cancelled."""
        return await self._received.get()

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start" and not self.limit.expired():
            self.limit.reschedule(None)
        # Before it is sent: the server reports a disconnect after a complete answer, too.
        self.is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


def _is_limited(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    path: str = scope["path"]
    return path.startswith(LIMITED_PREFIX) and not path.startswith(MCP_PATH)
