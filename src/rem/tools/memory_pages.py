"""Pages of the caller's own memory: conversations, moments, and who the caller is."""

from __future__ import annotations

import re
from typing import Any

from rem.context import resolve_user_id
from rem.errors import InvalidInputError, NotFoundError
from rem.models import Entity, Message, Moment, Session
from rem.tools.env import ToolEnv
from rem.tools.profile import load_own_profile
from rem.tools.trimming import MAX_PREVIEW_CHARS, cut_text, drop_empty_fields

_SESSIONS = 50
_MESSAGES = 50
_MOMENTS = 20
_LAST_PAGE = 1_000_000
_PROFILE = ("name", "email", "role", "tier", "summary", "interests", "preferred_topics", "activity_level", "metadata")


async def sessions(env: ToolEnv) -> dict[str, Any]:
    """The caller's conversations, the latest first."""
    store = env.rem.store(env.scope)
    found = await store.find(Session, order_by="-updated_at", limit=_SESSIONS)
    return {"sessions": [_session(session) for session in found], "count": await store.count(Session)}


async def session(env: ToolEnv, id: str) -> dict[str, Any]:  # noqa: A002  # as the address has it
    """One conversation with its latest messages, by id or name."""
    store = env.rem.store(env.scope)
    found = await store.get(Session, await env.rem.memory(env.scope).resolve_session_id(id))
    latest = await store.find(Message, {"session_id": found.id}, order_by="-message_index", limit=_MESSAGES)
    messages = [
        {"key": message.key, "role": message.role, "content": cut_text(message.content, MAX_PREVIEW_CHARS, message.key)}
        | drop_empty_fields({"tool_name": message.tool_name, "created_at": message.created_at})
        for message in reversed(latest)
    ]
    return {**_session(found), "messages": messages, "shown": len(messages)}


async def moments(env: ToolEnv, page: str) -> dict[str, Any]:
    """What happened, the latest first, a page at a time; the first page is 1."""
    number = int(page) if re.fullmatch(r"[0-9]{1,7}", page) else 0
    if not 1 <= number <= _LAST_PAGE:
        raise InvalidInputError(f"A page is a whole number from 1 on, not {page[:100]!r}: rem://moments/1.")
    store = env.rem.store(env.scope)
    total = await store.count(Moment)
    found = await store.find(
        Moment, order_by="-starts_timestamp, -created_at", limit=_MOMENTS, offset=(number - 1) * _MOMENTS
    )
    pages = max(1, -(-total // _MOMENTS))
    return {"moments": [_shown(moment) for moment in found], "page": number, "pages": pages, "count": total}


async def moment(env: ToolEnv, key: str) -> dict[str, Any]:
    """One moment, by its key."""
    found = await env.rem.store(env.scope).lookup(key, table="moments")
    if not found:
        raise NotFoundError(f"No moment answers to {key[:200]!r}.")
    return _shown(found[0], longest=20_000)


async def profile(env: ToolEnv, user_id: str) -> dict[str, Any]:
    """Who the caller is, under the caller's own id, e-mail address or `me`; nobody else's profile exists here."""
    own = env.scope.user_id
    if own is None or env.context.user_id is None or (user_id != "me" and resolve_user_id(user_id) != own):
        raise NotFoundError(f"There is no profile of {user_id[:200]!r}: user://profile/me is the caller's own.")
    found = await load_own_profile(env)
    if found is None:
        return {"user_id": own, "note": "Nothing is known of this user yet."}
    return {"user_id": own, "key": found["key"], **drop_empty_fields({name: found.get(name) for name in _PROFILE})}


def _session(session: Session) -> dict[str, Any]:
    fields = {"id", "name", "description", "agent_schema", "message_count", "created_at", "updated_at"}
    return {**drop_empty_fields(session.model_dump(mode="json", include=fields)), "uri": f"rem://sessions/{session.id}"}


def _shown(entity: Entity, longest: int = MAX_PREVIEW_CHARS) -> dict[str, Any]:
    record = drop_empty_fields(entity.model_dump(mode="json"))
    return {
        name: cut_text(value, longest, entity.key) if isinstance(value, str) else value
        for name, value in record.items()
    }
