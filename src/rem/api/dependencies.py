"""Who asks, and what they may use: the dependencies of the routes."""

from __future__ import annotations

from email.message import Message as MimeHeaders
from typing import Annotated

from fastapi import Depends, Header, Request

from rem.agents.service import Agents
from rem.app import Rem
from rem.context import AgentContext, Scope
from rem.errors import InvalidInputError, MemoryDisabledError
from rem.settings import Settings


async def _context(
    request: Request,
    x_user_id: Annotated[
        str | None, Header(description="Who asks: an e-mail address or an id. Without it: nobody in particular.")
    ] = None,
    x_tenant_id: Annotated[str | None, Header(description="The workspace; `default` if not given.")] = None,
) -> AgentContext:
    """The caller. The headers are parameters only so that the documentation shows them."""
    return AgentContext.from_request(request)


ContextDep = Annotated[AgentContext, Depends(_context)]


async def _scope(context: ContextDep) -> Scope:
    return context.scope


async def _rem(request: Request) -> Rem:
    rem: Rem | None = request.app.state.rem
    if rem is None:
        raise MemoryDisabledError
    return rem


async def _agents(request: Request) -> Agents:
    agents: Agents = request.app.state.agents
    return agents


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


ScopeDep = Annotated[Scope, Depends(_scope)]
RemDep = Annotated[Rem, Depends(_rem)]
AgentsDep = Annotated[Agents, Depends(_agents)]
SettingsDep = Annotated[Settings, Depends(_settings)]


async def resolve_session(rem: Rem, context: AgentContext, session: str) -> AgentContext:
    """The caller in the session that a request names. Who is nobody in particular owns one whose id they know."""
    context = context.in_session(session)
    named = await rem.memory(context.scope).resolve_session_id(session)
    return context.model_copy(update={"session_id": str(named)}) if context.user_id else context


JSON_CONTENT_TYPE_MISSING = "The body is not sent as JSON: add the header Content-Type: application/json."


async def _require_json_content_type(request: Request) -> None:
    if await request.body() and not _is_json(request.headers.get("content-type", "")):
        raise InvalidInputError(JSON_CONTENT_TYPE_MISSING)


def _is_json(content_type: str) -> bool:
    headers = MimeHeaders()
    headers["content-type"] = content_type
    kind = headers.get_content_subtype()
    return headers.get_content_maintype() == "application" and (kind == "json" or kind.endswith("+json"))


JsonBody = Depends(_require_json_content_type)
