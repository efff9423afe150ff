"""A real HTTP server on loopback that returns scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[[Any], object]


@dataclass(frozen=True)
class Reply:
    """One scripted answer: JSON made from the request's body, or raw bytes. None closes the connection."""

    answer: Answer | bytes | None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0


@dataclass(frozen=True)
class Request:
    """One request of the client."""

    path: str
    headers: Mapping[str, str]
    body: Any


class ScriptedServer:
    """Answers each request with the next reply of its script. The last reply is repeated."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.choose: Callable[[Request], Reply] | None = None
        """Returns the answer to a request, instead of the script."""
        self.requests: list[Request] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The address of the server."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def set_script(self, *replies: Reply) -> None:
        """Set the script."""
        self.script = list(replies)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            self.requests.append(request)
            reply = self.choose(request) if self.choose else self.script[min(len(self.requests), len(self.script)) - 1]
            await asyncio.sleep(reply.delay)
            if reply.answer is not None:
                writer.write(_response(reply, request))
                await writer.drain()
        except ConnectionError:
            pass  # a client that lost its patience
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split()[1], headers, json.loads(body))


def _response(reply: Reply, request: Request) -> bytes:
    body = reply.answer(request.body) if callable(reply.answer) else reply.answer
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Length": str(len(content)), "Connection": "close", **reply.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Said\r\n{head}\r\n".encode() + content
