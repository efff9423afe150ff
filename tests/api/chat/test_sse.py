"""The event stream sends pings, stops when the client leaves, and waits for a slow client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rem.api.sse import PING, SseResponse


class Client:
    """The other end of a response."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.leaves = asyncio.Event()
        self.delay = 0.0

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await asyncio.sleep(self.delay)
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def answer(response: SseResponse, client: Client) -> None:
    await asyncio.wait_for(response({"type": "http"}, client.receive, client.send), timeout=10)


async def test_idle_stream_sends_pings_and_continues() -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"one"
        await asyncio.sleep(0.25)
        yield b"two"

    client = Client()
    await answer(SseResponse(pieces(), {"X-Session-Id": "s"}, ping_seconds=0.1), client)
    assert client.body.replace(PING, b"") == b"onetwo"
    assert client.body.count(PING) == 2
    headers = dict(client.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"x-session-id"] == b"s"
    assert b"content-length" not in headers
    assert client.sent[-1]["more_body"] is False


async def test_disconnect_cancels_waiting_work() -> None:
    ended = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes]:
        try:
            yield b"one"
            await asyncio.sleep(60)
        finally:
            ended.set()

    client = Client()
    asyncio.get_running_loop().call_later(0.1, client.leaves.set)
    await answer(SseResponse(pieces(), {}), client)
    assert ended.is_set()


async def test_work_waits_for_a_slow_client() -> None:
    made = 0

    async def pieces() -> AsyncGenerator[bytes]:
        nonlocal made
        for _ in range(5000):
            made += 1
            yield b"."

    client = Client()
    client.delay = 0.05
    asyncio.get_running_loop().call_later(0.2, client.leaves.set)
    await answer(SseResponse(pieces(), {}), client)
    assert made < 5000


async def test_error_in_the_work_is_raised() -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"one"
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await answer(SseResponse(pieces(), {}), Client())


async def test_server_that_stops_ends_the_stream_with_an_event() -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"one"
        await asyncio.sleep(60)

    client = Client()
    answering = asyncio.create_task(
        answer(SseResponse(pieces(), {}, on_interruption=lambda _error: b"the end"), client)
    )
    await asyncio.sleep(0.05)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert client.body.endswith(b"onethe end")
