"""Who is asking: every read and write happens in the scope of one tenant and at most one user."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, field_validator

from rem.errors import InvalidInputError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

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
    def for_user(cls, user: UserOrScope = None, tenant: str = DEFAULT_TENANT) -> Scope:
        """Return the scope of a user given by e-mail address or id. A scope is returned as it is."""
        if not isinstance(user, Scope):
            return cls(tenant, None if user is None else resolve_user_id(user))
        if tenant not in (DEFAULT_TENANT, user.tenant_id):
            raise InvalidInputError(f"The scope belongs to tenant {user.tenant_id!r}: leave the tenant {tenant!r} out.")
        return user


UserOrScope: TypeAlias = str | Scope | None
"""A user by e-mail address or id, a scope, or None for the rows that a tenant shares."""


def resolve_user_id(user: str) -> str:
    """The id of a user: an e-mail address stands for its UUID5, anything else is the id itself."""
    if "@" in user and not user.isspace():
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, user.strip().lower()))
    return user


_ANONYMOUS = "anon:"
_SESSIONS = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


class AgentContext(BaseModel):
    """Who talks to which agent, in which conversation and with which model.

    The user and the tenant come from whoever authenticated the caller; nothing that a model writes can change them.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    user_id: str | None = None
    user_email: str | None = None
    """The address of the user, if that is known: the id does not tell it."""
    tenant_id: str = DEFAULT_TENANT
    session_id: str | None = None
    """A UUID. What a client calls its session may be any text: see `session_id_of`."""
    session_name: str | None = None
    """What the client calls its session, if it is no UUID."""
    default_model: str | None = None
    agent_schema_uri: str | None = None
    is_eval: bool = False
    client_id: str | None = None

    @field_validator("user_id")
    @classmethod
    def _not_an_anonymous_owner(cls, value: str | None) -> str | None:
        if value is not None and value.lower().startswith(_ANONYMOUS):
            raise InvalidInputError(f"A user id must not begin with {_ANONYMOUS!r}.")
        return value

    @property
    def scope(self) -> Scope:
        """What may be read and written. An anonymous conversation owns itself, so that nobody else reads it."""
        owner = self.user_id
        if owner is None and self.session_id is not None:
            owner = f"{_ANONYMOUS}{self.session_id}"
        return Scope(self.tenant_id, owner)

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """The context that a trusted caller's headers name; their names may be written in any case."""
        return cls._of({name.lower(): value for name, value in headers.items()})

    @classmethod
    def from_request(cls, request: HTTPConnection) -> Self:
        """The context of an HTTP request.

        Who is logged in (`request.state.user`) is the user. X-User-Id and X-Tenant-Id count only where the application
        says that nobody has to log in (`app.state.trusts_headers`).
        """
        headers = {name.lower(): value for name, value in request.headers.items()}
        user = getattr(request.state, "user", None)
        if user is not None or not getattr(request.app.state, "trusts_headers", False):
            for name in ("x-user-id", "x-tenant-id"):
                headers.pop(name, None)
        return cls._of(headers, user)

    @classmethod
    def _of(cls, headers: Mapping[str, str], user: object = None) -> Self:
        claimed = headers.get("x-user-id", "").strip()
        user_id = getattr(user, "id", None) or cls.get_user_id_or_default(claimed, "X-User-Id")
        tenant_id = getattr(user, "tenant_id", None) or headers.get("x-tenant-id", "").strip() or DEFAULT_TENANT
        session = headers.get("x-session-id", "").strip()
        session_id = str(resolve_session_id(session, Scope(tenant_id, user_id))) if session else None
        return cls(
            user_id=user_id,
            user_email=getattr(user, "email", None) or (claimed if "@" in claimed else None),
            tenant_id=tenant_id,
            session_id=session_id,
            session_name=None if not session or parse_uuid(session) else session,
            default_model=headers.get("x-model-name", "").strip() or None,
            agent_schema_uri=headers.get("x-agent-schema", "").strip() or None,
            is_eval=headers.get("x-is-eval", "").strip().lower() in ("true", "1", "yes"),
            client_id=headers.get("x-client-id", "").strip() or None,
        )

    @staticmethod
    def get_user_id_or_default(user_id: str | None, source: str, default: str | None = None) -> str | None:
        """The id of a user who was named by id or e-mail address; the default, if given, for who was not."""
        if user_id is None or not user_id.strip():
            return default
        try:
            return Scope.for_user(user_id.strip()).user_id
        except InvalidInputError as error:
            raise InvalidInputError(f"{source}: {error}") from error

    def in_session(self, session: str) -> Self:
        """The same caller in the session that a client names by its id or any other text."""
        session_id = str(resolve_session_id(session, Scope(self.tenant_id, self.user_id)))
        name = None if parse_uuid(session) else session
        return self.model_copy(update={"session_id": session_id, "session_name": name})

    def child_context(self, agent_schema_uri: str | None = None, model_override: str | None = None) -> Self:
        """The context of an agent that this one calls: the same user and conversation."""
        changes = {"agent_schema_uri": agent_schema_uri, "default_model": model_override}
        return self.model_copy(update={name: value for name, value in changes.items() if value is not None})


_current: ContextVar[AgentContext | None] = ContextVar("current_agent_context", default=None)


def get_current_context() -> AgentContext | None:
    """The context of the agent that is running, if one is."""
    return _current.get()


def set_current_context(context: AgentContext | None) -> None:
    """Let an agent run in a context."""
    _current.set(context)


@contextmanager
def agent_context_scope(context: AgentContext) -> Iterator[AgentContext]:
    """Run an agent in a context; the one before returns at the end."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def resolve_session_id(text: str, scope: Scope) -> uuid.UUID:
    """The id of the session that a client names: a UUID is itself, any other text is a name among the user's own."""
    session_id = parse_uuid(text)
    if session_id is not None:
        return session_id
    _refuse_unstorable("session id", text)
    return uuid.uuid5(_SESSIONS, "\n".join((scope.tenant_id, scope.user_id or "", text)))


def parse_uuid(text: str) -> uuid.UUID | None:
    """The UUID that a text is, in any of its spellings; None if it is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def _refuse_unstorable(what: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"The {what} is not valid Unicode text.") from error
    if "\0" in value:
        raise InvalidInputError(f"The {what} contains a NUL character; remove it.")
