"""Accounts: the people who may log in, with their role and tier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from asyncpg import Record

from rem.auth.identity import Role, Tier
from rem.context import Scope, resolve_user_id
from rem.db.database import Executor
from rem.db.sql import query
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.settings import AuthSettings


@dataclass(frozen=True, slots=True)
class UserAccount:
    """A person who may log in."""

    user_id: str
    tenant_id: str
    email: str
    name: str | None
    role: Role
    tier: Tier
    created_at: datetime
    last_login_at: datetime | None
    disabled_at: datetime | None

    @classmethod
    def from_row(cls, row: Record) -> UserAccount:
        """Return the account in a row of the database."""
        return cls(
            row["user_id"],
            row["tenant_id"],
            row["email"],
            row["name"],
            Role(row["role"]),
            Tier(row["tier"]),
            row["created_at"],
            row["last_login_at"],
            row["disabled_at"],
        )


class Accounts:
    """Reads and changes accounts."""

    def __init__(self, database: Executor) -> None:
        self._database = database

    async def log_in(self, email: str, name: str | None, tenant: str, *, is_admin: bool) -> UserAccount:
        """Create or update the account of a person who proved to own an e-mail address.

        A known account keeps its tenant, tier and role. With `is_admin`, it is returned as that of an administrator.
        """
        user_id = resolve_user_id(email)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "log_in"), user_id, tenant, email, name)
        account = UserAccount.from_row(_require(row))
        return replace(account, role=Role.ADMIN) if is_admin else account

    async def save(
        self,
        email: str,
        tenant: str,
        *,
        name: str | None = None,
        role: Role | None = None,
        tier: Tier | None = None,
    ) -> UserAccount:
        """Create or change an account. None keeps a value. Raise ConflictError if another tenant has the person."""
        if "@" not in email:
            raise InvalidInputError("An account needs an e-mail address.")
        email = email.strip()
        arguments = (resolve_user_id(email), Scope(tenant).tenant_id, email, name, role, tier)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "save_account"), *arguments)
        if row is None:
            raise ConflictError("Another tenant has an account with this e-mail address.")
        return UserAccount.from_row(row)

    async def get(self, user: str, tenant: str) -> UserAccount:
        """Return the account of a user, given by e-mail address or id. Raise NotFoundError if there is none."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "get_account"), resolve_user_id(user), tenant)
        return UserAccount.from_row(_require(row))

    async def list(self, tenant: str, limit: int = 100, offset: int = 0) -> list[UserAccount]:
        """Return the accounts of a tenant, by e-mail address."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("auth/auth", "list_accounts"), tenant, limit, offset)
        return [UserAccount.from_row(row) for row in rows]

    async def set_disabled(self, user: str, tenant: str, *, disabled: bool) -> UserAccount:
        """Disable an account, so that none of its logins and keys works, or enable it again."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("auth/auth", "set_disabled"), resolve_user_id(user), tenant, disabled)
        return UserAccount.from_row(_require(row))


def list_administrators(settings: AuthSettings) -> frozenset[str]:
    """Return the user ids of those whom the settings make administrators.

    Their role is not stored: who is removed from the settings has it no longer, also in a login that goes on.
    """
    return frozenset(map(resolve_user_id, settings.admin_emails))


def _require(row: Record | None) -> Record:
    if row is None:
        raise NotFoundError("There is no such account.")
    return row
