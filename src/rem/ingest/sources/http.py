"""Files from web servers, without reach into private networks."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import httpx2

from rem.errors import (
    FetchError,
    FetchForbiddenError,
    FetchRefusedError,
    FileMissingError,
    FileTooLargeError,
    InvalidInputError,
)
from rem.ingest.dates import parse_http_time
from rem.ingest.models import FetchedFile
from rem.ingest.sources.policy import FetchPolicy, IPAddress, resolve_host
from rem.settings import IngestSettings

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"User-Agent": "rem", "Accept": "*/*", "Accept-Encoding": "gzip"}
_LONGEST_TYPE = 200
_CONNECT_SECONDS = 10.0
_ANY = 47
"""zlib finds out itself whether it is gzip or deflate."""


class _Answer(NamedTuple):
    data: bytes
    mime_type: str | None
    modified_at: datetime | None


async def fetch_http(address: str, reach: FetchPolicy, settings: IngestSettings) -> FetchedFile:
    """The file at an address. All of it, redirects included, takes no longer than the timeout."""
    url = parse_url(address)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            answer = await _follow(url, reach, settings)
    except TimeoutError as error:
        raise FetchError(
            f"{url} was not there within {settings.timeout_seconds:g} s: try again later, "
            "or set INGEST__TIMEOUT_SECONDS higher."
        ) from error
    return FetchedFile(display_name(url), str(url), *answer)


def parse_url(address: str) -> httpx2.URL:
    """An address that can be fetched, in its one spelling, without the place in the page."""
    try:
        url = httpx2.URL(address.strip())
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise InvalidInputError(f"{_without_login(address)} is no address: {error}") from error
    if url.scheme not in _PORTS:
        raise FetchForbiddenError(f"Only http:// and https:// are fetched from the web, not {url.scheme}://.")
    if url.userinfo:
        raise FetchForbiddenError(
            "The address has a login in it, which would be stored with the file: "
            "download the file and take in the copy, or give an address that needs no login."
        )
    if not url.host or "%" in url.host or (url.port is not None and not 0 < url.port < 65536):
        raise InvalidInputError(f"{address} is no address: write it as https://host/path.")
    return url.copy_with(fragment=None)


def _without_login(address: str) -> str:
    before, at, after = address.rpartition("@")
    return f"…@{after}" if at and before else address


def display_name(url: httpx2.URL) -> str:
    """An address as people read it: host, path and question."""
    path = unquote(url.path, errors="replace").rstrip("/")
    question = f"?{url.query.decode(errors='replace')}" if url.query else ""
    return f"{url.host}{path}{question}"


async def _follow(url: httpx2.URL, reach: FetchPolicy, settings: IngestSettings) -> _Answer:
    for _hop in range(_MOST_REDIRECTS + 1):
        async with _get(url, reach, settings) as response:
            if response.status_code not in _REDIRECTS:
                _check_status(url, response.status_code)
                data = await _read(url, response, settings.max_bytes)
                said = response.headers.get("content-type", "")[:_LONGEST_TYPE] or None
                return _Answer(data, said, parse_http_time(response.headers.get("last-modified")))
            # Each place on the way is checked as if it had been asked for.
            url = _next(url, response)
    raise FetchRefusedError(
        f"{url} is redirected more than {_MOST_REDIRECTS} times: give the address of the file itself."
    )


def _next(url: httpx2.URL, response: httpx2.Response) -> httpx2.URL:
    location = response.headers.get("location")
    if not location:
        raise FetchRefusedError(f"{url} is redirected to nowhere.")
    try:
        return parse_url(str(url.join(location)))
    except InvalidInputError as error:
        raise type(error)(f"{url} is redirected: {error}") from error
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise FetchRefusedError(f"{url} is redirected to something that is no address.") from error


@asynccontextmanager
async def _get(url: httpx2.URL, reach: FetchPolicy, settings: IngestSettings) -> AsyncIterator[httpx2.Response]:
    """The answer of a server. What is connected to is the address that was checked, whatever the name means by then."""
    port = url.port or _PORTS[url.scheme]
    host = url.raw_host.decode("ascii")
    addresses = await resolve_host(host, port, only_public=not _is_allowed(url.host, port, reach))
    # No proxies from the environment: they would connect to what the name means to them.
    timeout = httpx2.Timeout(settings.timeout_seconds, connect=min(_CONNECT_SECONDS, settings.timeout_seconds / 2))
    async with httpx2.AsyncClient(trust_env=False, verify=_tls(), follow_redirects=False, timeout=timeout) as client:
        try:
            response = await _first(client, url, host, addresses)
        except (httpx2.TimeoutException, httpx2.TransportError) as error:
            raise FetchError(f"{url} cannot be reached: {error or type(error).__name__}. Try again later.") from error
        try:
            yield response
        except httpx2.TransportError as error:
            raise FetchError(f"{url} broke off: {error or type(error).__name__}. Try again later.") from error
        finally:
            await response.aclose()


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Whom to trust. Certificates that the environment names count, its proxies do not."""
    return httpx2.create_ssl_context()


async def _first(client: httpx2.AsyncClient, url: httpx2.URL, host: str, addresses: list[IPAddress]) -> httpx2.Response:
    """The answer from the first of several addresses that can be reached."""
    for place, address in enumerate(addresses):
        request = client.build_request(
            "GET",
            url.copy_with(host=str(address)),
            headers={**_HEADERS, "Host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": host.rstrip(".")},
        )
        try:
            return await client.send(request, stream=True)
        except httpx2.ConnectError:
            if place == len(addresses) - 1:
                raise
    raise FetchError(f"The host {host} has no address.")


def _is_allowed(host: str, port: int, reach: FetchPolicy) -> bool:
    if reach.is_everywhere:
        return True
    name = f"[{host}]" if ":" in host else host
    return bool(reach.private_hosts & {host, name, f"{name}:{port}"})


def _check_status(url: httpx2.URL, status: int) -> None:
    if status == 200:
        return
    if status in (404, 410):
        raise FileMissingError(f"There is nothing at {url} ({status}). Check the address.")
    if status in (401, 403, 407):
        raise FetchRefusedError(f"{url} needs a login ({status}): download the file and take in the copy.")
    if status in (408, 425, 429) or status >= 500:
        raise FetchError(f"{url} answered {status}: try again later.")
    raise FetchRefusedError(f"{url} answered {status} instead of a file. Check the address.")


async def _read(url: httpx2.URL, response: httpx2.Response, most: int) -> bytes:
    """The body, unpacked, as far as it is allowed to go. What the server says of its length is not believed."""
    unpacker = _unpacker(url, response)
    parts: list[bytes] = []
    room = most
    async for raw in response.aiter_raw():
        try:
            part = unpacker.unpack(raw, room + 1) if unpacker else raw
        except zlib.error as error:
            raise FetchError(f"{url} broke off: what it sent is not packed as it says.") from error
        room -= len(part)
        if room < 0:
            raise FileTooLargeError(f"{url} is larger than {most:,} bytes (INGEST__MAX_BYTES): take in a smaller part.")
        parts.append(part)
    if unpacker and parts and not unpacker.is_complete:
        raise FetchError(f"{url} broke off before its end. Try again later.")
    return b"".join(parts)


class _Decompressor:
    """Unpacks gzip, which may have several members one after the other, and deflate."""

    def __init__(self) -> None:
        self._member: Any = zlib.decompressobj(wbits=_ANY)

    @property
    def is_complete(self) -> bool:
        return bool(self._member.eof)

    def unpack(self, raw: bytes, most: int) -> bytes:
        """What comes out of the next bytes, as much as is asked for at most."""
        parts: list[bytes] = []
        while raw:
            if self._member.eof:
                # Zeros may fill up a block behind the last member.
                raw = raw.lstrip(b"\0")
                if not raw:
                    break
                self._member = zlib.decompressobj(wbits=_ANY)
            parts.append(self._member.decompress(raw, most))
            most -= len(parts[-1])
            if most <= 0:
                break
            raw = self._member.unused_data
        return b"".join(parts)


def _unpacker(url: httpx2.URL, response: httpx2.Response) -> _Decompressor | None:
    """What unpacks the body bit by bit, so that a small answer cannot become a huge one; None if it is not packed."""
    match response.headers.get("content-encoding", "identity").strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Decompressor()
        case other:
            raise FetchRefusedError(f"{url} is packed as {other[:40]}, though that was not asked for.")
