"""ASGI middleware: `request.session` for the few minutes of a login, in a signed cookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.auth.access import AUTH_PATH
from rem.auth.authenticator import MAX_CREDENTIAL_CHARS
from rem.auth.headers import read_cookie
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
    value = read_cookie(header, authenticator.name_cookie(COOKIE))
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
    return make_cookie(authenticator, COOKIE, value, LIFETIME_SECONDS if session else 0, AUTH_PATH)


def make_cookie(authenticator: Authenticator, name: str, value: str, seconds: int, path: str = "/") -> str:
    """Return a Set-Cookie header for a cookie that scripts cannot read and other sites do not send.

    Over HTTPS its path is that of the whole host: browsers demand it for the prefix of its name.
    """
    path = "/" if authenticator.is_secure else path
    parts = [f"{authenticator.name_cookie(name)}={value}", f"Path={path}", f"Max-Age={seconds}"]
    return "; ".join([*parts, "HttpOnly", "SameSite=Lax", *(["Secure"] if authenticator.is_secure else [])])
