"""Who is asking: every read and write happens in the scope of one tenant and at most one user."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from rem.errors import InvalidInputError

DEFAULT_TENANT = "default"
_LONGEST_TENANT_BYTES = 255
_LONGEST_USER_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class Scope:
    """A caller. Reads see the user's own rows and the tenant's shared ones; writes go to the user's own rows.

    Without a user the caller is anonymous: only shared rows exist for it, and what it writes is shared.
    """

    tenant_id: str = DEFAULT_TENANT
    user_id: str | None = None

    def __post_init__(self) -> None:
        _refuse_unstorable("tenant", self.tenant_id)
        if not 1 <= len(self.tenant_id.encode()) <= _LONGEST_TENANT_BYTES:
            raise InvalidInputError(f"A tenant has 1 to {_LONGEST_TENANT_BYTES} bytes.")
        if self.user_id is not None:
            _refuse_unstorable("user", self.user_id)
            if not self.user_id.strip() or len(self.user_id) > _LONGEST_USER_CHARACTERS:
                raise InvalidInputError(
                    f"A user id has 1 to {_LONGEST_USER_CHARACTERS} characters; leave the user out to act anonymously."
                )

    @classmethod
    def of(cls, user: str | None = None, tenant: str = DEFAULT_TENANT) -> Scope:
        """The scope of a user given by e-mail address or id."""
        return cls(tenant, None if user is None else user_id_of(user))


def user_id_of(user: str) -> str:
    """The id of a user: an e-mail address stands for its UUID5, anything else is the id itself."""
    if "@" in user and not user.isspace():
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, user.strip().lower()))
    return user


def _refuse_unstorable(what: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"The {what} is not valid Unicode text.") from error
    if "\0" in value:
        raise InvalidInputError(f"The {what} contains a NUL character; remove it.")
