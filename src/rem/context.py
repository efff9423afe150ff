"""The caller: the scope of every read and write, and the context of an agent."""

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
MAX_TENANT_BYTES = 255
MAX_USER_ID_CHARS = 255


@dataclass(frozen=True, slots=True)
class Scope:
    """The tenant and the user whose rows a call may read and write.

    Reads see the user's own rows and the shared rows of the tenant. Writes go to the user's own rows.
    A caller without a user is anonymous: it reads only shared rows, and its writes are shared.
    """

    tenant_id: str = DEFAULT_TENANT
    user_id: str | None = None

    def __post_init__(self) -> None:
        refuse_unstorable("tenant", self.tenant_id)
        if not 1 <= len(self.tenant_id.encode()) <= MAX_TENANT_BYTES:
            raise InvalidInputError(f"A tenant has 1 to {MAX_TENANT_BYTES} bytes.")
        if self.user_id is not None:
            refuse_unstorable("user", self.user_id)
            if not self.user_id.strip() or len(self.user_id) > MAX_USER_ID_CHARS:
                raise InvalidInputError(
                    f"A user id has 1 to {MAX_USER_ID_CHARS} characters; leave the user out to act anonymously."
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
    """Return the id of a user: the UUID5 of an e-mail address, or the text itself if it is not an address."""
    if "@" in user and not user.isspace():
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, user.strip().lower()))
    return user


_ANONYMOUS_PREFIX = "anon:"
_SESSION_NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


class AgentContext(BaseModel):
    """The caller of an agent: user, tenant, session, agent and model.

    User and tenant come from the authentication of the caller. A model cannot change them.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    user_id: str | None = None
    user_email: str | None = None
    """The e-mail address of the user, if it is known. It cannot be derived from the id."""
    tenant_id: str = DEFAULT_TENANT
    session_id: str | None = None
    """A UUID. `resolve_session_id` turns any other name of a session into one."""
    session_name: str | None = None
    """The name that the client gave its session, if it is not a UUID."""
    default_model: str | None = None
    agent_schema_uri: str | None = None
    is_eval: bool = False
    client_id: str | None = None
    is_reader: bool = False
    """An anonymous caller while authentication is on: it must not write what the tenant shares."""
    may_approve: bool = True
    """False if the key or token of the user has no scope `write`: it chats, and decides on no request for approval."""
    is_transient: bool = False
    """Nothing of this request is stored: the client does not want it, or nobody would find it again."""

    @field_validator("user_id")
    @classmethod
    def _refuse_anonymous_prefix(cls, value: str | None) -> str | None:
        if value is not None and value.lower().startswith(_ANONYMOUS_PREFIX):
            raise InvalidInputError(f"A user id must not begin with {_ANONYMOUS_PREFIX!r}.")
        return value

    @property
    def scope(self) -> Scope:
        """The scope of the caller. An anonymous session owns its own rows, so no other caller can read them."""
        owner = self.user_id
        if owner is None and self.session_id is not None:
            owner = f"{_ANONYMOUS_PREFIX}{self.session_id}"
        return Scope(self.tenant_id, owner)

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """Return the context from the headers of a trusted caller. Header names are case-insensitive."""
        return cls._from_lower_headers({name.lower(): value for name, value in headers.items()})

    @classmethod
    def from_request(cls, request: HTTPConnection) -> Self:
        """Return the context of an HTTP request.

        The user is the logged-in one (`request.state.user`). X-User-Id and X-Tenant-Id are used only if the application
        trusts them (`app.state.trusts_headers`).
        """
        headers = {name.lower(): value for name, value in request.headers.items()}
        user = getattr(request.state, "user", None)
        if user is not None or not getattr(request.app.state, "trusts_headers", False):
            for name in ("x-user-id", "x-tenant-id"):
                headers.pop(name, None)
        return cls._from_lower_headers(headers, user)

    @classmethod
    def _from_lower_headers(cls, headers: Mapping[str, str], user: object = None) -> Self:
        named_user = headers.get("x-user-id", "").strip()
        user_id = getattr(user, "id", None) or cls.get_user_id_or_default(named_user, "X-User-Id")
        tenant_id = getattr(user, "tenant_id", None) or headers.get("x-tenant-id", "").strip() or DEFAULT_TENANT
        may_write = "write" in getattr(user, "scopes", ("write",))
        session = headers.get("x-session-id", "").strip()
        session_id = str(resolve_session_id(session, Scope(tenant_id, user_id))) if session else None
        return cls(
            user_id=user_id,
            user_email=getattr(user, "email", None) or (named_user if "@" in named_user else None),
            tenant_id=tenant_id,
            session_id=session_id,
            session_name=None if not session or parse_uuid(session) else session,
            default_model=headers.get("x-model-name", "").strip() or None,
            agent_schema_uri=headers.get("x-agent-schema", "").strip() or None,
            is_eval=headers.get("x-is-eval", "").strip().lower() in ("true", "1", "yes"),
            client_id=headers.get("x-client-id", "").strip() or None,
            is_reader=user_id is None and not may_write,
            may_approve=user_id is None or may_write,
        )

    @staticmethod
    def get_user_id_or_default(user_id: str | None, source: str, default: str | None = None) -> str | None:
        """Return the id of a user, given by id or e-mail address; `default` if no user is given.

        Raise InvalidInputError, which begins with `source`, if the id is not valid.
        """
        if user_id is None or not user_id.strip():
            return default
        try:
            return Scope.for_user(user_id.strip()).user_id
        except InvalidInputError as error:
            raise InvalidInputError(f"{source}: {error}") from error

    def in_session(self, session: str) -> Self:
        """Return the context of the same caller in a session, given by its id or its name."""
        session_id = str(resolve_session_id(session, Scope(self.tenant_id, self.user_id)))
        name = None if parse_uuid(session) else session
        return self.model_copy(update={"session_id": session_id, "session_name": name})

    def child_context(self, agent_schema_uri: str | None = None, model_override: str | None = None) -> Self:
        """Return the context of an agent that this one calls: the same user and session."""
        changes = {"agent_schema_uri": agent_schema_uri, "default_model": model_override}
        return self.model_copy(update={name: value for name, value in changes.items() if value is not None})


_current: ContextVar[AgentContext | None] = ContextVar("current_agent_context", default=None)


def get_current_context() -> AgentContext | None:
    """Return the context of the running agent; None if there is none."""
    return _current.get()


def set_current_context(context: AgentContext | None) -> None:
    """Set the context of the running agent."""
    _current.set(context)


@contextmanager
def agent_context_scope(context: AgentContext) -> Iterator[AgentContext]:
    """Set the context of the running agent inside of the block, and restore the previous one afterwards."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def resolve_session_id(text: str, scope: Scope) -> uuid.UUID:
    """Return the id of a session: the UUID itself, or a provisional UUID5 of a name, which is unique for the user.

    Anyone can compute the UUID5, so no new session gets it: `Rem.resolve_session` replaces it first.
    """
    session_id = parse_uuid(text)
    if session_id is not None:
        return session_id
    refuse_unstorable("session id", text)
    return uuid.uuid5(_SESSION_NAMESPACE, "\n".join((scope.tenant_id, scope.user_id or "", text)))


def parse_uuid(text: str) -> uuid.UUID | None:
    """Parse `text` as a UUID. Return None if it is not one."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def refuse_unstorable(label: str, value: str) -> None:
    """Raise InvalidInputError if PostgreSQL cannot store a text."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"The {label} is not valid Unicode text.") from error
    if "\0" in value:
        raise InvalidInputError(f"The {label} contains a NUL character; remove it.")
