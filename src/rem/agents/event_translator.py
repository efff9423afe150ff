"""EventTranslator: translate the events of a pydantic-ai run into REM's events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic_ai import CustomEvent
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_core import to_jsonable_python

from rem.agents.json_safe import SurrogateBuffer, to_json_safe
from rem.events import AnyEvent, ReasoningEvent, TextEvent, ToolCallEvent
from rem.text import fold_text

MAX_RESULT_BYTES = 20_000
"""Size of a tool result in an event, as JSON."""


@dataclass(kw_only=True)
class EmittedEvent(CustomEvent):
    """An event that a tool emits while it runs: its own, or an event of a child run."""

    event: AnyEvent


class EventTranslator:
    """Translates the events of one run. Passes on events of child runs, and removes repetitions of their text."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._repetitions = RepetitionFilter()
        self._text_buffer, self._reasoning_buffer = SurrogateBuffer(), SurrogateBuffer()
        self._reasoning_step = 0
        self._last_agent: str | None = None
        self._last_char = ""
        self._is_new_part = False

    def translate(self, event: object) -> Iterator[AnyEvent]:
        """Yield REM's events for an event of the library; none if the client does not need it."""
        match event:
            case PartStartEvent(part=TextPart() as part):
                self._is_new_part = True
                yield from self._translate_text(part.content)
            case PartDeltaEvent(delta=TextPartDelta() as delta):
                yield from self._translate_text(delta.content_delta)
            case PartStartEvent(part=ThinkingPart() as part):
                self._reasoning_step += 1
                yield from self._translate_reasoning(part.content)
            case PartDeltaEvent(delta=ThinkingPartDelta() as delta):
                yield from self._translate_reasoning(delta.content_delta or "")
            case FunctionToolCallEvent(part=part):
                yield self._make_started_event(part)
            case FunctionToolResultEvent(part=part):
                yield self._make_ended_event(part)
            case EmittedEvent(event=TextEvent() as child_text):
                self._repetitions.add_child_text(child_text.content)
                yield from self._separate_paragraphs(child_text)
            case EmittedEvent(event=emitted):
                yield emitted

    def _translate_text(self, content: str) -> Iterator[AnyEvent]:
        text = self._repetitions.filter(self._text_buffer.feed(content))
        if text:
            yield from self._separate_paragraphs(TextEvent(content=text, agent=self._agent))

    def _separate_paragraphs(self, event: TextEvent) -> Iterator[AnyEvent]:
        """Yield the text, after an empty line if another agent wrote before or a tool was called in between."""
        is_new_paragraph = event.agent != self._last_agent or (event.agent == self._agent and self._is_new_part)
        if is_new_paragraph and self._last_char and not self._last_char.isspace() and not event.content[:1].isspace():
            yield TextEvent(content="\n\n", agent=event.agent)
        self._last_agent, self._last_char = event.agent, event.content[-1:]
        self._is_new_part = False
        yield event

    def _translate_reasoning(self, content: str) -> Iterator[AnyEvent]:
        content = self._reasoning_buffer.feed(content)
        if content:
            yield ReasoningEvent(content=content, step=self._reasoning_step, agent=self._agent)

    def _make_started_event(self, part: ToolCallPart) -> ToolCallEvent:
        return ToolCallEvent(
            tool_name=to_json_safe(part.tool_name),
            tool_id=to_json_safe(part.tool_call_id),
            status="started",
            arguments=_parse_arguments(part),
            agent=self._agent,
        )

    def _make_ended_event(self, part: ToolReturnPart) -> ToolCallEvent:
        return ToolCallEvent(
            tool_name=to_json_safe(part.tool_name),
            tool_id=to_json_safe(part.tool_call_id),
            status="completed" if part.outcome == "success" else "failed",
            result=_cut_result(part.content),
            agent=self._agent,
        )


class RepetitionFilter:
    """Removes text of a parent agent that repeats the text of its child.

    Text that may be a repetition is held back until it differs.
    """

    def __init__(self) -> None:
        self._child_text = ""
        self._held_text = ""

    def add_child_text(self, text: str) -> None:
        """Record text of a child."""
        self._child_text += text

    def filter(self, text: str) -> str:
        """Return the part of the parent's text that can be shown now."""
        if not self._child_text:
            return text
        self._held_text += text
        if fold_text(self._held_text) in fold_text(self._child_text):
            return ""
        released, self._held_text, self._child_text = self._held_text, "", ""
        return released


class ToolCallIds:
    """Makes the ids of tool calls unique in one answer: some providers count from one in each request."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[tuple[str | None, str], list[str]] = defaultdict(list)

    def assign(self, event: AnyEvent) -> AnyEvent:
        """Return the event with a unique `tool_id`; start and end of a call get the same id.

        Of two open calls with the same id, the one that started last is taken to end first.
        """
        if not isinstance(event, ToolCallEvent):
            return event
        open_ids = self._open[event.agent, event.tool_id]
        if event.status == "started":
            open_ids.append(self._make_unique(event.tool_id))
            tool_id = open_ids[-1]
        else:
            tool_id = open_ids.pop() if open_ids else event.tool_id
        return event if tool_id == event.tool_id else event.model_copy(update={"tool_id": tool_id})

    def _make_unique(self, tool_id: str) -> str:
        number, unique = 1, tool_id
        while unique in self._used:
            number += 1
            unique = f"{tool_id}-{number}"
        self._used.add(unique)
        return unique


def _parse_arguments(part: ToolCallPart) -> dict[str, Any]:
    """Return the arguments as JSON; arguments that are not JSON are returned as text under `_unreadable`."""
    try:
        arguments: dict[str, Any] = to_json_safe(to_jsonable_python(part.args_as_dict(), fallback=str))
    except (ValueError, AssertionError, RecursionError):
        return {"_unreadable": to_json_safe(str(part.args)[:MAX_RESULT_BYTES])}
    return arguments


def _cut_result(content: object) -> object:
    """Return a tool result as JSON; only its beginning if it is larger than MAX_RESULT_BYTES."""
    result = to_json_safe(to_jsonable_python(content, fallback=str))
    text = orjson.dumps(result)
    if len(text) <= MAX_RESULT_BYTES:
        return result
    return {"truncated": True, "bytes": len(text), "begins": text[:MAX_RESULT_BYTES].decode(errors="ignore")}
