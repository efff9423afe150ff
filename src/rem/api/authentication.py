"""ASGI middleware that finds out who calls, and puts the identity into `request.state.user`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loguru import logger
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.credential_watch import CredentialWatch
from rem.api.errors import http_status, make_error_response
from rem.auth.access import check_access, is_public
from rem.auth.identity import Identity, make_anonymous
from rem.errors import ForbiddenError, InvalidInputError, RemError, UnauthorizedError
from rem.mcp.http import MCP_PATH
from rem.settings import Settings

if TYPE_CHECKING:
    from rem.auth.authenticator import Authenticator


class AuthMiddleware:
    """Sets `request.state.user` to the identity of the caller, and refuses callers that may not do what they ask."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            identity = scope.setdefault("state", {})["user"] = await self._identify(scope)
        except RemError as error:
            await self._refuse(scope, receive, send, error)
            return
        if identity is None or identity.credential_id is None:
            await self._app(scope, receive, send)
        else:
            await self._serve_while_valid(scope, receive, send, identity)

    async def _serve_while_valid(self, scope: Scope, receive: Receive, send: Send, identity: Identity) -> None:
        """Serve one request, and end it when its credential is revoked meanwhile."""
        has_begun = False

        async def send_noticed(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            async with CredentialWatch(scope["app"].state.authenticator, identity, scope):
                await self._app(scope, receive, send_noticed)
        except UnauthorizedError as error:
            # An answer that has begun has ended with this error itself.
            if not has_begun:
                await self._refuse(scope, receive, send, error)

    async def _identify(self, scope: Scope) -> Identity | None:
        authenticator: Authenticator = scope["app"].state.authenticator
        path: str = scope["path"]
        try:
            identity = await authenticator.authenticate(Headers(scope=scope))
        except InvalidInputError:
            # The routes that need a caller raise the same error; the others work without one.
            if self._settings.auth.enabled:
                raise
            return None
        except (UnauthorizedError, ForbiddenError):
            if not is_public(path):
                raise
            return make_anonymous(self._settings.auth.tenant)
        # Also of a caller that is refused, for the audit log.
        scope.setdefault("state", {})["user"] = identity
        if not is_public(path) and scope["method"] != "OPTIONS":
            self._check(identity, scope["method"], path)
        return identity

    def _check(self, identity: Identity, method: str, path: str) -> None:
        is_mcp = path.rstrip("/") == MCP_PATH
        is_refused_by_mcp = is_mcp and self._settings.auth.enabled and self._settings.auth.mcp_requires_auth
        if not identity.is_authenticated and (not self._settings.allows_anonymous or is_refused_by_mcp):
            raise UnauthorizedError
        if not is_mcp:
            # Tools of MCP check the scopes themselves, because all of them are called by POST.
            check_access(identity, method, path)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: RemError) -> None:
        status = http_status(error)
        # The log of requests runs inside of this middleware and does not see the request.
        logger.bind(status=status).info("{} refused: {} {}", scope["method"], status, error.code)
        headers = {"WWW-Authenticate": self._challenge(scope, error)} if status == 401 else None
        await make_error_response(status, error.code, str(error), headers=headers)(scope, receive, send)

    def _challenge(self, scope: Scope, error: RemError) -> str:
        """Return the header that tells a client how to log in. MCP clients follow its metadata."""
        parts = ['Bearer realm="rem"']
        if "authorization" in Headers(scope=scope):
            parts.append('error="invalid_token"')
        if self._settings.auth.has_login and scope["path"].rstrip("/") == MCP_PATH:
            base = get_base_url(self._settings, HTTPConnection(scope))
            parts.append(f'resource_metadata="{base}/.well-known/oauth-protected-resource{MCP_PATH}"')
        return ", ".join(parts)


def get_base_url(settings: Settings, request: HTTPConnection) -> str:
    """Return the address under which the caller reaches this server, without a slash at the end."""
    return settings.auth.public_url or str(request.base_url).rstrip("/")
