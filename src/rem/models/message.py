"""Messages of a session."""

from __future__ import annotations

from enum import StrEnum
from typing import Self
from uuid import UUID

from pydantic import Field, model_validator

from rem.models.entity import Entity
from rem.models.field_types import JsonList


class Role(StrEnum):
    """The author of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class MessageKind(StrEnum):
    """What a message is for the memory of its author. Only statements become memories."""

    STATEMENT = "statement"
    QUESTION = "question"
    COMMAND = "command"
    SMALL_TALK = "small_talk"
    QUOTATION = "quotation"
    ANSWER = "answer"
    """A message of the assistant."""


class Message(
    Entity,
    table="messages",
    key_fields=("id",),
    key_expression="'session-' || session_id::text || '-msg-' || message_index::text",
    summary="content",
    search=("content",),
):
    """One message of a session. Its content never changes."""

    session_id: UUID
    message_index: int = Field(ge=0, lt=2**31)
    role: Role
    content: str = ""
    tool_calls: JsonList = Field(default_factory=list)
    tool_call_id: str | None = None
    tool_name: str | None = None
    model: str | None = None
    token_count: int | None = Field(default=None, ge=0, lt=2**31)
    kind: MessageKind | None = None
    """None for messages of tools and the system, and for messages that were not stored by a session."""

    @model_validator(mode="after")
    def _refuse_empty(self) -> Self:
        if not self.content.strip() and not self.tool_calls and self.tool_call_id is None:
            raise ValueError("content: is empty, which only a message with tool calls may be")
        return self
