"""`/messages`: read, flag and delete single messages."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from rem.api.dependencies import ContextDep, JsonBody, RemDep
from rem.api.openapi_errors import error_responses
from rem.api.row_lookup import EraseOption, delete_row, find_row
from rem.app import Rem
from rem.context import AgentContext, Scope, parse_uuid
from rem.db.retry import retry_when_busy
from rem.errors import NotFoundError
from rem.models import Message, Role

router = APIRouter(prefix="/messages", tags=["messages"])

MESSAGE_KEY = re.compile(r"(?:messages/)?session-([0-9a-f-]{36})-msg-([0-9]{1,10})\Z", re.IGNORECASE)
MAX_SHARED_SESSIONS = 1000
"""The number of shared sessions in which a message is searched by its id."""
MessageName = Annotated[str, Path(description="The message's id, or its key `session-{id}-msg-{index}`.", min_length=1)]


class MessageView(BaseModel):
    """One message of a session."""

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
    """Mark a message as important, or not."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"important": True}})

    important: bool = Field(strict=True, description="Whether hybrid memory keeps the message, however old it is.")


@router.get("/{message}", summary="Get a message", responses=error_responses(404))
async def get_message(rem: RemDep, context: ContextDep, message: MessageName) -> MessageView:
    """Return a message, word for word, of a session that the caller may read."""
    return MessageView.model_validate(await find_readable_message(rem, with_message_session(context, message), message))


@router.patch("/{message}", summary="Flag a message", responses=error_responses(404), dependencies=[JsonBody])
async def flag_message(rem: RemDep, context: ContextDep, message: MessageName, flag: FlagMessageRequest) -> MessageView:
    """Mark one of the caller's own messages as important, or not. Its content never changes."""
    context = with_message_session(context, message)
    row = await find_row(rem.for_user(context.scope).store, Message, message)
    flagged = await rem.for_user(context.scope).sessions.flag_message(row.session_id, row.message_index, flag.important)
    return MessageView.model_validate(flagged)


@router.delete("/{message}", status_code=204, summary="Delete a message", responses=error_responses(404, 409))
async def delete_message(rem: RemDep, context: ContextDep, message: MessageName, erase: EraseOption = False) -> None:
    """Delete one of the caller's own messages. `POST /restore/messages/{id}` restores it, unless it is erased."""
    store = rem.for_user(with_message_session(context, message).scope).store
    await retry_when_busy(lambda: delete_row(store, Message, message, erase=erase))


async def find_readable_message(rem: Rem, context: AgentContext, name: str) -> Message:
    """Return the message with this id or key, from the caller's sessions or from a session shared with the caller."""
    try:
        return await find_row(rem.for_user(context.scope).store, Message, name)
    except NotFoundError:
        message = await _find_shared_message(rem, context, name) if context.scope.user_id else None
        if message is None:
            raise
        return message


async def _find_shared_message(rem: Rem, context: AgentContext, name: str) -> Message | None:
    memory = rem.for_user(context.scope).sessions
    key, message_id = MESSAGE_KEY.match(name), parse_uuid(name)
    if key is not None:
        index = int(key[2])
        page = await memory.get_messages(UUID(key[1]), after=index - 1, limit=1)
        return next((message for message in page if message.message_index == index), None)
    if message_id is None:
        return None
    session_ids_by_owner: dict[str | None, list[UUID]] = {}
    for session in await memory.list_shared_sessions(MAX_SHARED_SESSIONS):
        session_ids_by_owner.setdefault(session.user_id, []).append(session.id)
    for owner, session_ids in session_ids_by_owner.items():
        store = rem.for_user(Scope(context.tenant_id, owner)).store
        for message in await store.find(Message, {"id": message_id, "session_id": session_ids}, limit=1):
            return message
    return None


def with_message_session(context: AgentContext, name: str) -> AgentContext:
    """Return the context of an anonymous caller in the session whose id is part of the message's key.

    Anonymous callers own the sessions whose ids they know. The context of other callers is returned as it is.
    """
    key = MESSAGE_KEY.match(name)
    return context.in_session(key[1]) if key and parse_uuid(key[1]) and context.user_id is None else context
