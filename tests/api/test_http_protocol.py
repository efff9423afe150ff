"""ProtectedHttpProtocol: requests that two programs could read differently, and connections that never end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from rem.api.http_protocol import MAX_HEADER_BYTES, MAX_PIPELINED_REQUESTS, ProtectedHttpProtocol
from rem.settings import get_settings
from tests.api.live_server import served

HEAD = b"GET /a HTTP/1.1\r\nHost: rem\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: rem\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
MAX_SECONDS = 30
LARGE = 20_000_000


@dataclass
class EchoApp:
    """Answers with the path and the body. `/wait` waits for the end of the connection, `/large` answers with much."""

    scopes: list[Scope] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.scopes.append(scope)
        body = b"x" * LARGE if scope["path"] == "/large" else scope["path"].encode()
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body") and scope["path"] != "/wait":
                break
        if scope["path"] == "/wait":
            self.left.set()
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short times, and few connections."""
    monkeypatch.setenv("API__HEADER_SECONDS", "1")
    monkeypatch.setenv("API__BODY_SECONDS", "2")
    monkeypatch.setenv("API__MAX_CONNECTIONS_PER_ADDRESS", "5")
    get_settings.cache_clear()
    yield
    monkeypatch.undo()
    get_settings.cache_clear()


@pytest.fixture
def app() -> EchoApp:
    return EchoApp()


@pytest.fixture
async def port(limits: None, app: EchoApp) -> AsyncIterator[int]:
    async with served(app) as address:
        yield int(address.rsplit(":", 1)[1])


async def connect(port: int, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, **options)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(MAX_SECONDS):
        while not condition():  # noqa: ASYNC110  # only the protocol knows
            await asyncio.sleep(0.01)


async def exchange(port: int, *parts: bytes, pause: float = 0.1) -> bytes:
    """Send parts one after the other, and return everything until the server closes the connection."""
    reader, writer = await connect(port)
    reading = asyncio.create_task(reader.read())
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause)
            if reading.done():
                break
        async with asyncio.timeout(MAX_SECONDS):
            return await reading
    except ConnectionError:
        return b"(closed)"
    finally:
        writer.close()


@pytest.mark.parametrize(
    "second",
    [
        *(b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding: xchunked"),
        *(b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: identity"),
        *(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow", b"X: y\r\n Transfer-Encoding: chunked"),
        *(b"X: y\nTransfer-Encoding: chunked", b"Transfer-Encoding: \x0bchunked", b"Content-Length: 6"),
        *(b"Content-Length : 6", b"Content-Length: 5, 5", b"Content-Length: +5"),
    ],
)
async def test_body_with_two_lengths_is_refused(port: int, app: EchoApp, second: bytes) -> None:
    answer = await exchange(port, POST + b"Content-Length: 5\r\n" + second + b"\r\n\r\n0\r\n\r\n" + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert not any(scope["method"] == "GET" for scope in app.scopes)


@pytest.mark.parametrize(
    "body", [b"5\n01234\n0\n\n", b"fffffffffffffffff\r\n0", b"5\r\n0123456\r\n0\r\n\r\n", b"-1\r\n"]
)
async def test_chunks_that_are_none_are_refused(port: int, app: EchoApp, body: bytes) -> None:
    answer = await exchange(port, CHUNKED + body + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not any(scope["method"] == "GET" for scope in app.scopes)


async def test_offer_of_another_protocol_is_ignored(port: int) -> None:
    offer = POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 19\r\n\r\n"
    # Some parsers end such a request after its headers, and would take the body for the next one.
    answer = await exchange(port, offer, b"GET /hidden HTTP/1.", HEAD + b"Connection: close\r\n\r\n")
    assert [part[-21:] for part in answer.split(b"HTTP/1.1 200 OK")[1:]] == [b"/aGET /hidden HTTP/1.", answer[-21:]]
    assert answer.endswith(b"\r\n\r\n/a")


async def test_offer_of_another_protocol_in_two_parts_is_refused(port: int, app: EchoApp) -> None:
    rest = b"ade: h2c\r\nContent-Length: 5\r\n\r\n"
    answer = await exchange(port, POST + b"Connection: Upgrade\r\nUpgr", rest + HEAD)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"without the header Upgrade" in answer
    assert not app.scopes


async def test_headers_after_the_body_name_nobody(port: int, app: EchoApp) -> None:
    after = b"0\r\nX-User-Id: victim@example.com\r\nConnection: close\r\n\r\n"
    await exchange(port, CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + after)
    assert [name for name, _ in app.scopes[0]["headers"]] == [b"host", b"transfer-encoding", b"connection"]


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (b"GET /", b"a" * 1000),
        (HEAD + b"x: ", b"a" * 1000),
        (HEAD + b"x", b"a" * 1000),
        (HEAD, b"a: b\r\n" * 200),
        (CHUNKED + b"5;", b"a" * 1000),
        (CHUNKED + b"1\r\n \r\n0\r\n", b"a: b\r\n" * 200),
    ],
    ids=["first line", "value", "name", "number", "chunk extension", "after the body"],
)
async def test_headers_are_bounded(port: int, start: bytes, part: bytes) -> None:
    times = 2 * MAX_HEADER_BYTES // len(part)
    at_once, in_parts = await asyncio.gather(
        exchange(port, start + part * times), exchange(port, start, *[part] * times, pause=0.001)
    )
    for answer in (at_once, in_parts):
        assert answer.startswith((b"HTTP/1.1 431 ", b"(closed)"))


async def test_body_in_small_chunks_is_read(port: int) -> None:
    closing = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = await exchange(port, closing + b"1\r\nb\r\n" * 30_000 + b"0\r\n\r\n")
    assert answer.endswith(b"/a" + b"b" * 30_000)


async def test_few_requests_may_wait_and_many_are_refused(port: int, app: EchoApp) -> None:
    last = b"GET /last HTTP/1.1\r\nHost: rem\r\nConnection: close\r\n\r\n"
    answer = await exchange(port, (HEAD + b"\r\n") * 20 + last)
    assert answer.count(b"HTTP/1.1 200") == 21
    assert answer.endswith(b"/last")
    app.scopes.clear()
    answer = await exchange(port, (HEAD + b"\r\n") * 1000)
    assert answer.startswith((b"HTTP/1.1 429 ", b"(closed)"))
    assert len(app.scopes) <= MAX_PIPELINED_REQUESTS


async def test_running_request_learns_that_its_client_has_gone_although_others_wait(port: int, app: EchoApp) -> None:
    _, writer = await connect(port)
    writer.write(b"GET /wait HTTP/1.1\r\nHost: rem\r\n\r\n" + HEAD + b"\r\n")
    await wait_until(lambda: bool(app.scopes))
    writer.close()
    async with asyncio.timeout(MAX_SECONDS):
        await app.left.wait()


@pytest.mark.parametrize(
    ("start", "part", "answer"),
    [
        (b"", b"", b""),
        (HEAD, b"a: b\r\n", b"HTTP/1.1 408 "),
        (HEAD + b"\r\n", b"\r\n", b"HTTP/1.1 200 "),
        (b"POST /wait HTTP/1.1\r\nHost: rem\r\nContent-Length: 1\r\n\r\n \r\n", b"\r\n", b"(open)"),
    ],
    ids=["nothing", "slow headers", "empty lines after an answer", "a request that runs"],
)
async def test_connection_waits_for_headers_for_a_limited_time(
    port: int, start: bytes, part: bytes, answer: bytes
) -> None:
    sending = exchange(port, start, *[part] * 40, pause=0.2)
    if answer == b"(open)":
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sending, 4)
        return
    started = time.monotonic()
    assert (await sending).startswith(answer)
    assert time.monotonic() - started < 7.5


async def test_answer_that_nobody_reads_ends(port: int) -> None:
    reader, writer = await connect(port, limit=1000)
    writer.write(b"GET /large HTTP/1.1\r\nHost: rem\r\nConnection: close\r\n\r\n")
    assert (await reader.read(12)) == b"HTTP/1.1 200"
    await wait_until(lambda: not ProtectedHttpProtocol.connections_by_network)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(LARGE)
    writer.close()


async def test_address_has_a_limited_number_of_connections(port: int) -> None:
    opened = [await connect(port) for _ in range(5)]
    answer = await exchange(port)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"too many open connections" in answer
    # Another address is not affected.
    reader, writer = await connect(port, local_addr=("127.0.0.2", 0))
    writer.write(HEAD + b"Connection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"/a")
    for _, opened_writer in opened:
        opened_writer.close()
    await wait_until(lambda: not ProtectedHttpProtocol.connections_by_network)
    assert (await exchange(port, HEAD + b"Connection: close\r\n\r\n")).endswith(b"/a")
    writer.close()


async def test_proxies_of_the_operator_have_any_number_of_connections(
    limits: None, monkeypatch: pytest.MonkeyPatch, app: EchoApp
) -> None:
    monkeypatch.setenv("API__TRUSTED_PROXIES", '["127.0.0.0/8"]')
    get_settings.cache_clear()
    async with served(app) as address:
        port = int(address.rsplit(":", 1)[1])
        opened = [await connect(port) for _ in range(10)]
        assert (await exchange(port, HEAD + b"Connection: close\r\n\r\n")).endswith(b"/a")
        for _, writer in opened:
            writer.close()
