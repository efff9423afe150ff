"""Messages outside the database: to be stored, just stored, and as the model gets them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rem.encryption.sealed_values import Place, Sealer, seal_tool_arguments
from rem.errors import InvalidInputError
from rem.message_kinds import get_kind
from rem.models.field_types import check_text, to_json_value
from rem.models.message import MessageKind, Role
from rem.privacy.policy import PrivacyPolicy
from rem.sessions.tokens import count_message_tokens
from rem.text import clean_text

MAX_NESTED_VALUES = 50
"""Deeper JSON is stored as text."""
NOTE_TOOLS = frozenset({"register_metadata", "action"})
"""Tools whose calls are notes of the agent. Notes are stored; the results of other tools are not."""
REASONING = "reasoning"
"""The `tool_name` of a message with reasoning of a model, which has no `tool_call_id`. Models do not get it again."""
OUTCOME_FIELD = "outcome"
"""Where the metadata of a tool call say how it ended: `status`, and the `keys` of the rows that it returned."""


class NewMessage(BaseModel):
    """A message to be stored without changes.

    Text that PostgreSQL cannot store raises `InvalidInputError`. In assistant and tool messages it is replaced instead,
    because an answer that the user has seen must not be lost.
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
    kind: MessageKind | None = None
    """What the message is; by default it is recognised by its text."""

    @model_validator(mode="before")
    @classmethod
    def _replace_unstorable_values(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("role") not in (Role.ASSISTANT, Role.TOOL):
            return data
        return {name: value if name == "role" else _replace_unstorable(value) for name, value in data.items()}

    @model_validator(mode="after")
    def _check_storable(self) -> Self:
        if not self.content.strip() and not self.tool_calls and self.tool_call_id is None:
            raise InvalidInputError("The message is empty. Only a message with tool calls may be empty.")
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
        """The number of tokens: `token_count` if given, else counted."""
        if self.token_count is not None:
            return self.token_count
        return count_message_tokens(self.content, self.tool_calls)


def _replace_unstorable(value: Any, depth: int = 0) -> Any:
    """Return the value without anything that PostgreSQL cannot store: marked, as text, or None."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict | list) and depth > MAX_NESTED_VALUES:
        return clean_text(str(value))
    if isinstance(value, dict):
        return {_replace_unstorable(key): _replace_unstorable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_unstorable(item, depth + 1) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """The ids of a message that was just stored."""

    id: UUID
    session_id: UUID
    message_index: int

    @property
    def key(self) -> str:
        """The key for LOOKUP."""
        return message_key(self.session_id, self.message_index)


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """A message as the model gets it. A long answer is shortened and names the key of its full text."""

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
        """True if a history may start here: an answer or tool call without its question has no meaning."""
        return self.role in (Role.USER, Role.SYSTEM)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that has begun: its user message is stored, and `history` is the session before it."""

    session_id: UUID
    message_id: UUID
    message_index: int
    history: list[HistoryMessage]
    """Oldest first, within the token budget."""
    summary: str | None
    """Summary of the messages that did not fit the budget."""
    is_new: bool
    """True if the session was created for this message."""
    system_prompt: str | None = None
    """The system prompt of the session."""
    masked: tuple[str, ...] = ()
    """Kinds of secrets that were masked in the stored message, such as "api key". The model sees them."""

    def list_known_messages(self) -> frozenset[tuple[UUID, int]]:
        """Return (session id, index) of the messages that a model sees in full: the history and the new message."""
        known = (message.index for message in self.history if not message.is_truncated)
        return frozenset((self.session_id, index) for index in (self.message_index, *known))


def message_key(session_id: UUID, index: int) -> str:
    """Return the key of a stored message."""
    return f"session-{session_id}-msg-{index}"


def to_record(
    message: NewMessage, privacy: PrivacyPolicy, sealer: Sealer | None = None, tenant_id: str = ""
) -> tuple[dict[str, Any], int]:
    """Return the message as the database takes it, with a new id, and its number of tokens.

    What `privacy` masks is masked, and the texts are encrypted if there is a sealer. The policy refuses only messages
    of the user: an answer must not be lost.
    """
    policy = privacy if message.role == Role.USER else privacy.masking
    kind = message.kind or get_kind(message.role, message.content)
    masked = {
        "content": policy.mask(message.content, "message"),
        "tool_calls": policy.mask_value(message.tool_calls, "tool call"),
        "metadata": policy.mask_value(message.metadata, "metadata"),
    }
    message = message.model_copy(update=masked)
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
        "kind": kind,
        "metadata": to_json_value(message.metadata),
    }
    return seal_message(record, sealer, tenant_id), tokens


def seal_message(record: dict[str, Any], sealer: Sealer | None, tenant_id: str) -> dict[str, Any]:
    """Return the record of a message with its texts encrypted, if there is a sealer."""
    if sealer is None or not sealer.is_sealing:
        return record
    row_id = UUID(str(record["id"]))
    return record | {
        "content": sealer.seal_text("messages", "content", record["content"], tenant_id, row_id),
        "tool_calls": sealer.seal_json(record["tool_calls"], Place(tenant_id, row_id, "tool_calls")),
        "metadata": seal_tool_arguments(sealer, record["metadata"], tenant_id, row_id),
    }
