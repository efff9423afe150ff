"""Logins: the cookie of a browser, and the access and refresh tokens of a program."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID, uuid4

from asyncpg import Record
from loguru import logger

from rem.auth.accounts import list_administrators
from rem.auth.identity import ALL_SCOPES, Identity, Method, Role, Tier
from rem.auth.signing import Purpose, Signer
from rem.context import parse_uuid
from rem.db.database import Database
from rem.db.sql import query
from rem.errors import UnauthorizedError
from rem.settings import AuthSettings

if TYPE_CHECKING:
    from rem.db.database import Connection

REFRESH_PREFIX = "remr_"
LoginKind: TypeAlias = Literal["cookie", "token", "mcp"]


@dataclass(frozen=True, slots=True)
class TokenPair:
    """A short-lived access token, and the refresh token that buys the next pair, once."""

    access_token: str
    refresh_token: str
    expires_in: int
    scopes: frozenset[str]
    user_id: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class RefreshGrant:
    """An unused refresh token."""

    login_id: UUID
    client_id: str | None
    scopes: frozenset[str]
    user_id: str
    expires_at: datetime


class Logins:
    """Creates, renews and revokes logins.

    A login is a row, so revoking it ends its cookie and all its tokens, in every process.
    """

    def __init__(self, database: Database, signer: Signer, settings: AuthSettings) -> None:
        self._database = database
        self._signer = signer
        self._settings = settings
        self._administrators = list_administrators(settings)

    async def create_cookie(self, user_id: str, tenant_id: str, provider: str) -> tuple[str, int]:
        """Log a person in, and return the value of the session cookie and its lifetime in seconds."""
        lifetime = timedelta(hours=self._settings.session_hours)
        login_id = uuid4()
        async with self._database.connection() as connection:
            await connection.execute(query("auth/auth", "purge"))
            await _insert(connection, login_id, tenant_id, user_id, "cookie", provider, None, ALL_SCOPES, lifetime)
        seconds = int(lifetime.total_seconds())
        return self._signer.sign(Purpose.SESSION, {"sid": str(login_id), "sub": user_id}, seconds), seconds

    async def create_tokens(
        self,
        user_id: str,
        tenant_id: str,
        kind: LoginKind = "token",
        *,
        scopes: Iterable[str] = ALL_SCOPES,
        client_id: str | None = None,
        login_id: UUID | None = None,
    ) -> TokenPair:
        """Log a program of a person in, and return its first tokens."""
        login_id = login_id or uuid4()
        lifetime = timedelta(days=self._settings.refresh_token_days)
        allowed = frozenset(scopes)
        async with self._database.transaction() as inside, inside.connection() as connection:
            await connection.execute(query("auth/auth", "purge"))
            await _insert(connection, login_id, tenant_id, user_id, kind, None, client_id, allowed, lifetime)
            refresh_token = await self._add_refresh_token(connection, login_id)
        return self._make_pair(login_id, user_id, tenant_id, refresh_token, allowed, client_id)

    async def peek_refresh_token(self, token: str) -> RefreshGrant | None:
        """Return what a refresh token is for, used or not; None if there is no such login any more."""
        if not token.startswith(REFRESH_PREFIX):
            return None
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "peek_refresh_token"), hash_secret(token))
            login = (
                None
                if row is None
                else await connection.fetchrow(query("auth/auth", "login_identity"), row["login_id"])
            )
        if row is None or login is None:
            return None
        scopes = frozenset(login["scopes"])
        return RefreshGrant(row["login_id"], login["client_id"], scopes, login["user_id"], row["expires_at"])

    async def refresh(self, token: str, client_id: str | None = None) -> TokenPair:
        """Return new tokens for a refresh token of a client, which is used up.

        Raise UnauthorizedError if it is not valid. If it was used before, someone else has it: the login is revoked.
        """
        refused = UnauthorizedError("The refresh token is not valid, was used, or its login ended: log in again.")
        token_hash = hash_secret(token)
        replayed: UUID | None = None
        async with self._database.transaction() as inside, inside.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "lock_refresh_token"), token_hash)
            if row is None or row["is_expired"]:
                raise refused
            login = await connection.fetchrow(query("auth/auth", "login_identity"), row["login_id"])
            if row["is_used"]:
                replayed = row["login_id"]
            elif login is not None and login["client_id"] == client_id and self._settings.admits(login["email"]):
                await connection.execute(query("auth/auth", "use_refresh_token"), token_hash)
                refresh_token = await self._add_refresh_token(connection, row["login_id"])
                scopes = frozenset(login["scopes"])
                owner = (login["user_id"], login["tenant_id"])
                return self._make_pair(row["login_id"], *owner, refresh_token, scopes, client_id)
        if replayed is not None:
            logger.warning("A refresh token was used twice: the login {} is revoked.", replayed)
            await self.revoke(replayed, "refresh token used twice")
        raise refused

    async def revoke(self, login_id: UUID, because: str = "logout") -> None:
        """End a login. Its cookie and tokens are refused from now on."""
        async with self._database.connection() as connection:
            await connection.execute(query("auth/auth", "revoke_login"), login_id, because)

    async def revoke_all(self, user_id: str, tenant_id: str, because: str = "logout everywhere") -> int:
        """End all logins of a user, and return their number."""
        async with self._database.connection() as connection:
            return len(await connection.fetch(query("auth/auth", "revoke_logins"), user_id, tenant_id, because))

    async def list(self, user_id: str, tenant_id: str) -> list[dict[str, Any]]:
        """Return the logins of a user that have not ended, newest first."""
        async with self._database.connection() as connection:
            return [dict(row) for row in await connection.fetch(query("auth/auth", "list_logins"), user_id, tenant_id)]

    async def identify(self, purpose: Literal[Purpose.ACCESS, Purpose.SESSION], token: str) -> tuple[Identity, float]:
        """Return the caller that a token or a cookie proves, and when it expires. Raise UnauthorizedError if none."""
        claims = self._signer.verify(purpose, token)
        login_id = parse_uuid(str(claims.get("sid")))
        if login_id is None:
            raise UnauthorizedError("The token names no login.")
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "login_identity"), login_id)
        if row is None or row["user_id"] != claims.get("sub") or not self._settings.admits(row["email"]):
            raise UnauthorizedError("The login has ended: log in again.")
        method: Method = "cookie" if purpose is Purpose.SESSION else "token"
        return self._to_identity(row, method), min(float(claims["exp"]), row["expires_at"].timestamp())

    def _to_identity(self, row: Record, method: Method) -> Identity:
        return Identity(
            row["user_id"],
            row["tenant_id"],
            Role.ADMIN if row["user_id"] in self._administrators else Role(row["role"]),
            Tier(row["tier"]),
            row["email"],
            row["name"],
            frozenset(row["scopes"]),
            method,
            str(row["id"]),
        )

    async def _add_refresh_token(self, connection: Connection, login_id: UUID) -> str:
        token = REFRESH_PREFIX + secrets.token_urlsafe(32)
        expires_at = datetime.now(UTC) + timedelta(days=self._settings.refresh_token_days)
        await connection.execute(query("auth/auth", "add_refresh_token"), hash_secret(token), login_id, expires_at)
        await connection.execute(query("auth/auth", "extend_login"), login_id, expires_at)
        return token

    def _make_pair(
        self,
        login_id: UUID,
        user_id: str,
        tenant_id: str,
        refresh_token: str,
        scopes: frozenset[str],
        client_id: str | None,
    ) -> TokenPair:
        seconds = self._settings.access_token_minutes * 60
        claims = {"sid": str(login_id), "sub": user_id, "scope": " ".join(sorted(scopes)), "jti": uuid4().hex}
        if client_id is not None:
            claims["client_id"] = client_id
        access_token = self._signer.sign(Purpose.ACCESS, claims, seconds)
        return TokenPair(access_token, refresh_token, seconds, scopes, user_id, tenant_id)


def hash_secret(secret: str) -> bytes:
    """Return what the database stores of a token or key.

    SHA-256 is enough, because the secrets have 256 random bits: nobody can guess them, however fast the hash is.
    """
    return hashlib.sha256(secret.encode(errors="replace")).digest()


async def _insert(
    connection: Connection,
    login_id: UUID,
    tenant_id: str,
    user_id: str,
    kind: LoginKind,
    provider: str | None,
    client_id: str | None,
    scopes: frozenset[str],
    lifetime: timedelta,
) -> None:
    expires_at = datetime.now(UTC) + lifetime
    values = (login_id, tenant_id, user_id, kind, provider, client_id, sorted(scopes), expires_at)
    await connection.execute(query("auth/auth", "create_login"), *values)
