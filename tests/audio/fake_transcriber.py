"""A transcription service on loopback with scripted answers."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Recording:
    """The request of the client."""

    path: str
    headers: Mapping[str, str]
    fields: Mapping[str, bytes]
    filename: str | None


class Transcriber:
    """Answers every recording with the same text, or with a given status and body."""

    def __init__(self, text: str = "Hello", status: int = 200, body: bytes | None = None, delay: float = 0) -> None:
        self.requests: list[Recording] = []
        self._body = json.dumps({"text": text}).encode() if body is None else body
        self._status = status
        self._delay = delay

    async def __aenter__(self) -> Transcriber:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Return the address of the service."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await _read(reader))
            await asyncio.sleep(self._delay)
            head = f"HTTP/1.1 {self._status} Said\r\nContent-Length: {len(self._body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + self._body)
            await writer.drain()
        except ConnectionError:
            pass  # a client that lost its patience
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Recording:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers["content-length"]))
    form = email.message_from_bytes(
        f"Content-Type: {headers['content-type']}\r\n\r\n".encode() + body, policy=email.policy.HTTP
    )
    parts = {str(part.get_param("name", header="content-disposition")): part for part in form.iter_parts()}
    fields = {name: bytes(part.get_payload(decode=True)) for name, part in parts.items()}
    return Recording(first.split()[1], headers, fields, parts["file"].get_filename())
