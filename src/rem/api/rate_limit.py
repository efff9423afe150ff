"""ASGI middleware that limits the requests of each caller by its tier."""

from __future__ import annotations

import time
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import make_error_response
from rem.auth.access import METRICS_PATH, is_web
from rem.auth.identity import Tier
from rem.metrics import RATE_LIMIT_REFUSALS
from rem.rate_limits import LimitedCaller

if TYPE_CHECKING:
    from rem.auth.identity import Identity
    from rem.rate_limits import Allowance, RateLimiter

RATE_HEADERS = (
    *("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"),
    *("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
)
IPV6_PREFIX_BITS = 64
"""One customer has at least this network, and may choose any address of it for each request."""
_UNCOUNTED_PATHS = frozenset(("/health", "/health/live", "/health/ready", METRICS_PATH))
_IS_COUNTED = "is_counted"
"""Marks a request in its state that the RateLimitMiddleware has counted."""
_ADVICE = {
    Tier.ANONYMOUS: "Please sign in or upgrade to continue.",
    Tier.FREE: "Please upgrade to continue, or wait.",
    Tier.BASIC: "Please upgrade to continue, or wait.",
    Tier.PRO: "Please wait.",
}


class RateLimitMiddleware:
    """Answers 429 to callers that exceed the limit of their tier, and adds the state of the limit to other answers.

    The limiter is `app.state.rate_limiter`; without one, nothing is limited. Checks of health and the files of the
    web interface are not counted. It runs
    inside of the authentication, because it needs to know who calls.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        limiter = _get_limiter(scope)
        if limiter is None:
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})[_IS_COUNTED] = True
        identity = _get_proven(scope)
        tier = Tier.ANONYMOUS if identity is None else identity.tier
        allowance = await limiter.count(find_caller(identity, scope), tier)
        if allowance is None:
            await self._app(scope, receive, send)
            return
        answer = _refuse(allowance, tier) if allowance.is_exceeded else self._app
        await answer(scope, receive, _add_headers(send, allowance))


class RefusalLimitMiddleware:
    """Counts requests that the authentication refuses, by the address of the caller, and answers 429 if they exceed it.

    It runs outside of the authentication: a refused request does not reach the RateLimitMiddleware.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        limiter = _get_limiter(scope)
        if limiter is None:
            await self._app(scope, receive, send)
            return
        is_replaced = False

        async def send_counted(message: Message) -> None:
            nonlocal is_replaced
            if message["type"] == "http.response.start" and message["status"] in (401, 403):
                allowance = await self._count(limiter, scope)
                if allowance is not None and allowance.is_exceeded:
                    is_replaced = True
                    await _refuse(allowance, Tier.ANONYMOUS)(scope, receive, _add_headers(send, allowance))
                elif allowance is not None:
                    message["headers"] = [*message["headers"], *_make_headers(allowance)]
            if not is_replaced:
                await send(message)

        await self._app(scope, receive, send_counted)

    async def _count(self, limiter: RateLimiter, scope: Scope) -> Allowance | None:
        if scope.get("state", {}).get(_IS_COUNTED):
            return None
        return await limiter.count(find_caller(None, scope), Tier.ANONYMOUS)


def _get_limiter(scope: Scope) -> RateLimiter | None:
    """Return the limiter for a request; None if it is not counted."""
    if scope["type"] != "http" or scope["path"] in _UNCOUNTED_PATHS or is_web(scope["path"]):
        return None
    return getattr(scope["app"].state, "rate_limiter", None)


def _get_proven(scope: Scope) -> Identity | None:
    """Return the caller of a request; None if it did not prove who it is.

    Without authentication anyone can name another user or tenant in each request, and would get their allowances, too.
    """
    identity: Identity | None = scope["state"].get("user")
    return identity if identity is not None and identity.is_authenticated else None


def _add_headers(send: Send, allowance: Allowance) -> Send:
    headers = _make_headers(allowance)

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    return send_with_headers


def find_caller(identity: Identity | None, scope: Scope) -> LimitedCaller:
    """Return the user; for a service without a user its key; for callers without a login their address.

    Anything else of a caller without a login is of its own choice.
    """
    if identity is not None and identity.id is not None:
        return LimitedCaller(identity.tenant_id, identity.id)
    # The prefix is no valid beginning of a user id.
    if identity is not None and identity.credential_id is not None:
        return LimitedCaller(identity.tenant_id, f"anon:key:{identity.credential_id}")
    client = scope.get("client")
    return LimitedCaller("", f"anon:{find_network(client[0]) if client else 'unknown'}")


def find_proven_caller(scope: Scope) -> LimitedCaller:
    """Return the caller of a request, as `find_caller` does; its address if it did not prove who it is."""
    return find_caller(_get_proven(scope), scope)


@lru_cache(maxsize=4096)
def find_network(address: str) -> str:
    """Return an IPv4 address, or the network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((int(parsed), IPV6_PREFIX_BITS), strict=False))


def _make_headers(allowance: Allowance) -> list[tuple[bytes, bytes]]:
    reset = allowance.reset_seconds
    values = (allowance.limit, allowance.remaining, reset)
    named = zip(RATE_HEADERS, (*values, allowance.limit, allowance.remaining, int(time.time()) + reset), strict=True)
    headers = [(name.lower().encode(), str(value).encode()) for name, value in named]
    return [*headers, (b"retry-after", str(reset).encode())] if allowance.is_exceeded else headers


def _refuse(allowance: Allowance, tier: Tier) -> ASGIApp:
    RATE_LIMIT_REFUSALS.record(1, tier.value)
    return make_error_response(
        429,
        "rate_limit_exceeded",
        f"You have exceeded your rate limit. {_ADVICE[tier]}",
        details={"limit": allowance.limit, "tier": tier.value, "retry_after": allowance.reset_seconds},
    )
