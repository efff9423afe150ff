"""FastAPI dependencies of the routes: the caller, the open REM, the agents, the settings, and JSON bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from email.message import Message as MimeHeaders
from typing import Annotated

from fastapi import Depends, Header, Request

from rem.agents.service import Agents
from rem.app import Rem
from rem.auth.identity import Identity, Role
from rem.context import AgentContext, Scope
from rem.errors import ForbiddenError, InvalidInputError, MemoryDisabledError, UnauthorizedError
from rem.settings import Settings

JSON_CONTENT_TYPE_MISSING = "The body is not sent as JSON: add the header Content-Type: application/json."


async def _get_context(
    request: Request,
    x_user_id: Annotated[
        str | None, Header(description="The user: an e-mail address or an id. Without it, the caller is anonymous.")
    ] = None,
    x_tenant_id: Annotated[str | None, Header(description="The workspace; default: `default`.")] = None,
) -> AgentContext:
    """Return the caller. The headers are parameters only to appear in the OpenAPI document."""
    context, rem = AgentContext.from_request(request), request.app.state.rem
    return context if rem is None else await rem.resolve_session(context)


ContextDep = Annotated[AgentContext, Depends(_get_context)]


async def get_identity(request: Request) -> Identity:
    """Return the caller as the authentication middleware found it."""
    identity: Identity | None = getattr(request.state, "user", None)
    if identity is None:
        raise UnauthorizedError
    return identity


IdentityDep = Annotated[Identity, Depends(get_identity)]


def require_role(*roles: Role) -> Callable[[Identity], Awaitable[Identity]]:
    """Return a dependency that refuses callers with none of the roles: `Depends(require_role(Role.ADMIN))`."""

    async def check(identity: IdentityDep) -> Identity:
        if any(identity.has_role(role) for role in roles):
            return identity
        names = " or ".join(roles)
        if not identity.is_authenticated:
            raise UnauthorizedError(f"This needs a login with the role {names}: send a token or an API key.")
        raise ForbiddenError(f"This needs the role {names}, and a key with the scope of the same name.")

    return check


async def _get_scope(context: ContextDep) -> Scope:
    return context.scope


async def _get_rem(request: Request) -> Rem:
    rem: Rem | None = request.app.state.rem
    if rem is None:
        raise MemoryDisabledError
    return rem


async def _get_agents(request: Request) -> Agents:
    agents: Agents = request.app.state.agents
    return agents


async def _get_settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


ScopeDep = Annotated[Scope, Depends(_get_scope)]
RemDep = Annotated[Rem, Depends(_get_rem)]
AgentsDep = Annotated[Agents, Depends(_get_agents)]
SettingsDep = Annotated[Settings, Depends(_get_settings)]


async def _require_json_content_type(request: Request) -> None:
    if await request.body() and not _is_json(request.headers.get("content-type", "")):
        raise InvalidInputError(JSON_CONTENT_TYPE_MISSING)


JsonBody = Depends(_require_json_content_type)
"""Refuses a body without a JSON Content-Type. FastAPI alone would report that the body has no fields."""


def _is_json(content_type: str) -> bool:
    headers = MimeHeaders()
    headers["content-type"] = content_type
    subtype = headers.get_content_subtype()
    return headers.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


async def resolve_session(rem: Rem, context: AgentContext, session: str) -> AgentContext:
    """Return the caller's context with the id of `session`, which is an id or a name.

    An anonymous caller owns the session whose id it knows.
    """
    return await rem.resolve_session(context.in_session(session))
