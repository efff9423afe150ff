"""Translator: from what pydantic-ai reports of a run to REM's events."""

from __future__ import annotations

import re
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

_SPACE = re.compile(r"\s+")


class RepetitionFilter:
    """Text that may be a repetition is held back until it turns out to be none."""

    def __init__(self) -> None:
        self._heard = ""
        self._held = ""

    def add_child_text(self, text: str) -> None:
        """A child has said something."""
        self._heard += text

    def filter(self, text: str) -> str:
        """What of the parent's text can be shown now."""
        if not self._heard:
            return text
        self._held += text
        if _normalize(self._held) in _normalize(self._heard):
            return ""
        new, self._held, self._heard = self._held, "", ""
        return new


def _normalize(text: str) -> str:
    return _SPACE.sub(" ", text).strip().casefold()


_LARGEST_RESULT = 20_000


@dataclass(kw_only=True)
class EmittedEvent(CustomEvent):
    """An event of REM's that a tool emits while it runs: its own, or one of an agent that it called."""

    event: AnyEvent


class EventTranslator:
    """Translates one run of one agent. Children's events come through it, and what they say is not said twice."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._echo = RepetitionFilter()
        self._words, self._thoughts = SurrogateBuffer(), SurrogateBuffer()
        self._step = 0
        self._speaker: str | None = None
        self._last = ""
        self._is_new_part = False

    def translate(self, event: object) -> Iterator[AnyEvent]:
        """What the user may see of something that happened in the run."""
        match event:
            case PartStartEvent(part=TextPart() as part):
                self._is_new_part = True
                yield from self._text(part.content)
            case PartDeltaEvent(delta=TextPartDelta() as delta):
                yield from self._text(delta.content_delta)
            case PartStartEvent(part=ThinkingPart() as part):
                self._step += 1
                yield from self._thought(part.content)
            case PartDeltaEvent(delta=ThinkingPartDelta() as delta):
                yield from self._thought(delta.content_delta or "")
            case FunctionToolCallEvent(part=part):
                yield self._started(part)
            case FunctionToolResultEvent(part=part):
                yield self._ended(part)
            case EmittedEvent(event=TextEvent() as said):
                self._echo.add_child_text(said.content)
                yield from self._said(said)
            case EmittedEvent(event=inner):
                yield inner

    def _text(self, content: str) -> Iterator[AnyEvent]:
        new = self._echo.filter(self._words.feed(content))
        if new:
            yield from self._said(TextEvent(content=new, agent=self._agent))

    def _said(self, event: TextEvent) -> Iterator[AnyEvent]:
        """The text, as a paragraph of its own where someone else spoke before or a tool was called in between."""
        begins = event.agent != self._speaker or (event.agent == self._agent and self._is_new_part)
        if begins and self._last and not self._last.isspace() and not event.content[:1].isspace():
            yield TextEvent(content="\n\n", agent=event.agent)
        self._speaker, self._last = event.agent, event.content[-1:]
        self._is_new_part = False
        yield event

    def _thought(self, content: str) -> Iterator[AnyEvent]:
        content = self._thoughts.feed(content)
        if content:
            yield ReasoningEvent(content=content, step=self._step, agent=self._agent)

    def _started(self, part: ToolCallPart) -> ToolCallEvent:
        return ToolCallEvent(
            tool_name=to_json_safe(part.tool_name),
            tool_id=to_json_safe(part.tool_call_id),
            status="started",
            arguments=_arguments(part),
            agent=self._agent,
        )

    def _ended(self, part: ToolReturnPart) -> ToolCallEvent:
        return ToolCallEvent(
            tool_name=to_json_safe(part.tool_name),
            tool_id=to_json_safe(part.tool_call_id),
            status="completed" if part.outcome == "success" else "failed",
            result=_shown(part.content),
            agent=self._agent,
        )


def _arguments(part: ToolCallPart) -> dict[str, Any]:
    """The arguments as JSON; what is none is shown as it came."""
    try:
        arguments: dict[str, Any] = to_json_safe(to_jsonable_python(part.args_as_dict(), fallback=str))
    except (ValueError, AssertionError, RecursionError):
        return {"_unreadable": to_json_safe(str(part.args)[:_LARGEST_RESULT])}
    return arguments


def _shown(content: object) -> object:
    """A tool's result for the eyes: whole, or its beginning if it is huge."""
    plain = to_json_safe(to_jsonable_python(content, fallback=str))
    text = orjson.dumps(plain)
    if len(text) <= _LARGEST_RESULT:
        return plain
    return {"truncated": True, "bytes": len(text), "begins": text[:_LARGEST_RESULT].decode(errors="ignore")}


class ToolCallIds:
    """Gives calls another id where the model's own is taken: some providers number those of each request from one."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._open: dict[tuple[str | None, str], list[str]] = defaultdict(list)

    def assign(self, event: AnyEvent) -> AnyEvent:
        """The event with the id of its call. Of calls with the same id, the one that began last ends first."""
        if not isinstance(event, ToolCallEvent):
            return event
        calls = self._open[event.agent, event.tool_id]
        if event.status == "started":
            calls.append(self._new(event.tool_id))
            given = calls[-1]
        else:
            given = calls.pop() if calls else event.tool_id
        return event if given == event.tool_id else event.model_copy(update={"tool_id": given})

    def _new(self, wanted: str) -> str:
        number, unique = 1, wanted
        while unique in self._used:
            number += 1
            unique = f"{wanted}-{number}"
        self._used.add(unique)
        return unique
