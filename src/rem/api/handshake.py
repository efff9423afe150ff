"""ASGI middleware: `request.session` for the few minutes of a login, in a signed cookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.auth.access import AUTH_PATH
from rem.auth.authenticator import MAX_CREDENTIAL_CHARS
from rem.auth.cookies import read_cookie
from rem.auth.signing import Purpose
from rem.errors import UnauthorizedError

if TYPE_CHECKING:
    from rem.auth.authenticator import Authenticator

COOKIE = "rem_login"
LIFETIME_SECONDS = 600


class HandshakeMiddleware:
    """Keeps the state of a login in the browser that started it, so that any worker can finish it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not scope["path"].startswith(f"{AUTH_PATH}/"):
            await self._app(scope, receive, send)
            return
        authenticator: Authenticator = scope["app"].state.authenticator
        stored = _read(authenticator, Headers(scope=scope).get("cookie", ""))
        scope["session"] = session = dict(stored)

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and session != stored:
                MutableHeaders(scope=message).append("set-cookie", _write(authenticator, session))
            await send(message)

        await self._app(scope, receive, send_with_cookie)


def _read(authenticator: Authenticator, header: str) -> dict[str, Any]:
    value = read_cookie(header, COOKIE)
    if not value or len(value) > MAX_CREDENTIAL_CHARS:
        return {}
    try:
        claims = authenticator.signer.verify(Purpose.HANDSHAKE, value)
    except UnauthorizedError:
        return {}
    data = claims.get("data")
    return data if isinstance(data, dict) else {}


def _write(authenticator: Authenticator, session: dict[str, Any]) -> str:
    value = authenticator.signer.sign(Purpose.HANDSHAKE, {"data": session}, LIFETIME_SECONDS) if session else ""
    return make_cookie(COOKIE, value, LIFETIME_SECONDS if session else 0, f"{AUTH_PATH}", authenticator.is_secure)


def make_cookie(name: str, value: str, seconds: int, path: str, is_secure: bool) -> str:
    """Return a Set-Cookie header for a cookie that scripts cannot read and other sites do not send."""
    parts = [f"{name}={value}", f"Path={path}", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
    return "; ".join([*parts, "Secure"] if is_secure else parts)
