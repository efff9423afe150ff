"""Transcript: what was said and done in one answer, as it is to be remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rem.agents.local_model import LOCAL_MODEL
from rem.events import AnyEvent, MetadataEvent, ReasoningEvent, TextEvent, ToolCallEvent
from rem.memory.message import NOTE_TOOLS, NewMessage
from rem.models.message import Role

if TYPE_CHECKING:
    from collections.abc import Sequence


class Transcript:
    """Collects the events of an answer."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[tuple[str | None, str], ToolCallEvent] = {}
        self._results: dict[tuple[str | None, str], Any] = {}
        self.confidence: float | None = None

    def add(self, event: AnyEvent) -> None:
        """Something happened."""
        match event:
            case TextEvent():
                self._text.append(event.content)
            case ReasoningEvent():
                self._reasoning.append(event.content)
            case ToolCallEvent(status="started"):
                self._calls[event.agent, event.tool_id] = event
            case ToolCallEvent():
                self._results[event.agent, event.tool_id] = event.result
            case MetadataEvent(confidence=float() as confidence):
                self.confidence = confidence

    @property
    def text(self) -> str:
        """All that the user was told."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str | None:
        """All that the model thought."""
        return "".join(self._reasoning) or None

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The calls with their results, for who asked."""
        return [
            {"name": call.tool_name, "args": call.arguments or {}, "result": self._results.get(key)}
            for key, call in self._calls.items()
        ]

    def messages(self, agent: str, model: str) -> Sequence[NewMessage]:
        """What is stored: each call without its result, then the text."""
        stored = [_call(call, agent, model) for call in self._calls.values()]
        if self.text.strip():
            # Extracts of the memory must not be found beside what they were taken from.
            about = {"agent": agent} | ({"searchable": False} if model == LOCAL_MODEL else {})
            stored.append(NewMessage(role=Role.ASSISTANT, content=self.text, model=model, metadata=about))
        return stored


def _call(call: ToolCallEvent, agent: str, model: str) -> NewMessage:
    arguments = call.arguments or {}
    return NewMessage(
        role=Role.TOOL,
        content=orjson.dumps(arguments).decode() if call.tool_name in NOTE_TOOLS else "",
        tool_calls=[{"id": call.tool_id, "name": call.tool_name, "arguments": arguments}],
        tool_call_id=call.tool_id,
        tool_name=call.tool_name,
        model=model,
        metadata={"tool_arguments": arguments, "agent": call.agent or agent},
    )
