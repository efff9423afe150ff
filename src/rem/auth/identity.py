"""The identity of a caller: user, tenant, role, tier and scopes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from rem.context import DEFAULT_TENANT


class UserRole(StrEnum):
    """What a caller may do beside using its own memory."""

    ADMIN = "admin"
    """Manages the users of its tenant."""
    USER = "user"
    SERVICE = "service"
    """A trusted program, which names the user that it acts for in X-User-Id."""


Role = UserRole
"""The short name, for modules that have nothing to do with the role of a message."""


class Tier(StrEnum):
    """Name the allowance of a caller, lowest first."""

    ANONYMOUS = "anonymous"
    FREE = "free"
    BASIC = "basic"
    PRO = "pro"


READ, WRITE, CHAT, ADMIN = "read", "write", "chat", "admin"
ALL_SCOPES = frozenset((READ, WRITE, CHAT, ADMIN))
Method: TypeAlias = Literal["none", "cookie", "token", "api_key", "dev", "header"]
"""How the caller proved who it is. `header`: it did not, because authentication is off; `none`: anonymous."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The proven caller of a request."""

    id: str | None
    """The user id; None for an anonymous caller."""
    tenant_id: str
    role: Role
    tier: Tier
    email: str | None = None
    name: str | None = None
    scopes: frozenset[str] = ALL_SCOPES
    """What a token or an API key may do. People may do everything that their role allows."""
    method: Method = "none"
    credential_id: str | None = None
    """The id of the API key or of the login, for the audit log and for revocation."""

    @property
    def is_authenticated(self) -> bool:
        """Return True if the caller proved who it is."""
        return self.method not in ("none", "header")

    def has_role(self, role: Role) -> bool:
        """Return True if the caller has a role, and its credential may use it."""
        return self.role is role and (role is not Role.ADMIN or ADMIN in self.scopes)


def make_anonymous(tenant_id: str = DEFAULT_TENANT) -> Identity:
    """Return the identity of a caller that is not logged in, while authentication is on.

    It may read what the tenant shares, and chat. It may not write, because what it wrote would be shared.
    """
    return Identity(None, tenant_id, Role.USER, Tier.ANONYMOUS, scopes=frozenset((READ, CHAT)))
