"""`/messages`: what was said, one message at a time."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from rem.api.dependencies import ContextDep, JsonBody, RemDep
from rem.api.openapi_errors import error_responses
from rem.api.row_lookup import find_row
from rem.app import Rem
from rem.context import AgentContext, Scope, parse_uuid
from rem.errors import NotFoundError
from rem.models import Message, Role

router = APIRouter(prefix="/messages", tags=["messages"])

_KEY = re.compile(r"(?:messages/)?session-([0-9a-f-]{36})-msg-([0-9]{1,10})\Z", re.IGNORECASE)
_MOST_SHARED = 1000
Name = Annotated[str, Path(description="The message's id, or its key `session-{id}-msg-{index}`.", min_length=1)]


class MessageView(BaseModel):
    """A message."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "example": {
                "id": "7f6a2f0e-59a5-4b5e-9d0a-5f8b8f6f2a11",
                "key": "session-550e8400-e29b-41d4-a716-446655440000-msg-0",
                "session_id": "550e8400-e29b-41d4-a716-446655440000",
                "message_index": 0,
                "role": "user",
                "content": "What is REM?",
                "tool_calls": [],
                "tool_call_id": None,
                "tool_name": None,
                "model": None,
                "token_count": 5,
                "metadata": {},
                "created_at": "2026-11-15T09:30:00Z",
            }
        },
    )

    id: UUID
    key: str
    session_id: UUID
    message_index: int
    role: Role
    content: str
    tool_calls: list[Any]
    tool_call_id: str | None
    tool_name: str | None
    model: str | None
    token_count: int | None
    metadata: dict[str, Any]
    created_at: datetime


class FlagMessageRequest(BaseModel):
    """Whether a message is important."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"important": True}})

    important: bool = Field(strict=True, description="Let hybrid memory keep the message however long ago it was said.")


@router.get("/{message}", summary="Get a message", responses=error_responses(404))
async def get_message(rem: RemDep, context: ContextDep, message: Name) -> MessageView:
    """A message of a conversation that the caller may read, word for word."""
    return MessageView.model_validate(await find_readable_message(rem, with_message_session(context, message), message))


@router.patch("/{message}", summary="Flag a message", responses=error_responses(404), dependencies=[JsonBody])
async def flag_message(rem: RemDep, context: ContextDep, message: Name, flag: FlagMessageRequest) -> MessageView:
    """Mark a message of the caller's own as important, or no longer. What was said never changes."""
    context = with_message_session(context, message)
    own = await find_row(rem.store(context.scope), Message, message)
    flagged = await rem.memory(context.scope).flag_message(own.session_id, own.message_index, flag.important)
    return MessageView.model_validate(flagged)


@router.delete("/{message}", status_code=204, summary="Delete a message", responses=error_responses(404, 409))
async def delete_message(rem: RemDep, context: ContextDep, message: Name) -> None:
    """Delete a message of the caller's own. `POST /restore/messages/{id}` brings it back."""
    store = rem.store(with_message_session(context, message).scope)
    await store.delete(await find_row(store, Message, message))


async def find_readable_message(rem: Rem, context: AgentContext, name: str) -> Message:
    """A message by id or key, of the caller's own or of a conversation that is shared with the caller."""
    try:
        return await find_row(rem.store(context.scope), Message, name)
    except NotFoundError:
        message = await _shared_message(rem, context, name) if context.scope.user_id else None
        if message is None:
            raise
        return message


async def _shared_message(rem: Rem, context: AgentContext, name: str) -> Message | None:
    memory = rem.memory(context.scope)
    key, message_id = _KEY.match(name), parse_uuid(name)
    if key is not None:
        index = int(key[2])
        page = await memory.get_messages(UUID(key[1]), after=index - 1, limit=1)
        return next((message for message in page if message.message_index == index), None)
    if message_id is None:
        return None
    shared: dict[str | None, list[UUID]] = {}
    for session in await memory.list_shared_sessions(_MOST_SHARED):
        shared.setdefault(session.user_id, []).append(session.id)
    for owner, sessions in shared.items():
        store = rem.store(Scope(context.tenant_id, owner))
        for message in await store.find(Message, {"id": message_id, "session_id": sessions}, limit=1):
            return message
    return None


def with_message_session(context: AgentContext, name: str) -> AgentContext:
    """Who is nobody in particular owns the conversation whose id is in the message's key."""
    key = _KEY.match(name)
    return context.in_session(key[1]) if key and parse_uuid(key[1]) and context.user_id is None else context
