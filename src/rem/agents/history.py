"""From a stored conversation to the messages that a model is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from rem.models.message import Role

if TYPE_CHECKING:
    from rem.agents.turn import Said
    from rem.memory.message import HistoryMessage

_NOT_KEPT = (
    "The result was not kept. What mattered of it is in the notes and answers; call the tool again if you need it."
)


def model_messages(history: Iterable[HistoryMessage]) -> list[ModelMessage]:
    """The messages of a conversation; every tool call has an answer, because providers refuse one without."""
    seen: set[str] = set()
    return [message for stored in history for message in _messages_of(stored, seen)]


def _messages_of(stored: HistoryMessage, seen: set[str]) -> Iterator[ModelMessage]:
    match stored.role:
        case Role.USER:
            yield ModelRequest(parts=[UserPromptPart(stored.content)])
        case Role.SYSTEM:
            yield ModelRequest(parts=[SystemPromptPart(stored.content)])
        case Role.ASSISTANT:
            yield ModelResponse(parts=[TextPart(stored.content)])
        case Role.TOOL:
            yield from _call_and_answer(stored, seen)


def _call_and_answer(stored: HistoryMessage, seen: set[str]) -> Iterator[ModelMessage]:
    name = stored.tool_name or "unknown_tool"
    call_id = stored.tool_call_id or f"call-{stored.index}"
    if call_id in seen:
        # Some providers number the calls of each answer from one.
        call_id = f"{call_id}-{stored.index}"
    seen.add(call_id)
    yield ModelResponse(parts=[ToolCallPart(name, stored.tool_arguments or {}, call_id)])
    yield ModelRequest(parts=[ToolReturnPart(name, stored.content or _NOT_KEPT, call_id)])


def client_messages(earlier: Iterable[Said]) -> list[ModelMessage]:
    """The messages that a client sent along."""
    return [
        ModelRequest(parts=[UserPromptPart(said.content)])
        if said.role == "user"
        else ModelResponse(parts=[TextPart(said.content)])
        for said in earlier
    ]
