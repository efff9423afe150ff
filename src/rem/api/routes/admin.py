"""`/admin`: the users, sessions, statistics and audit log of the caller's tenant, for the role admin."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from rem.administration import Administration
from rem.api.dependencies import JsonBody, RemDep, require_role
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, WindowDep
from rem.audit.entry import Action
from rem.audit.log import AuditFilter
from rem.auth.authenticator import Authenticator
from rem.auth.identity import Identity, Role, Tier
from rem.context import resolve_user_id
from rem.errors import ForbiddenError
from rem.models.field_types import UtcDateTime

AdminDep = Annotated[Identity, Depends(require_role(Role.ADMIN))]

router = APIRouter(prefix="/admin", tags=["admin"], responses=error_responses(401, 403))

UserPath = Annotated[str, Path(description="An e-mail address or an id.", min_length=1, max_length=320)]
UserName = Annotated[str | None, Query(description="Only this user: an e-mail address or an id.", max_length=320)]


async def _get_administration(rem: RemDep, admin: AdminDep) -> Administration:
    return Administration(rem.database, admin.tenant_id, rem.settings.auth)


AdministrationDep = Annotated[Administration, Depends(_get_administration)]


class UserView(BaseModel):
    """A person of the tenant."""

    model_config = ConfigDict(from_attributes=True)

    user_id: str
    email: str | None
    name: str | None
    role: str | None = Field(description="Null if the person has no account.")
    tier: str | None
    created_at: datetime | None
    last_login_at: datetime | None
    disabled_at: datetime | None = Field(description="The time since when no login and no key of the person works.")
    sessions: int
    messages: int
    last_active_at: datetime | None


class UpdateUserRequest(BaseModel):
    """Name the changes to a person."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"role": "user", "tier": "pro"}})

    role: Literal[Role.ADMIN, Role.USER] | None = Field(
        default=None, description="`service` is for keys, which the operator creates: it reads the memory of others."
    )
    tier: Literal[Tier.FREE, Tier.BASIC, Tier.PRO] | None = None
    disabled: bool | None = Field(default=None, strict=True, description="Refuse all logins and keys of the person.")


class AdminSessionView(BaseModel):
    """A session without its name and content."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    user_id: str
    mode: str
    agent_schema: str | None
    message_count: int
    total_tokens: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    readers: int = Field(description="The number of users with whom it is shared.")


class TableStatistics(BaseModel):
    """The rows of one table."""

    live: int
    deleted: int
    shared: int = Field(description="Live rows that everyone in the tenant sees.")


class StatisticsView(BaseModel):
    """Count what the tenant stores and does."""

    tenant_id: str
    accounts: int
    disabled_accounts: int
    active_users: int = Field(description="Users with a session that changed in the last 30 days.")
    tokens: int = Field(description="Tokens of all messages.")
    tables: dict[str, TableStatistics]
    actions: dict[str, int] = Field(description="Entries of the audit log in the last day, by action.")


class AuditEntryView(BaseModel):
    """Who did what. Rows are named by table and id; keys are hashed."""

    at: datetime
    id: UUID
    actor: str | None = Field(description="The user's id; null for an anonymous caller.")
    subject: str | None = Field(description="Another user whom the action is about.")
    role: str | None
    via: str
    method: str | None
    credential_id: str | None
    action: str
    operation: str
    status: int | None
    targets: list[dict[str, Any]]
    client: str | None
    request_id: str | None


@router.get("/users", summary="List the users of the tenant")
async def list_users(administration: AdministrationDep, window: WindowDep) -> Page[UserView]:
    """List the people of the caller's tenant, with their role and tier and how much they have stored."""
    users = await administration.list_users(window.fetch_limit, window.offset)
    return Page[UserView].model_validate(window.slice_page([UserView.model_validate(user) for user in users]))


@router.get("/users/{user}", summary="Get a user of the tenant", responses=error_responses(404))
async def get_user(administration: AdministrationDep, user: UserPath) -> UserView:
    """Return one person of the caller's tenant."""
    return UserView.model_validate(await administration.get_user(user))


@router.patch(
    "/users/{user}",
    summary="Set the role and tier of a user",
    responses=error_responses(404),
    dependencies=[JsonBody],
)
async def change_user(
    request: Request, administration: AdministrationDep, admin: AdminDep, user: UserPath, change: UpdateUserRequest
) -> UserView:
    """Set the role and tier of a person who has an account in the caller's tenant, or disable the account.

    Administrators cannot take away their own role: the tenant might have none left.
    """
    is_self = resolve_user_id(user) == admin.id
    if is_self and (change.disabled or change.role not in (None, Role.ADMIN)):
        raise ForbiddenError("You cannot take away your own role or disable yourself: another administrator can.")
    changed = await administration.set_user(user, role=change.role, tier=change.tier, disabled=change.disabled)
    authenticator: Authenticator = request.app.state.authenticator
    authenticator.cache.clear()
    return UserView.model_validate(changed)


@router.get("/sessions", summary="List the sessions of the tenant")
async def list_all_sessions(
    administration: AdministrationDep, window: WindowDep, user: UserName = None
) -> Page[AdminSessionView]:
    """List the sessions of the tenant, without names and content, most recently used first."""
    sessions = await administration.list_sessions(user, window.fetch_limit, window.offset)
    views = [AdminSessionView.model_validate(session) for session in sessions]
    return Page[AdminSessionView].model_validate(window.slice_page(views))


@router.get("/statistics", summary="Count what the tenant stores and does")
async def get_statistics(administration: AdministrationDep) -> StatisticsView:
    """Count the accounts and rows of the tenant, and the actions of the last day."""
    return StatisticsView.model_validate(asdict(await administration.statistics()))


@router.get("/audit", summary="Read the audit log of the tenant")
async def read_audit_log(
    rem: RemDep,
    admin: AdminDep,
    window: WindowDep,
    actor: Annotated[
        str | None, Query(description="Only what this user did: an e-mail address or an id.", max_length=320)
    ] = None,
    about: Annotated[str | None, Query(description="Only what was done to this user.", max_length=320)] = None,
    action: Annotated[Action | None, Query(description="Only this kind of action.")] = None,
    table: Annotated[str | None, Query(description="Only what concerns this table.", max_length=100)] = None,
    row: Annotated[UUID | None, Query(description="Only what concerns the row with this id.")] = None,
    since: Annotated[UtcDateTime | None, Query(description="Only entries from this time on.")] = None,
    until: Annotated[UtcDateTime | None, Query(description="Only entries before this time.")] = None,
) -> Page[AuditEntryView]:
    """Return who read, wrote, deleted, approved and administered what in the tenant, newest first."""
    wanted = AuditFilter(
        None if actor is None else resolve_user_id(actor),
        action,
        None if about is None else resolve_user_id(about),
        table,
        row,
        since,
        until,
    )
    entries = await rem.audit_log.find(admin.tenant_id, wanted, limit=window.fetch_limit, offset=window.offset)
    return Page[AuditEntryView].model_validate(window.slice_page(entries))
