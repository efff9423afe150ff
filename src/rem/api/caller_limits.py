"""ASGI middleware that bounds what the requests of one caller cost the others."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.caller_turns import find_turns
from rem.api.errors import http_status, make_error_response
from rem.auth.access import CHAT_PATHS, READING_POSTS
from rem.mcp.http import MCP_PATH
from rem.query.read_time import to_timeout_error

LIMITED_PREFIX = "/api/v1/"
LONG_PATHS = (*CHAT_PATHS, MCP_PATH, "/api/v1/query", "/api/v1/embeddings", "/api/v1/files")
LONG_ENDINGS = ("/run", "/decision", "/actions")
"""POSTs that wait for a model or a worker. They take their turn, if at all, when they use the database."""


class CallerLimitMiddleware:
    """Lets each request of the API wait for a turn of its caller, except those that wait for a model.

    It ends a request that only reads after `max_seconds`, if its answer has not begun, and when its client disconnects.
    """

    def __init__(self, app: ASGIApp, max_seconds: float) -> None:
        self._app = app
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not _takes_turn(scope):
            await self._app(scope, receive, send)
            return
        if not _only_reads(scope):
            async with find_turns(scope):
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


def _takes_turn(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] == "OPTIONS" or not scope["path"].startswith(LIMITED_PREFIX):
        return False
    path: str = scope["path"]
    if scope["method"] == "GET":
        # A GET of MCP is a stream of events.
        return not path.startswith(MCP_PATH)
    return not path.startswith(LONG_PATHS) and not path.endswith(LONG_ENDINGS)


def _only_reads(scope: Scope) -> bool:
    return scope["method"] == "GET" or scope["path"] in READING_POSTS
