"""ASGI middleware that bounds what the requests of one caller cost the others."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.caller_turns import RunningCalls, find_turns
from rem.api.errors import to_error_response
from rem.auth.access import CHAT_PATHS, READING_POSTS
from rem.db.database import taking_turns
from rem.errors import TooManyChatsError, TooManyQueriesError
from rem.mcp.http import MCP_PATH
from rem.query.read_time import to_timeout_error

LIMITED_PREFIX = "/api/v1/"
EMBEDDING_PATHS = frozenset(("/api/v1/embeddings", "/v1/embeddings"))
QUERY_PATHS = frozenset(("/api/v1/query", "/api/v1/ask", *EMBEDDING_PATHS))
LONG_PATHS = (*CHAT_PATHS, MCP_PATH, *QUERY_PATHS, "/api/v1/files")
LONG_ENDINGS = ("/run", "/decision", "/actions")
"""POSTs that wait for a model or a worker. They take a turn each time that they use the database."""
AGENT_RUN_ENDINGS = ("/run", "/decision")


class CallerLimitMiddleware:
    """Lets each request of the API wait for a turn of its caller; one that waits for a model, each use of the database.

    It ends a request that only reads after `max_seconds`, if its answer has not begun, and when its client disconnects.
    It refuses chats, queries and calls of MCP beyond the limit of running ones.
    """

    def __init__(self, app: ASGIApp, max_seconds: float) -> None:
        self._app = app
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if not _is_limited(scope):
            await self._app(scope, receive, send)
            return
        if not _takes_turn(scope):
            with taking_turns(find_turns(scope)):
                await self._serve_long(scope, receive, send)
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

    async def _serve_long(self, scope: Scope, receive: Receive, send: Send) -> None:
        counter = _find_counter(scope)
        try:
            with nullcontext() if counter is None else counter.counted(scope):
                await self._app(scope, receive, send)
        except (TooManyChatsError, TooManyQueriesError) as error:
            await to_error_response(error)(scope, receive, send)

    async def _serve(self, scope: Scope, exchange: _Exchange) -> None:
        async with find_turns(scope):
            try:
                async with asyncio.timeout(self._max_seconds) as exchange.limit:
                    await self._app(scope, exchange.receive, exchange.send)
            except TimeoutError:
                if not exchange.limit.expired():
                    raise
                response = to_error_response(to_timeout_error(self._max_seconds))
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
    if scope["type"] != "http" or scope["method"] == "OPTIONS":
        return False
    path: str = scope["path"]
    return path.startswith(LIMITED_PREFIX) or path in CHAT_PATHS | EMBEDDING_PATHS


def _takes_turn(scope: Scope) -> bool:
    path: str = scope["path"]
    if scope["method"] == "GET":
        # A GET of MCP is a stream of events.
        return not path.startswith(MCP_PATH)
    return not path.startswith(LONG_PATHS) and not path.endswith(LONG_ENDINGS)


def _find_counter(scope: Scope) -> RunningCalls | None:
    """Return what counts the running requests of this kind; None for those without such a limit."""
    path: str = scope["path"]
    if scope["method"] != "POST":
        return None
    counter: RunningCalls
    if path in CHAT_PATHS or path.endswith(AGENT_RUN_ENDINGS):
        counter = scope["app"].state.running_chats
        return counter
    if path in QUERY_PATHS or path.rstrip("/") == MCP_PATH:
        counter = scope["app"].state.running_queries
        return counter
    return None


def _only_reads(scope: Scope) -> bool:
    return scope["method"] == "GET" or scope["path"] in READING_POSTS
