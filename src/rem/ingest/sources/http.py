"""Fetch files over HTTP without access to private networks."""

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
from rem.ingest.sources.policy import FetchPolicy, IPAddress, check_literal_address, resolve_host
from rem.settings import IngestSettings

MAX_REDIRECTS = 5
MAX_CONTENT_TYPE_CHARS = 200
CONNECT_TIMEOUT_SECONDS = 10.0
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"User-Agent": "rem", "Accept": "*/*", "Accept-Encoding": "gzip"}
_GZIP_OR_DEFLATE = 47
"""Tells zlib to detect whether the data is gzip or deflate."""


class _Response(NamedTuple):
    data: bytes
    mime_type: str | None
    modified_at: datetime | None


async def fetch_http(address: str, policy: FetchPolicy, settings: IngestSettings) -> FetchedFile:
    """Fetch the file at a URL. The timeout covers everything, including redirects."""
    url = parse_url(address)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            response = await _follow_redirects(url, policy, settings)
    except TimeoutError as error:
        raise FetchError(
            f"{url} did not arrive within {settings.timeout_seconds:g} s: try again later, "
            "or set INGEST__TIMEOUT_SECONDS higher."
        ) from error
    return FetchedFile(display_name(url), str(url), *response)


def parse_url(address: str) -> httpx2.URL:
    """Parse and normalise an http(s) URL, without its fragment. Raise an error if it must not be fetched."""
    try:
        url = httpx2.URL(address.strip())
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise InvalidInputError(f"{_hide_login(address)} is not a valid URL: {error}") from error
    if url.scheme not in _PORTS:
        raise FetchForbiddenError(f"Only http:// and https:// URLs can be fetched, not {url.scheme}://.")
    if url.userinfo:
        raise FetchForbiddenError(
            "The URL contains a login, which would be stored with the file: "
            "download the file and ingest the copy, or use a URL without a login."
        )
    if not url.host or "%" in url.host or (url.port is not None and not 0 < url.port < 65536):
        raise InvalidInputError(f"{address} is not a valid URL: write it as https://host/path.")
    return url.copy_with(fragment=None)


def check_url(url: httpx2.URL, policy: FetchPolicy) -> None:
    """Raise a FetchForbiddenError if the host is an address that the policy forbids. Names are not resolved yet."""
    port = url.port or _PORTS[url.scheme]
    host = url.raw_host.decode("ascii")
    check_literal_address(host, only_public=not _is_allowed_private_host(url.host, port, policy))


def display_name(url: httpx2.URL) -> str:
    """Return host, path and query of a URL, decoded for people."""
    path = unquote(url.path, errors="replace").rstrip("/")
    query = f"?{url.query.decode(errors='replace')}" if url.query else ""
    return f"{url.host}{path}{query}"


def _hide_login(address: str) -> str:
    login, at, rest = address.rpartition("@")
    return f"…@{rest}" if at and login else address


async def _follow_redirects(url: httpx2.URL, policy: FetchPolicy, settings: IngestSettings) -> _Response:
    for _hop in range(MAX_REDIRECTS + 1):
        async with _get(url, policy, settings) as response:
            if response.status_code not in _REDIRECT_STATUSES:
                _check_status(url, response.status_code)
                data = await _read_body(url, response, settings.max_bytes)
                content_type = response.headers.get("content-type", "")[:MAX_CONTENT_TYPE_CHARS] or None
                return _Response(data, content_type, parse_http_time(response.headers.get("last-modified")))
            # Every redirect target is checked like the first URL.
            url = _parse_location(url, response)
    raise FetchRefusedError(f"{url} is redirected more than {MAX_REDIRECTS} times: use the URL of the file itself.")


def _parse_location(url: httpx2.URL, response: httpx2.Response) -> httpx2.URL:
    location = response.headers.get("location")
    if not location:
        raise FetchRefusedError(f"{url} is redirected without a target.")
    try:
        return parse_url(str(url.join(location)))
    except InvalidInputError as error:
        raise type(error)(f"{url} is redirected: {error}") from error
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise FetchRefusedError(f"{url} is redirected to an invalid URL.") from error


@asynccontextmanager
async def _get(url: httpx2.URL, policy: FetchPolicy, settings: IngestSettings) -> AsyncIterator[httpx2.Response]:
    """Send a GET request to the address that was checked, even if the name resolves to another one by then."""
    port = url.port or _PORTS[url.scheme]
    host = url.raw_host.decode("ascii")
    addresses = await resolve_host(host, port, only_public=not _is_allowed_private_host(url.host, port, policy))
    timeout = httpx2.Timeout(
        settings.timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, settings.timeout_seconds / 2)
    )
    # trust_env=False: a proxy would resolve the name itself and could connect to another address.
    async with httpx2.AsyncClient(
        trust_env=False, verify=_ssl_context(), follow_redirects=False, timeout=timeout
    ) as client:
        try:
            response = await _send_to_first_reachable(client, url, host, addresses)
        except (httpx2.TimeoutException, httpx2.TransportError) as error:
            raise FetchError(f"{url} cannot be reached: {error or type(error).__name__}. Try again later.") from error
        try:
            yield response
        except httpx2.TransportError as error:
            raise FetchError(f"{url} was cut off: {error or type(error).__name__}. Try again later.") from error
        finally:
            await response.aclose()


@lru_cache(maxsize=1)
def _ssl_context() -> ssl.SSLContext:
    """Return the trusted certificates, including those that the environment names."""
    return httpx2.create_ssl_context()


async def _send_to_first_reachable(
    client: httpx2.AsyncClient, url: httpx2.URL, host: str, addresses: list[IPAddress]
) -> httpx2.Response:
    for position, address in enumerate(addresses):
        request = client.build_request(
            "GET",
            url.copy_with(host=str(address)),
            headers={**_HEADERS, "Host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": host.rstrip(".")},
        )
        try:
            return await client.send(request, stream=True)
        except httpx2.ConnectError:
            if position == len(addresses) - 1:
                raise
    raise FetchError(f"The host {host} has no address.")


def _is_allowed_private_host(host: str, port: int, policy: FetchPolicy) -> bool:
    if policy.is_unrestricted:
        return True
    name = f"[{host}]" if ":" in host else host
    return bool(policy.private_hosts & {host, name, f"{name}:{port}"})


def _check_status(url: httpx2.URL, status: int) -> None:
    if status == 200:
        return
    if status in (404, 410):
        raise FileMissingError(f"{url} does not exist ({status}). Check the URL.")
    if status in (401, 403, 407):
        raise FetchRefusedError(f"{url} needs a login ({status}): download the file and ingest the copy.")
    if status in (408, 425, 429) or status >= 500:
        raise FetchError(f"{url} answered {status}: try again later.")
    raise FetchRefusedError(f"{url} answered {status} instead of a file. Check the URL.")


async def _read_body(url: httpx2.URL, response: httpx2.Response, max_bytes: int) -> bytes:
    """Read and decompress the body, and stop at the limit. The Content-Length header is ignored: it may be wrong."""
    decompressor = _make_decompressor(url, response)
    parts: list[bytes] = []
    remaining = max_bytes
    async for raw in response.aiter_raw():
        try:
            part = decompressor.decompress(raw, remaining + 1) if decompressor else raw
        except zlib.error as error:
            raise FetchError(f"{url} was cut off: its content is not compressed as declared.") from error
        remaining -= len(part)
        if remaining < 0:
            raise FileTooLargeError(f"{url} is larger than {max_bytes:,} bytes (INGEST__MAX_BYTES): split it.")
        parts.append(part)
    if decompressor and parts and not decompressor.is_complete:
        raise FetchError(f"{url} was cut off before its end. Try again later.")
    return b"".join(parts)


def _make_decompressor(url: httpx2.URL, response: httpx2.Response) -> _Decompressor | None:
    """Return a decompressor for the body; None if it is not compressed."""
    match response.headers.get("content-encoding", "identity").strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Decompressor()
        case other:
            raise FetchRefusedError(f"{url} is compressed as {other[:40]}, which the request did not accept.")


class _Decompressor:
    """Decompresses deflate and gzip with one or several members, in steps of bounded size."""

    def __init__(self) -> None:
        self._member: Any = zlib.decompressobj(wbits=_GZIP_OR_DEFLATE)

    @property
    def is_complete(self) -> bool:
        return bool(self._member.eof)

    def decompress(self, raw: bytes, max_bytes: int) -> bytes:
        """Return the decompressed bytes, at most `max_bytes`."""
        parts: list[bytes] = []
        while raw:
            if self._member.eof:
                # Zeros may pad the block after the last member.
                raw = raw.lstrip(b"\0")
                if not raw:
                    break
                self._member = zlib.decompressobj(wbits=_GZIP_OR_DEFLATE)
            parts.append(self._member.decompress(raw, max_bytes))
            max_bytes -= len(parts[-1])
            if max_bytes <= 0:
                break
            raw = self._member.unused_data
        return b"".join(parts)
