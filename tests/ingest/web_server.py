"""A web server on loopback that answers as a test tells it, including invalid answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeAlias

Answer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


class WebServer:
    """Answers each path with its entry in `answers`, else with 404."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        """The requested paths, with the headers."""
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.close()
        # From Python 3.12 on, the server waits for its connections, and a client may read an endless answer for hours.
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    @property
    def open(self) -> int:
        """Number of open connections."""
        return len(self._writers)

    async def wait_until_unused(self) -> None:
        """Wait until all clients have closed their connections."""
        async with asyncio.timeout(30):
            while self.open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
            }
            path = first.split()[1]
            self.requests.append((path, headers))
            await self.answers.get(path, page(404, b"nothing"))(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has closed the connection
        finally:
            self._writers.remove(writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def page(status: int, body: bytes, **headers: str) -> Answer:
    """Return an answer with a body."""
    lines = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}

    async def answer(writer: asyncio.StreamWriter) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"HTTP/1.1 {status} Said\r\n{head}Connection: close\r\n\r\n".encode() + body)

    return answer


def redirect(location: str, status: int = 302) -> Answer:
    """Return a redirect."""
    return page(status, b"", Location=location)


def endless(part: bytes, pause: float = 0.0, length: str | None = None) -> Answer:
    """Return an answer that never ends, whatever Content-Length it declares."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        size = f"Content-Length: {length}\r\n" if length else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{size}Connection: close\r\n\r\n".encode())
        while not writer.is_closing():
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return answer
