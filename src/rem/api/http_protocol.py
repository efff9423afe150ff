"""The HTTP protocol of `rem serve`: what a connection may send and hold before anyone knows who calls.

uvicorn itself waits for the headers of a request without end, keeps all of them in memory however many there are, keeps
an answer that its client does not read, and accepts any number of connections of one address.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from ipaddress import ip_address, ip_network
from typing import Any, ClassVar, NoReturn

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from rem.api.middleware import MIN_BODY_BYTES_PER_SECOND
from rem.api.rate_limit import find_network
from rem.settings import get_settings

MAX_HEADER_BYTES = 64_000
"""Of the first line and the headers of a request, and of what encloses the parts of a body, such as chunk sizes."""
MAX_FRAMING_PER_BODY_BYTE = 10
"""A body in chunks of one byte has five bytes around each."""
MAX_PIPELINED_REQUESTS = 32
WATCH_SECONDS = 1.0
_TOO_LARGE = (431, f"The first line and the headers of a request may have {MAX_HEADER_BYTES:,} bytes.")
_TOO_MANY_REQUESTS = (429, f"At most {MAX_PIPELINED_REQUESTS} requests may wait on one connection.")
_TOO_MANY_CONNECTIONS = (503, "Your address has too many open connections: close some of them.")
_NO_UPGRADE = (400, "REM does not change to another protocol: send the request without the header Upgrade.")
_TOO_SLOW = (408, "The headers of the request arrive too slowly: send it again.")
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class RefusedRequestError(Exception):
    """Stops the parser of a connection that exceeds a limit."""


class ProtectedHttpProtocol(HttpToolsProtocol):
    """Serves one connection, with limits on its headers, on the time that it waits, and on their number."""

    connections_by_network: ClassVar[Counter[str]] = Counter()
    """The number of open connections of this process, by the network of the client."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settings = get_settings().api
        self._network = ""
        self._watch: asyncio.TimerHandle | None = None
        self._waiting_since: float | None = None
        """When the connection began to wait for the headers of a request; None while a request runs."""
        self._is_between_requests = True
        self._has_headers = False
        self._header_bytes = self._framing_bytes = self._body_bytes = 0
        self._unsent_bytes = 0
        self._stalled_seconds = 0.0
        self._running: RequestResponseCycle | None = None
        self._refusal: tuple[int, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless its address has too many."""
        super().connection_made(transport)
        self._network = find_network(self.client[0]) if self.client else ""
        self.connections_by_network[self._network] += 1
        self._waiting_since = self.loop.time()
        self._watch = self.loop.call_later(WATCH_SECONDS, self._check_progress)
        has_too_many = self.connections_by_network[self._network] > self._settings.max_connections_per_address
        if has_too_many and not self._is_proxy():
            self._refuse(_TOO_MANY_CONNECTIONS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the running request that its client has gone. uvicorn tells only the last of pipelined requests."""
        if self._watch is not None:
            self._watch.cancel()
        self.connections_by_network[self._network] -= 1
        if not self.connections_by_network[self._network]:
            del self.connections_by_network[self._network]
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the next bytes of the client."""
        if self._refusal is not None:
            return
        self._framing_bytes += len(data)
        super().data_received(_hide_upgrade(data) if self._is_between_requests else data)
        if self._framing_bytes > MAX_HEADER_BYTES + self._body_bytes * MAX_FRAMING_PER_BODY_BYTE:
            self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Begin the next request."""
        super().on_message_begin()
        self._is_between_requests = self._has_headers = False
        self._header_bytes = self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the first line."""
        self._count_header_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. One after the body is ignored: it could name another user than the one that was checked."""
        self._count_header_bytes(len(name) + len(value))
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, or let it wait for the one before it."""
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self._stop_parser(_TOO_MANY_REQUESTS)
        if self.parser.should_upgrade():
            # The parser would take the body for the next request.
            self._stop_parser(_NO_UPGRADE)
        self._has_headers = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._framing_bytes -= len(body)
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request, and begin to count for the next one."""
        self._framing_bytes = 0
        self._is_between_requests = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read."""
        self._refuse(self._refusal or (400, msg))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        self._waiting_since = None
        super()._start_asgi_task(cycle, app)

    def _count_header_bytes(self, number: int) -> None:
        self._header_bytes += number
        if self._header_bytes > MAX_HEADER_BYTES:
            self._stop_parser(_TOO_LARGE)

    def _stop_parser(self, refusal: tuple[int, str]) -> NoReturn:
        """Let the parser end with an error, for which `send_400_response` is called."""
        self._refusal = refusal
        raise RefusedRequestError

    def _is_proxy(self) -> bool:
        """Return whether the connection comes from a proxy of the operator, whose connections are everyone's."""
        address = ip_address(self.client[0]) if self.client else None
        return address is None or any(
            address in ip_network(proxy, strict=False) for proxy in self._settings.trusted_proxies
        )

    def _check_progress(self) -> None:
        """Close the connection if it waits for headers, or for its client to read, for too long."""
        self._watch = self.loop.call_later(WATCH_SECONDS, self._check_progress)
        if self._is_stalled():
            self.transport.abort()
        elif (
            self._waiting_since is not None
            and not self.transport.is_closing()
            and self.loop.time() - self._waiting_since > self._settings.header_seconds
        ):
            self._refuse(_TOO_SLOW) if self._framing_bytes else self.transport.close()

    def _is_stalled(self) -> bool:
        unsent = self.transport.get_write_buffer_size()
        read = self._unsent_bytes - unsent
        self._unsent_bytes = unsent
        # While an answer is written, what is written hides how much is read.
        is_complete = self._running is None or self._running.response_complete
        is_slow = read < MIN_BODY_BYTES_PER_SECOND * WATCH_SECONDS if is_complete else read == 0
        self._stalled_seconds = self._stalled_seconds + WATCH_SECONDS if unsent and is_slow else 0.0
        return self._stalled_seconds > self._settings.body_seconds

    def _refuse(self, refusal: tuple[int, str]) -> None:
        """Answer with a status and a text, and close the connection; only close it if an answer has begun."""
        self._refusal = refusal
        status, text = refusal
        if self._running is not None and self._running.response_started and not self._running.response_complete:
            self.transport.abort()
            return
        if not self.transport.is_closing():
            headers = f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\nconnection: close"
            self.transport.write(STATUS_LINE[status] + f"{headers}\r\n\r\n{text}".encode())
            self.transport.close()


def _hide_upgrade(data: bytes) -> bytes:
    """Rename the header Upgrade, which clients send who would also speak HTTP/2: they are answered as without it."""
    head, separator, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nx-upgrade:", head) + separator + rest if _UPGRADE.search(head) else data
