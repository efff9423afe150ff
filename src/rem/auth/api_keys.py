"""API keys: long-lived credentials of programs, with scopes and an expiry time."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from asyncpg import Record

from rem.auth.headers import ANY_TENANT
from rem.auth.identity import ALL_SCOPES, CHAT, READ, WRITE, Identity, Role, Tier
from rem.auth.logins import hash_secret
from rem.context import Scope, resolve_user_id
from rem.db.database import Database
from rem.db.sql import query
from rem.errors import InvalidInputError, NotFoundError, UnauthorizedError

KEY_PREFIX = "remk_"
_KEY = re.compile(r"(remk_[0-9a-f]{12})_[A-Za-z0-9_-]{43}\Z")
DEFAULT_SCOPES = (READ, WRITE, CHAT)
MAX_NAME_CHARS = 200
_NO_HASH = bytes(32)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of an API key. The key itself is shown once, when it is created."""

    id: UUID
    prefix: str
    name: str
    tenant_id: str
    user_id: str | None
    email: str | None
    role: Role | None
    """None: the role of the account."""
    tier: Tier | None
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def from_row(cls, row: Record) -> ApiKey:
        """Return the key in a row of the database."""
        return cls(
            id=row["id"],
            prefix=row["prefix"],
            name=row["name"],
            tenant_id=row["tenant_id"],
            user_id=row["user_id"],
            email=row["email"],
            role=None if row["role"] is None else Role(row["role"]),
            tier=None if row["tier"] is None else Tier(row["tier"]),
            scopes=tuple(row["scopes"]),
            created_at=row["created_at"],
            expires_at=row["expires_at"],
            last_used_at=row["last_used_at"],
            revoked_at=row["revoked_at"],
        )


class ApiKeys:
    """Creates, checks and revokes API keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        name: str,
        user: str | None,
        tenant: str,
        *,
        role: Role | None = None,
        tier: Tier | None = None,
        scopes: Iterable[str] = DEFAULT_SCOPES,
        expires_at: datetime | None = None,
    ) -> tuple[str, ApiKey]:
        """Create a key, and return it with what is stored. It cannot be shown again.

        Without a role the key has that of the user's account. A service key may be without a user, and its tenant may
        be ANY_TENANT.
        """
        chosen = check_scopes(scopes)
        name = name.strip()
        if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise InvalidInputError(f"The name of a key has 1 to {MAX_NAME_CHARS} characters on one line.")
        if role is not Role.SERVICE and user is None:
            raise InvalidInputError("A key needs a user; only a key with the role service may be without one.")
        if role is not Role.SERVICE and tenant == ANY_TENANT:
            raise InvalidInputError("Only a key with the role service may be for all tenants.")
        scope = Scope(tenant, None if user is None else resolve_user_id(user.strip()))
        prefix = KEY_PREFIX + secrets.token_hex(6)
        key = f"{prefix}_{secrets.token_urlsafe(32)}"
        values = (uuid4(), scope.tenant_id, scope.user_id, user.strip() if user and "@" in user else None, name, prefix)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                query("auth/auth", "add_key"), *values, hash_secret(key), role, tier, sorted(chosen), expires_at
            )
        return key, ApiKey.from_row(_require(row))

    async def list(self, user: str | None = None, tenant: str | None = None) -> list[ApiKey]:
        """Return keys, newest first: of a user, of a tenant, or all."""
        user_id = None if user is None else resolve_user_id(user)
        async with self._database.connection() as connection:
            return [
                ApiKey.from_row(row) for row in await connection.fetch(query("auth/auth", "list_keys"), tenant, user_id)
            ]

    async def revoke(self, id_or_prefix: str, user: str | None = None, tenant: str | None = None) -> ApiKey:
        """Revoke a key, given by its id or prefix. Raise NotFoundError if there is none, or it is another user's."""
        user_id = None if user is None else resolve_user_id(user)
        if not id_or_prefix.isprintable():
            raise NotFoundError("There is no such key.")
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "revoke_key"), id_or_prefix.lower(), tenant, user_id)
        return ApiKey.from_row(_require(row))

    async def identify(self, key: str, administrators: Collection[str] = ()) -> tuple[Identity, float | None]:
        """Return the caller that a key proves, and when it expires. Raise UnauthorizedError if it is not valid.

        `administrators` are the ids of users whose accounts have the role admin, whatever role is stored.
        The row is found by the prefix, which is no secret; the hash is compared in constant time.
        """
        match = _KEY.match(key)
        if match is None:
            raise UnauthorizedError("The API key is not valid.")
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "key_identity"), match[1])
            is_same = hmac.compare_digest(_NO_HASH if row is None else row["key_hash"], hash_secret(key))
            if row is None or not is_same:
                raise UnauthorizedError("The API key is not valid, has expired, or was revoked.")
            if row["is_stale"]:
                await connection.execute(query("auth/auth", "touch_key"), row["id"])
        identity = Identity(
            row["user_id"],
            row["tenant_id"],
            Role.ADMIN if row["has_role_of_account"] and row["user_id"] in administrators else Role(row["role"]),
            Tier(row["tier"]),
            row["email"],
            row["name"],
            frozenset(row["scopes"]),
            "api_key",
            str(row["id"]),
        )
        return identity, None if row["expires_at"] is None else row["expires_at"].timestamp()


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Return the scopes. Raise InvalidInputError if one is unknown, or there is none."""
    chosen = frozenset(scope.strip().lower() for scope in scopes if scope.strip())
    if not chosen or chosen - ALL_SCOPES:
        raise InvalidInputError(f"A key has one or more of the scopes {', '.join(sorted(ALL_SCOPES))}.")
    return chosen


def _require(row: Record | None) -> Record:
    if row is None:
        raise NotFoundError("There is no such key.")
    return row
