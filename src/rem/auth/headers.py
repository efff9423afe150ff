"""What headers say of the caller: cookies, and who may name a user or a tenant in X-User-Id and X-Tenant-Id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rem.auth.identity import Identity, Role, Tier
from rem.context import DEFAULT_TENANT, AgentContext, Scope
from rem.errors import ForbiddenError, UnauthorizedError

USER_HEADER = "x-user-id"
TENANT_HEADER = "x-tenant-id"
ANY_TENANT = "*"
"""The tenant of a service key that may name any tenant."""


def trust_headers(headers: Mapping[str, str]) -> Identity:
    """Return the caller that the headers name, while authentication is off. Nothing proves it."""
    named = headers.get(USER_HEADER, "").strip()
    tenant = headers.get(TENANT_HEADER, "").strip() or DEFAULT_TENANT
    user_id = Scope(tenant, AgentContext.get_user_id_or_default(named, "X-User-Id")).user_id
    if user_id is None:
        return Identity(None, tenant, Role.USER, Tier.ANONYMOUS)
    email = named if "@" in named else None
    return Identity(user_id, tenant, Role.USER, Tier.FREE, email, method="header")


def apply_headers(identity: Identity, headers: Mapping[str, str]) -> Identity:
    """Return the caller after a look at the headers.

    A service acts for the user that they name. For everyone else they must name the caller itself. Raise
    UnauthorizedError or ForbiddenError otherwise.
    """
    named_user = headers.get(USER_HEADER, "").strip()
    named_tenant = headers.get(TENANT_HEADER, "").strip()
    if identity.role is Role.SERVICE:
        return _act_for(identity, named_user, named_tenant)
    if named_user and not _is_same_user(identity, named_user):
        if identity.id is None:
            raise UnauthorizedError("X-User-Id needs a login: send a token or an API key, or leave the header out.")
        raise ForbiddenError("X-User-Id names another user than the one that is logged in: leave the header out.")
    if named_tenant and named_tenant != identity.tenant_id:
        if identity.id is None:
            raise UnauthorizedError("X-Tenant-Id needs a login: send a token or an API key, or leave the header out.")
        raise ForbiddenError("X-Tenant-Id names another tenant than that of the caller: leave the header out.")
    return identity


def _act_for(service: Identity, user: str, tenant: str) -> Identity:
    if service.tenant_id == ANY_TENANT:
        service = replace(service, tenant_id=tenant or DEFAULT_TENANT)
    elif tenant and tenant != service.tenant_id:
        raise ForbiddenError("X-Tenant-Id names another tenant than that of the service key: leave the header out.")
    if not user:
        return service
    user_id = Scope(service.tenant_id, AgentContext.get_user_id_or_default(user, "X-User-Id")).user_id
    return replace(service, id=user_id, email=user if "@" in user else None, name=None)


def _is_same_user(identity: Identity, named: str) -> bool:
    if identity.id is None:
        return False
    is_own_email = identity.email is not None and named.lower() == identity.email.lower()
    return is_own_email or AgentContext.get_user_id_or_default(named, "X-User-Id") == identity.id


def read_cookie(header: str, name: str) -> str | None:
    """Return the value of a cookie as it was sent; None if there is none. Of several, the first counts.

    REM's cookies are signed tokens, which are never quoted. The parser of the standard library takes quadratic time to
    remove quotes, and so one header could stop the server for a minute.
    """
    if name not in header:
        return None
    for part in header.split(";"):
        found, separator, value = part.partition("=")
        if separator and found.strip() == name:
            return value.strip()
    return None
