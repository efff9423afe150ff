"""Administration: the users, the sessions and the statistics of one tenant, without the content of memories."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from rem.auth.accounts import Accounts, list_administrators
from rem.auth.identity import Role, Tier
from rem.context import Scope, resolve_user_id
from rem.db.sql import query, query_table
from rem.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.settings import AuthSettings


@dataclass(frozen=True, slots=True)
class UserSummary:
    """A person of a tenant: the account, if there is one, and how much the person has stored."""

    user_id: str
    email: str | None
    name: str | None
    role: str | None
    """None without an account: the person never logged in, and acts with the role of an API key or a header."""
    tier: str | None
    created_at: datetime | None
    last_login_at: datetime | None
    disabled_at: datetime | None
    sessions: int
    messages: int
    last_active_at: datetime | None


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session without its name and content."""

    id: UUID
    user_id: str
    mode: str
    agent_schema: str | None
    message_count: int
    total_tokens: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    readers: int
    """Users with whom it is shared."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The rows of one table."""

    live: int
    deleted: int
    shared: int
    """Live rows that the whole tenant sees."""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The rows of one user in one table."""

    live: int
    deleted: int
    bytes: int


async def measure_storage(database: Database, scope: Scope) -> dict[str, OwnRows]:
    """Count the own rows of a scope and their bytes, by table; tables without one are left out."""
    measured: dict[str, OwnRows] = {}
    async with database.snapshot() as inside, inside.connection() as connection:
        for row in await connection.fetch(query("db/custom_types", "entity_types")):
            statement = query_table("administration", "measure_own_rows", row["name"])
            counts = OwnRows(**dict(await connection.fetchrow(statement, scope.tenant_id, scope.user_id) or {}))
            if counts.live or counts.deleted:
                measured[row["name"]] = counts
    return measured


@dataclass(slots=True)
class TenantStatistics:
    """Count what a tenant stores and does."""

    tenant_id: str
    accounts: int
    disabled_accounts: int
    active_users: int
    """Users with a session that changed in the last 30 days."""
    tokens: int
    """Tokens of all messages."""
    tables: dict[str, RowCounts] = field(default_factory=dict)
    actions: dict[str, int] = field(default_factory=dict)
    """Entries of the audit log in the last day."""


class Administration:
    """Reads and changes what concerns the users of one tenant. Nothing of another tenant can be reached."""

    def __init__(self, database: Database, tenant_id: str, settings: AuthSettings) -> None:
        self._database = database
        self._administrators = list_administrators(settings)
        self._tenant_id = Scope(tenant_id).tenant_id

    async def list_users(self, limit: int = 100, offset: int = 0) -> list[UserSummary]:
        """Return the people of the tenant: accounts by e-mail address, then users without an account."""
        return await self._fetch_users(None, limit, offset)

    async def get_user(self, user: str) -> UserSummary:
        """Return a person, given by e-mail address or id. Raise NotFoundError if the tenant has no such person."""
        found = await self._fetch_users(resolve_user_id(user.strip()), 1, 0)
        if not found:
            raise NotFoundError(f"There is no user {user} in this tenant.")
        return found[0]

    async def _fetch_users(self, user_id: str | None, limit: int, offset: int) -> list[UserSummary]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("administration", "users"), self._tenant_id, user_id, limit, offset)
        users = [UserSummary(**row) for row in rows]
        return [self._add_role(user) for user in users]

    def _add_role(self, user: UserSummary) -> UserSummary:
        is_administrator = user.role is not None and user.user_id in self._administrators
        return replace(user, role=Role.ADMIN) if is_administrator else user

    async def set_user(
        self,
        user: str,
        *,
        role: Role | None = None,
        tier: Tier | None = None,
        disabled: bool | None = None,
        create: bool = False,
    ) -> UserSummary:
        """Set the role and tier of a person, and whether the account is disabled. None keeps a value.

        With `create`, an e-mail address without an account gets one, so the person has the role at the first login.
        That tells whether another tenant has the person, so it is for the operator, not for administrators.
        """
        if role is None and tier is None and disabled is None:
            raise InvalidInputError("Nothing to change: give a role, a tier, or whether the account is disabled.")
        if tier is Tier.ANONYMOUS:
            raise InvalidInputError("The tier anonymous is for callers without an account: choose free, basic or pro.")
        async with self._database.transaction() as inside:
            accounts = Accounts(inside)
            is_new = create and "@" in user
            email = user.strip() if is_new else (await accounts.get(user.strip(), self._tenant_id)).email
            account = await accounts.save(email, self._tenant_id, role=role, tier=tier)
            if disabled is not None:
                await accounts.set_disabled(account.user_id, self._tenant_id, disabled=disabled)
        return await self.get_user(account.user_id)

    async def list_sessions(self, user: str | None = None, limit: int = 100, offset: int = 0) -> list[SessionSummary]:
        """Return sessions of the tenant, or of one user, most recently used first."""
        user_id = None if user is None else resolve_user_id(user.strip())
        async with self._database.connection() as connection:
            rows = await connection.fetch(query("administration", "sessions"), self._tenant_id, user_id, limit, offset)
        return [SessionSummary(**row) for row in rows]

    async def statistics(self) -> TenantStatistics:
        """Count what the tenant stores, and what its users did in the last day."""
        async with self._database.snapshot() as inside, inside.connection() as connection:
            totals = await connection.fetchrow(query("administration", "totals"), self._tenant_id)
            statistics = TenantStatistics(self._tenant_id, **dict(totals or {}))
            for row in await connection.fetch(query("db/custom_types", "entity_types")):
                statement = query_table("administration", "count_rows", row["name"])
                counts = await connection.fetchrow(statement, self._tenant_id)
                statistics.tables[row["name"]] = RowCounts(**dict(counts or {}))
            for row in await connection.fetch(query("administration", "actions"), self._tenant_id):
                statistics.actions[row["action"]] = row["entries"]
        return statistics
