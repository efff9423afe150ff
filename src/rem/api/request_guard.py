"""ASGI middleware that refuses ambiguous requests and requests of foreign web pages, and protects browsers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import make_error_response

SINGLE_HEADERS = frozenset(
    (
        *("authorization", "content-length", "content-type", "host", "origin", "sec-fetch-site"),
        *("x-session-id", "x-tenant-id", "x-user-id"),
    )
)
"""Headers that may occur once. Of two, a proxy might check one and REM use the other."""
MAX_PARAMETERS = 1000
"""Parameters in an address. More take long to parse, and no other request is served meanwhile."""
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_HOST = re.compile(r"\A(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]*))(?::(?P<port>[0-9]{0,5}))?\Z")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class HostPort(NamedTuple):
    """A host name or IP address in lower case, and a port."""

    name: str
    port: int | None = None


@lru_cache(maxsize=256)
def parse_host(text: str) -> HostPort | None:
    """Parse the value of a Host header. Return None if it is not exactly a name or an address with an optional port."""
    match = _HOST.match(text.strip().lower())
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        return None
    if match["ipv6"] is None:
        return HostPort(match["name"].removesuffix("."), port)
    address = _parse_ip_address(match["ipv6"])
    return HostPort(address, port) if address is not None and ":" in address else None


@lru_cache(maxsize=256)
def _parse_ip_address(text: str) -> str | None:
    """Return an IP address in its usual form; None if the text is not one."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address.compressed if isinstance(address, IPv6Address) else str(address)


class RequestGuardMiddleware:
    """Refuses duplicate headers, hosts that are not allowed, and changes that a foreign web page asks for.

    A host is allowed if it is an IP address, a name without a dot, or one of `allowed_hosts`. This prevents DNS
    rebinding: a web page in the user's browser cannot reach this server by a name that it controls, because such a name
    belongs to a domain and has a dot.

    A change (any method but GET, HEAD and OPTIONS) is refused if the browser says that it comes from another origin
    that is not one of `allowed_origins`. Clients that are no browsers send neither `Origin` nor `Sec-Fetch-Site`.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str], allowed_origins: Sequence[str]) -> None:
        self._app = app
        self._hosts = {name.lower() for name in allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = None
        if scope["type"] == "http":
            scope["headers"] = _drop_escaped_cookies(scope["headers"])
            refusal = self._find_refusal(scope)
        await (refusal or self._app)(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the response that refuses a request; None if it is allowed."""
        duplicate = _find_duplicate(scope["headers"])
        if duplicate is not None:
            return make_error_response(400, "duplicate_header", f"The header {duplicate} is sent twice: send it once.")
        headers = Headers(scope=scope)
        host = parse_host(headers.get("host", ""))
        if host is None:
            return make_error_response(
                400, "invalid_host", "The header Host is not a host name or an IP address with an optional port."
            )
        if not self._is_allowed_host(host.name):
            return make_error_response(
                421,
                "host_not_allowed",
                "REM does not answer to this host name: use its IP address, or set API__ALLOWED_HOSTS.",
            )
        if scope["query_string"].count(b"&") >= MAX_PARAMETERS:
            return make_error_response(
                400, "invalid_request", f"The address has more than {MAX_PARAMETERS:,} parameters: send fewer."
            )
        if scope["method"] not in SAFE_METHODS and not self._is_own_page(headers, host):
            return make_error_response(
                403,
                "origin_not_allowed",
                "Web pages of other origins may not change anything here: the operator can allow one with "
                "API__CORS_ORIGINS.",
            )
        return None

    def _is_allowed_host(self, name: str) -> bool:
        is_local_name = "." not in name or name.endswith(".localhost") or _parse_ip_address(name) is not None
        return is_local_name or name in self._hosts or "*" in self._hosts

    def _is_own_page(self, headers: Headers, host: HostPort) -> bool:
        """Return whether a change comes from a page of this server or of an allowed origin, or not from a page."""
        origin = headers.get("origin")
        if origin is not None and ("*" in self._origins or origin.lower() in self._origins):
            return True
        site = headers.get("sec-fetch-site")
        if site is not None:
            # The browser itself sets this header, and it knows the address that the user sees, also behind a proxy.
            return site.strip().lower() in ("same-origin", "none")
        return origin is None or _is_same_origin(origin, host)


def _drop_escaped_cookies(headers: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """Return the headers without cookies that have a backslash, which REM's own never have.

    The web framework reads all cookies of a request, and some versions of Python take quadratic time to remove
    backslashes: one header could stop the server for seconds.
    """
    if not any(name == b"cookie" and b"\\" in value for name, value in headers):
        return headers
    return [
        (name, b";".join(part for part in value.split(b";") if b"\\" not in part) if name == b"cookie" else value)
        for name, value in headers
    ]


def _find_duplicate(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name.decode("latin-1") in SINGLE_HEADERS:
            return name.decode("latin-1")
        seen.add(name)
    return None


def _is_same_origin(origin: str, host: HostPort) -> bool:
    """Return whether an origin has the host and port of the request. Behind a proxy REM does not know the scheme."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    default_port = _DEFAULT_PORTS.get(parts.scheme)
    page = parse_host(parts.netloc)
    if page is None or default_port is None or not page.name:
        return False
    return (page.name, page.port or default_port) == (host.name, host.port or default_port)


API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""Answers of the API are data: a browser that shows one as a page must run and load nothing."""
_HSTS_SECONDS = 365 * 24 * 3600


class SecurityHeadersMiddleware:
    """Adds headers to all answers that limit what a browser does with them. A route may set its own value."""

    def __init__(self, app: ASGIApp, *, requires_https: bool) -> None:
        self._app = app
        headers = {
            b"x-content-type-options": b"nosniff",
            b"x-frame-options": b"DENY",
            b"referrer-policy": b"no-referrer",
            b"cross-origin-resource-policy": b"same-origin",
        }
        if requires_https:
            headers[b"strict-transport-security"] = f"max-age={_HSTS_SECONDS}; includeSubDomains".encode()
        self._headers = [*headers.items(), (b"content-security-policy", API_POLICY.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(header for header in self._headers if header[0] not in present),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)
