"""A page in the user's browser must not reach a server on this machine under a name of its own (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from rem.api.errors import error_response


class HostCheck:
    """Answers only requests that call the server by an address, by a name without a dot, or by an allowed name.

    Whoever sets up a name to point here owns a domain, and such names have a dot.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = {name.lower() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not self._is_allowed(Headers(scope=scope).get("host", "")):
            refusal = error_response(
                421, "host_not_allowed", "REM is not called by this name: use its address, or set API__ALLOWED_HOSTS."
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        name = _without_port(host.strip().lower()).rstrip(".")
        is_plain = "." not in name or name.endswith(".localhost") or _is_ip(name)
        return is_plain or name in self._allowed or "*" in self._allowed


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
