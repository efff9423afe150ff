"""Bound what a provider of language models can send at once: a line without an end would fill the memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2

from rem.errors import ModelError

MAX_LINE_BYTES = 16_000_000
"""A line of a stream has a few kilobytes. An answer without streaming is one line."""


def bound_response_lines(client: Any) -> None:
    """Let the HTTP client inside of a provider's client refuse lines of more than MAX_LINE_BYTES."""
    http_client = getattr(client, "_client", None)
    if isinstance(http_client, httpx2.AsyncClient):
        hooks = http_client.event_hooks
        http_client.event_hooks = {**hooks, "response": [*hooks["response"], _bound_lines]}


async def _bound_lines(response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    """Passes a body on as it arrives, and raises ModelError in a line that is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        line_bytes = 0
        async for chunk in self._stream:
            end = chunk.rfind(b"\n")
            line_bytes = line_bytes + len(chunk) if end < 0 else len(chunk) - end - 1
            if line_bytes > MAX_LINE_BYTES:
                raise ModelError(
                    f"The provider sent a line of more than {MAX_LINE_BYTES // 1_000_000} MB: check LLM__BASE_URL, or "
                    "choose another model."
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
