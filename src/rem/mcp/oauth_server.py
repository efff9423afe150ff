"""A small OAuth 2.1 authorization server, so that MCP clients log in by themselves.

A client registers itself, sends the person to `authorize`, and exchanges the code for tokens. Who the person is, the
configured login decides; the person is asked whether the client may act for them. The handlers that parse and check
requests are those of the MCP library.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import BaseModel

from rem.audit.entry import note_actor
from rem.auth.access import AUTH_PATH
from rem.auth.authenticator import Authenticator
from rem.auth.identity import CHAT, READ, WRITE, Identity
from rem.auth.logins import TokenPair, hash_secret
from rem.auth.signing import Purpose
from rem.context import parse_uuid
from rem.db.sql import query
from rem.errors import UnauthorizedError
from rem.mcp.http import MCP_PATH

OAUTH_PATH = f"{AUTH_PATH}/oauth"
CONSENT_PATH = f"{OAUTH_PATH}/consent"
CLIENT_SCOPES = [READ, WRITE, CHAT]
"""What a client may be allowed. The scope admin is for people."""
CODE_SECONDS = 120
CONSENT_SECONDS = 600
MAX_STATE_CHARS = 2000
MAX_REQUEST_CHARS = 3800
"""A longer one does not fit into the cookie that remembers it during the login."""
MAX_REDIRECT_URIS = 10
MAX_NAME_CHARS = 200
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
APP_SCHEMES = frozenset(
    (
        *("claude", "codex", "cursor", "kiro", "raycast", "vscode", "vscode-insiders", "vscodium", "warp", "windsurf"),
        "zed",
    )
)
"""Schemes without a dot that MCP clients are known to use. Those of other apps begin with a domain (RFC 8252, 7.1)."""


class ConsentRequest(BaseModel):
    """What a client asks a person to allow. It travels signed through the browser."""

    client_id: str
    client_name: str
    redirect_uri: str
    is_redirect_explicit: bool
    code_challenge: str
    scopes: list[str]
    state: str | None = None
    resource: str | None = None


class OAuthServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The decisions of the authorization server for one request. Its state is in the database."""

    def __init__(self, authenticator: Authenticator, base_url: str) -> None:
        self._authenticator = authenticator
        self._base_url = base_url

    def describe_server(self) -> dict[str, Any]:
        """Return the metadata of the authorization server (RFC 8414)."""
        return {
            "issuer": self._base_url,
            "authorization_endpoint": f"{self._base_url}{OAUTH_PATH}/authorize",
            "token_endpoint": f"{self._base_url}{OAUTH_PATH}/token",
            "registration_endpoint": f"{self._base_url}{OAUTH_PATH}/register",
            "revocation_endpoint": f"{self._base_url}{OAUTH_PATH}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "scopes_supported": CLIENT_SCOPES,
            "authorization_response_iss_parameter_supported": True,
        }

    def describe_resource(self) -> dict[str, Any]:
        """Return the metadata of the protected resource (RFC 9728), which names the authorization server."""
        return {
            "resource": f"{self._base_url}{MCP_PATH}",
            "authorization_servers": [self._base_url],
            "scopes_supported": CLIENT_SCOPES,
            "bearer_methods_supported": ["header"],
            "resource_name": "REM",
        }

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Return a registered client."""
        if not client_id.isprintable():
            return None
        async with self._authenticator.database.connection() as connection:
            registration = await connection.fetchval(query("auth/auth", "get_client"), client_id)
        return None if registration is None else OAuthClientInformationFull.model_validate(registration)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Store a client. Anyone may register one: it gets no secret, and PKCE protects its codes."""
        uris = [str(uri) for uri in client_info.redirect_uris or []]
        if not 1 <= len(uris) <= MAX_REDIRECT_URIS or not all(map(_is_safe_redirect, uris)):
            raise RegistrationError(
                "invalid_redirect_uri",
                "A redirect address begins with https:// or, for an app on the user's machine, with "
                "http://127.0.0.1, http://[::1], http://localhost or the app's own scheme, such as "
                "com.example.app:/callback. It has no fragment and no user name.",
            )
        name = client_info.client_name or ""
        if len(name) > MAX_NAME_CHARS or not name.isprintable():
            raise RegistrationError("invalid_client_metadata", f"client_name has {MAX_NAME_CHARS} characters at most.")
        client_info.client_secret = None
        client_info.client_secret_expires_at = None
        client_info.token_endpoint_auth_method = "none"  # noqa: S105  # the name of a method
        names = {"client_id", "client_name", "redirect_uris", "grant_types", "response_types", "scope"}
        kept = client_info.model_dump(mode="json", include={*names, "token_endpoint_auth_method"}, exclude_none=True)
        async with self._authenticator.database.connection() as connection:
            await connection.execute(query("auth/auth", "purge"))
            await connection.execute(query("auth/auth", "add_client"), client_info.client_id, kept)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Return the address of the page that asks the person."""
        texts = (params.state or "", params.code_challenge)
        if any(len(text) > MAX_STATE_CHARS or not text.isprintable() for text in texts):
            raise AuthorizeError("invalid_request", f"state has {MAX_STATE_CHARS} printable characters at most.")
        if params.resource is not None and params.resource.rstrip("/") != f"{self._base_url}{MCP_PATH}":
            raise AuthorizeError("invalid_target", f"The resource of this server is {self._base_url}{MCP_PATH}.")
        scopes = params.scopes or CLIENT_SCOPES
        if not set(scopes) <= set(CLIENT_SCOPES):
            raise AuthorizeError("invalid_scope", f"The scopes are {', '.join(CLIENT_SCOPES)}.")
        request = ConsentRequest(
            client_id=str(client.client_id),
            client_name=client.client_name or "A program without a name",
            redirect_uri=str(params.redirect_uri),
            is_redirect_explicit=params.redirect_uri_provided_explicitly,
            code_challenge=params.code_challenge,
            scopes=scopes,
            state=params.state,
            resource=params.resource,
        )
        signed = self._authenticator.signer.sign(Purpose.CONSENT, request.model_dump(), CONSENT_SECONDS)
        if len(signed) > MAX_REQUEST_CHARS:
            raise AuthorizeError("invalid_request", "state, redirect_uri and the name of the client are too long.")
        return f"{self._base_url}{CONSENT_PATH}?{urlencode({'request': signed})}"

    def read_consent(self, signed: str) -> ConsentRequest:
        """Return what a client asks for. Raise UnauthorizedError if it is not signed by us, or too old."""
        return ConsentRequest.model_validate(self._authenticator.signer.verify(Purpose.CONSENT, signed))

    def make_proof(self, identity: Identity, signed: str) -> str:
        """Return a text that shows that this person saw this question, in this login."""
        return self._authenticator.signer.digest("consent", f"{identity.credential_id}\0{signed}")

    async def allow(self, identity: Identity, request: ConsentRequest) -> str:
        """Let the client act for the person, and return the address that the browser goes to."""
        code = secrets.token_urlsafe(32)
        expires_at = datetime.now(UTC) + timedelta(seconds=CODE_SECONDS)
        owner = (identity.tenant_id, identity.id, request.client_id)
        async with self._authenticator.database.connection() as connection:
            await connection.execute(
                query("auth/auth", "add_code"), hash_secret(code), *owner, request.model_dump(), expires_at
            )
        return construct_redirect_uri(request.redirect_uri, code=code, state=request.state, iss=self._base_url)

    def deny(self, request: ConsentRequest) -> str:
        """Return the address that tells the client that the person does not want it."""
        return construct_redirect_uri(
            request.redirect_uri, error="access_denied", state=request.state, iss=self._base_url
        )

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """Return an unused code of a client. A used one was stolen: the login that it led to ends."""
        async with self._authenticator.database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "get_code"), hash_secret(authorization_code))
        if row is None or row["client_id"] != client.client_id:
            return None
        if row["login_id"] is not None:
            await self._authenticator.logins.revoke(row["login_id"], "authorization code used twice")
            self._authenticator.cache.clear()
            return None
        request = ConsentRequest.model_validate(row["request"])
        return AuthorizationCode.model_validate(
            {
                "code": authorization_code,
                "scopes": request.scopes,
                "expires_at": row["expires_at"].timestamp(),
                "client_id": request.client_id,
                "code_challenge": request.code_challenge,
                "redirect_uri": request.redirect_uri,
                "redirect_uri_provided_explicitly": request.is_redirect_explicit,
                "resource": request.resource,
                "subject": row["user_id"],
            }
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """Return the first tokens of a client. The code is used up."""
        login_id = uuid4()
        async with self._authenticator.database.connection() as connection:
            row = await connection.fetchrow(
                query("auth/auth", "use_code"), hash_secret(authorization_code.code), login_id
            )
        if row is None:
            raise TokenError("invalid_grant", "The code was used, or has expired.")
        pair = await self._authenticator.logins.create_tokens(
            row["user_id"],
            row["tenant_id"],
            "mcp",
            scopes=authorization_code.scopes,
            client_id=client.client_id,
            login_id=login_id,
        )
        return _to_token(pair)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        """Return a refresh token of a client. A used one is found, too: its exchange ends the login."""
        grant = await self._authenticator.logins.peek_refresh_token(refresh_token)
        if grant is None or grant.client_id is None or grant.client_id != client.client_id:
            return None
        return RefreshToken(
            token=refresh_token,
            client_id=grant.client_id,
            scopes=sorted(grant.scopes),
            expires_at=int(grant.expires_at.timestamp()),
            subject=grant.user_id,
        )

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """Return new tokens. The refresh token is used up."""
        try:
            return _to_token(await self._authenticator.logins.refresh(refresh_token.token, client.client_id))
        except UnauthorizedError as error:
            self._authenticator.cache.clear()
            raise TokenError("invalid_grant", str(error)) from error

    async def load_access_token(self, token: str) -> AccessToken | None:
        """Return an access token of a client."""
        try:
            claims = self._authenticator.signer.verify(Purpose.ACCESS, token)
        except UnauthorizedError:
            return None
        client_id = claims.get("client_id")
        if not client_id:
            return None
        return AccessToken(token=token, client_id=client_id, scopes=str(claims.get("scope", "")).split(), claims=claims)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """End the login of a token, and so all its tokens."""
        if isinstance(token, AccessToken):
            login_id = parse_uuid(str((token.claims or {}).get("sid")))
        else:
            grant = await self._authenticator.logins.peek_refresh_token(token.token)
            login_id = grant.login_id if grant else None
        if login_id is not None:
            await self._authenticator.logins.revoke(login_id, "revoked by the client")
            self._authenticator.cache.clear()


def _to_token(pair: TokenPair) -> OAuthToken:
    note_actor(pair.user_id, pair.tenant_id)
    return OAuthToken(
        access_token=pair.access_token,
        token_type="Bearer",  # noqa: S106  # the name of a scheme
        expires_in=pair.expires_in,
        scope=" ".join(sorted(pair.scopes)),
        refresh_token=pair.refresh_token,
    )


def _is_safe_redirect(uri: str) -> bool:
    """Return True if a code may be sent to an address: by HTTPS, to the same machine, or to an app on it.

    An unknown scheme must look like a domain in reverse: others belong to browsers and operating systems, and what they
    do with a code, nobody knows.
    """
    parts = urlsplit(uri)
    # A user name before the host would look like the host on the page that asks the person.
    if "#" in uri or "@" in parts.netloc:
        return False
    if parts.scheme == "http":
        return parts.hostname in LOOPBACK_HOSTS
    if parts.scheme == "https":
        return bool(parts.hostname)
    labels = parts.scheme.split(".")
    return parts.scheme in APP_SCHEMES or (len(labels) > 1 and all(labels))
