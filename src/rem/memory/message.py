"""Messages on their way: what is to be stored, what was stored, and what the model is given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rem.errors import InvalidInputError
from rem.memory.tokens import count_message_tokens
from rem.models.field_types import check_text, to_json_value
from rem.models.message import Role

_DEEPEST = 50
NOTE_TOOLS = frozenset({"register_metadata", "action"})
"""Tools whose calls are the agent's notes, which are stored; what other tools return is not."""


class NewMessage(BaseModel):
    """A message that is to be stored, exactly as it was said.

    Text that PostgreSQL cannot hold is refused; in what a model says its place is marked instead, because an answer
    that was given must not be lost.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    content: str = ""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    tool_call_id: str | None = None
    tool_name: str | None = None
    model: str | None = None
    token_count: int | None = Field(default=None, ge=0, lt=2**31)
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _mark_unstorable(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("role") not in (Role.ASSISTANT, Role.TOOL):
            return data
        return {name: value if name == "role" else _marked(value) for name, value in data.items()}

    @model_validator(mode="after")
    def _storable(self) -> Self:
        if not self.content.strip() and not self.tool_calls and self.tool_call_id is None:
            raise InvalidInputError("The message is empty: only one with tool calls may be.")
        try:
            for text in (self.content, self.tool_call_id, self.tool_name, self.model):
                check_text(text or "")
            to_json_value(self.tool_calls)
            to_json_value(self.metadata)
        except ValueError as error:
            raise InvalidInputError(f"The message {error}.") from error
        return self

    @property
    def tokens(self) -> int:
        """The tokens of the message: as given, else counted."""
        return self.token_count if self.token_count is not None else count_message_tokens(self.content, self.tool_calls)


def _marked(value: Any, depth: int = 0) -> Any:
    """The value with a mark, or as text, where it has what PostgreSQL cannot hold."""
    if isinstance(value, str):
        return _marked_text(value)
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return _marked_text(str(value))
    if isinstance(value, dict):
        return {_marked(key): _marked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item, depth + 1) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _marked_text(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").replace("\0", "\ufffd")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message that was stored just now."""

    id: UUID
    session_id: UUID
    message_index: int

    @property
    def key(self) -> str:
        """What LOOKUP finds it by."""
        return message_key(self.session_id, self.message_index)


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A message as the model is given it: a long answer is shortened, and says how to get it back."""

    index: int
    role: Role
    content: str
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    tool_arguments: dict[str, Any] | None = None
    is_truncated: bool = False
    tokens: int = 0
    is_important: bool = False

    @property
    def begins_turn(self) -> bool:
        """Whether a history may begin with it: an answer or a tool call without its question tells nothing."""
        return self.role in (Role.USER, Role.SYSTEM)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that has begun: the user's message is stored, and this was the conversation before it."""

    session_id: UUID
    message_id: UUID
    message_index: int
    history: list[HistoryMessage]
    """Oldest first, within the budget."""
    summary: str | None
    """Of what the budget left out."""
    is_new: bool
    """Whether the session was made for this message."""


def message_key(session_id: UUID, index: int) -> str:
    """The key of a stored message."""
    return f"session-{session_id}-msg-{index}"


def to_record(message: NewMessage) -> tuple[dict[str, Any], int]:
    """The message as the database takes it, with an id, and how many tokens it has."""
    tokens = message.tokens
    record = {
        "id": uuid4(),
        "role": message.role.value,
        "content": message.content,
        "tool_calls": to_json_value(message.tool_calls),
        "tool_call_id": message.tool_call_id,
        "tool_name": message.tool_name,
        "model": message.model,
        "token_count": tokens,
        "metadata": to_json_value(message.metadata),
    }
    return record, tokens
