"""A chat with the memory of a REM server, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx2 as httpx
from pydantic import TypeAdapter, ValidationError

from rem.cli.chat.connection import MessageLine, NamedChoice, OutgoingMessage, SessionLine
from rem.errors import InvalidInputError, NotFoundError, RemError
from rem.events import AnyEvent, ErrorEvent, Event, NamedEvent, TextEvent
from rem.models.results import Result

if TYPE_CHECKING:
    from rem.context import AgentContext

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
"""A server sends a ping every 15 seconds, so a longer silence means that it is gone."""
MAX_PAGE_ROWS = 500
MAX_RESPONSE_BYTES = 64 * 2**20
"""A response or an answer that is longer does not end, or comes from something else than REM."""
DONE = "[DONE]"
"""The last line of a stream."""
_NAMED_EVENTS: TypeAdapter[NamedEvent] = TypeAdapter(NamedEvent)
Value = TypeVar("Value")


class ServerError(RemError):
    """The server refused a request, failed, or cannot be reached."""

    code = "server_error"
    exit_code = 1


class RemoteConnection:
    """A `ChatConnection` to a REM server."""

    def __init__(self, client: httpx.AsyncClient, context: AgentContext, user: str | None) -> None:
        self._client = client
        self._context = context
        self._user = user

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, api_key: str | None, context: AgentContext, user: str | None
    ) -> AsyncIterator[RemoteConnection]:
        """Check that the server answers, and yield a connection."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidInputError(f"--url needs an address such as https://rem.example.com, not {url!r}.")
        headers = {"X-Tenant-Id": context.tenant_id, "X-Client-Id": "cli"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        if user and not api_key:
            headers["X-User-Id"] = user
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        base = f"{url.rstrip('/').removesuffix('/api/v1').removesuffix('/v1')}/api/v1/"
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=timeout) as client:
            connection = cls(client, context, user)
            await connection.list_models()
            yield connection

    async def send(self, message: OutgoingMessage) -> AsyncGenerator[AnyEvent]:
        """Store a message and yield the events of the answer. Closing the generator stops the answer."""
        body: dict[str, Any] = {"stream": True, "messages": [{"role": "user", "content": message.text}]}
        if message.model:
            body["model"] = message.model
        if message.card_answer is not None:
            body["action_submit"] = message.card_answer.model_dump()
        headers = {"X-Session-Id": message.session, "X-Agent-Schema": message.agent}
        request = self._client.build_request(
            "POST", "chat/completions", json=body, headers={name: value for name, value in headers.items() if value}
        )
        with _name_server(self._client):
            response = await self._client.send(request, stream=True)
            try:
                await _check(response)
                is_complete = False
                async for name, data in _read_events(response):
                    is_complete = data == DONE
                    event = _understand(partial(_to_event, name, data))
                    if event is not None:
                        yield event
                if not is_complete:
                    raise ServerError("The server closed the connection before the end of the answer: ask again.")
            finally:
                await response.aclose()

    async def query(self, text: str) -> Result:
        """Run a query in REM's query language."""
        return await self._load("POST", "query", Result.from_json, {"query": text, "mode": "rem-dialect"})

    async def ask_memory(self, question: str) -> Result:
        """Return what the memory says to a question in plain words."""
        return await self._load("POST", "query", Result.from_json, {"query": question, "mode": "natural-language"})

    async def load_profile(self) -> dict[str, Any] | None:
        """Return the user's row in `users`, or None."""
        address = str(self._client.base_url).removesuffix("v1/") + "auth/me"
        user_id, email = await self._load("GET", address, lambda caller: (caller["id"], caller["email"]))
        for name in filter(None, (email, self._user, user_id)):
            found = await self.query(f"LOOKUP {json.dumps(f'users/{name}')}")
            for hit in found.hits:
                # Rows that others wrote about the user are not the profile.
                if hit.record.get("user_id") == user_id:
                    return hit.record
        return None

    async def list_sessions(self, limit: int) -> Sequence[SessionLine]:
        """Return the user's sessions, the most recently used first."""
        return await self._load("GET", f"sessions?limit={limit}", _read_page(_to_session))

    async def find_session(self, name: str) -> SessionLine:
        """Return a session by its id or name. Raise NotFoundError if there is none."""
        try:
            return await self._load("GET", f"sessions/{quote(name, safe='')}", _to_session)
        except NotFoundError as error:
            raise NotFoundError(f"There is no session {name!r}: /sessions lists yours.") from error

    async def list_messages(self, session: str) -> Sequence[MessageLine]:
        """Return all messages of a session in order."""
        lines: list[MessageLine] = []
        after = -1
        while True:
            path = f"sessions/{session}/messages?limit={MAX_PAGE_ROWS}&after={after}"
            page = await self._load("GET", path, _read_page(lambda row: (_to_message(row), int(row["message_index"]))))
            lines += [line for line, _ in page]
            if len(page) < MAX_PAGE_ROWS:
                return lines
            after = page[-1][1]

    async def rename_session(self, session: str, name: str) -> None:
        """Give a session a name."""
        await self._load("PATCH", f"sessions/{session}", _ignore, {"name": name})

    async def start_over(self, session: str) -> int:
        """Leave the messages so far out of what models are given. Return how many they are."""
        return await self._load("POST", f"sessions/{session}/start-over", lambda left: int(left["left_out"]))

    async def delete_session(self, session: str) -> None:
        """Delete a session with its messages."""
        await self._load("DELETE", f"sessions/{session}", _ignore)

    async def rate(self, message_key: str, rating: int, comment: str | None) -> None:
        """Store a rating of an answer."""
        body = {"message_id": message_key, "rating": rating} | ({"comment": comment} if comment else {})
        await self._load("POST", "feedback", _ignore, body)

    async def list_agents(self) -> Sequence[NamedChoice]:
        """Return the agents that the user can talk to."""
        return await self._load(
            "GET", "agents", _read_page(lambda row: NamedChoice(row["name"], row.get("description") or ""))
        )

    async def list_models(self) -> Sequence[NamedChoice]:
        """Return the models that can answer."""
        return await self._load(
            "GET", "models", _read_page(lambda row: NamedChoice(row["id"], row.get("description") or ""))
        )

    async def check_model(self, name: str) -> None:
        """Accept every name: the server checks it when it answers."""

    def describe(self) -> str:
        """Return where the memory is, for the first line of the chat."""
        return f"the server at {self._client.base_url.netloc.decode()}"

    async def _load(
        self, method: str, path: str, read: Callable[[Any], Value], body: Mapping[str, Any] | None = None
    ) -> Value:
        """Send a request, and return what `read` makes of the JSON of the response."""
        with _name_server(self._client):
            async with self._client.stream(method, path, json=body) as response:
                await _check(response)
                content = await _read_all(response)
        return _understand(lambda: read(json.loads(content) if content else None))


class _name_server:  # noqa: N801  # reads as a statement
    """Turns errors of the network into one that names the server and says what to do."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._address = str(client.base_url)

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise ServerError instead of an error of the network."""
        if isinstance(error, httpx.HTTPError):
            reason = str(error) or type(error).__name__
            raise ServerError(f"The server at {self._address} does not answer ({reason}): is it running?") from error


async def _check(response: httpx.Response) -> None:
    """Raise an error with the server's own text if it refused the request."""
    if response.is_success:
        return
    content = await _read_all(response)
    try:
        text = str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = f"The server answered with status {response.status_code}: is this the address of a REM server?"
    if response.status_code == 401:
        text += " Give an API key: --api-key, or REM_API_KEY (`rem keys create` on the server makes one)."
    if response.status_code in (400, 422):
        raise InvalidInputError(text)
    raise NotFoundError(text) if response.status_code == 404 else ServerError(text)


async def _read_all(response: httpx.Response) -> bytes:
    """Return the content of a response. Raise ServerError if it does not end."""
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        _check_size(len(content))
    return bytes(content)


async def _read_lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the lines of a stream. Raise ServerError if it does not end."""
    size, rest = 0, bytearray()
    async for part in response.aiter_bytes():
        size += len(part)
        _check_size(size)
        rest += part
        if b"\n" in part:
            *lines, last = rest.split(b"\n")
            rest = bytearray(last)
            for line in lines:
                yield line.decode(errors="replace").rstrip("\r")
    yield rest.decode(errors="replace")


def _check_size(size: int) -> None:
    if size > MAX_RESPONSE_BYTES:
        raise ServerError(f"The server sends more than {MAX_RESPONSE_BYTES // 2**20} MB: is it a REM server?")


def _understand(read: Callable[[], Value]) -> Value:
    """Return what `read` makes of a response. Raise ServerError if it is not what a REM server sends."""
    try:
        return read()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ServerError(
            "The server sent something that REM does not understand: is this the address of a REM server?"
        ) from error


async def _read_events(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """Yield the name and the data of each server-sent event. An event without a name is an OpenAI chunk."""
    name = ""
    async for line in _read_lines(response):
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, value
            name = ""


def _to_event(name: str, data: str) -> AnyEvent | None:
    """Return the event of a chunk; None for a chunk without text, and for events of a newer server."""
    if data == DONE:
        return None
    fields = json.loads(data)
    if not name:
        choices = fields.get("choices") or [{}]
        content = choices[0].get("delta", {}).get("content")
        return TextEvent(content=content) if content else None
    model = {event.model_fields["type"].default: event for event in Event.__subclasses__()}.get(name)
    if model is None:
        return None
    known = {field: value for field, value in fields.items() if field in model.model_fields}
    try:
        return _NAMED_EVENTS.validate_python(model.model_validate(known))
    except ValidationError as error:
        return ErrorEvent(code="invalid_event", message=f"The server sent an event that is not understood: {error}")


def _read_page(read: Callable[[Any], Value]) -> Callable[[Any], list[Value]]:
    """Return a function that reads each row of a page."""
    return lambda page: [read(row) for row in page["data"]]


def _ignore(_response: Any) -> None:
    """Read nothing of a response: its status says all."""


def _to_session(row: Mapping[str, Any]) -> SessionLine:
    title = row.get("title") or row.get("name") or ""
    written_at = datetime.fromisoformat(row["updated_at"])
    return SessionLine(str(row["id"]), str(title), written_at, int(row["message_count"]), row.get("name"))


def _to_message(row: Mapping[str, Any]) -> MessageLine:
    written_at = datetime.fromisoformat(row["created_at"])
    return MessageLine(row["key"], row["role"], str(row["content"] or ""), written_at, row.get("tool_name"))
