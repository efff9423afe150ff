"""Conversation: one message to an agent and its answer, streamed and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from loguru import logger

from rem.agents.chat import AgentAnswer, FinishReason, Usage
from rem.agents.event_translator import ToolCallIds
from rem.agents.local.model import LOCAL_MODEL
from rem.agents.model_errors import describe_model_error
from rem.errors import RemError
from rem.events import AnyEvent, DoneEvent, ErrorEvent, MetadataEvent, ReasoningEvent, TextEvent, ToolCallEvent
from rem.memory.message import NOTE_TOOLS, NewMessage
from rem.models.message import Role

if TYPE_CHECKING:
    from rem.agents.background_tasks import BackgroundTasks
    from rem.agents.runs import AgentRun
    from rem.memory.extractive_summary import Summarizer
    from rem.memory.manager import MemoryManager


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


_NOT_REMEMBERED = "not_remembered"


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """Where a conversation is kept."""

    memory: MemoryManager
    session_id: UUID
    summarize: Summarizer | None = None


class AnswerStream:
    """One turn. The user's message is stored already; iterate `events` once."""

    def __init__(self, run: AgentRun, place: SessionTarget | None, afterwards: BackgroundTasks) -> None:
        self._run = run
        self._place = place
        self._afterwards = afterwards
        self._tool_ids = ToolCallIds()
        self._transcript = Transcript()
        self._started = perf_counter()
        self._message_id: str | None = None
        self.error: RemError | None = None

    @property
    def session_id(self) -> str | None:
        """Where the conversation is kept; None without memory."""
        return str(self._place.session_id) if self._place else None

    @property
    def agent(self) -> str:
        """Who answers."""
        return self._run.agent

    @property
    def model(self) -> str:
        """With which model."""
        return self._run.model

    @property
    def usage(self) -> Usage:
        """How many tokens it took so far."""
        return self._run.usage

    @property
    def finish_reason(self) -> FinishReason:
        """Why the answer ended."""
        return "error" if self.error else self._run.finish_reason

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """What happens, as it happens; the last is `done`. What was said is remembered, also if nobody listens on."""
        with self._afterwards.track_answer():
            try:
                async with aclosing(self._run.events()) as happening:
                    async for event in happening:
                        told = self._tool_ids.assign(event)
                        self._transcript.add(told)
                        yield told
            except (GeneratorExit, asyncio.CancelledError):
                # Nothing can be awaited any more here.
                self._afterwards.start(self._remember(is_interrupted=True))
                raise
            except Exception as error:  # noqa: BLE001  # whatever a provider's library raises ends in one clear event
                self.error = describe_model_error(error)
            # A client that leaves now must not take the answer along.
            is_remembered = await asyncio.shield(self._afterwards.start(self._remember()))
            for event in self._ending(is_remembered):
                yield event

    def _ending(self, is_remembered: bool) -> Iterator[AnyEvent]:
        flags = None if is_remembered else [_NOT_REMEMBERED]
        yield MetadataEvent(
            agent=self.agent,
            agent_schema=self.agent,
            message_id=self._message_id,
            session_id=self.session_id,
            model_version=self.model,
            latency_ms=round((perf_counter() - self._started) * 1000),
            token_count=self.usage.total_tokens,
            flags=flags,
            hidden=True,
        )
        if self.error is not None:
            logger.warning("The agent {} failed: {}", self.agent, type(self.error).__name__)
            yield ErrorEvent(agent=self.agent, code=self.error.code, message=str(self.error))
        reason = "error" if self.error else "length" if self.finish_reason == "length" else "stop"
        yield DoneEvent(agent=self.agent, reason=reason)

    async def collect(self) -> AgentAnswer:
        """The whole answer at once. An error that the stream would tell is raised."""
        async for _ in self.events():
            pass
        if self.error is not None:
            raise self.error
        return AgentAnswer(
            text=self._transcript.text,
            agent=self.agent,
            model=self.model,
            session_id=self.session_id,
            message_id=self._message_id,
            output=self._run.output,
            reasoning=self._transcript.reasoning,
            tool_calls=self._transcript.tool_calls,
            confidence=self._transcript.confidence,
            usage=self.usage,
            finish_reason=self.finish_reason,
        )

    async def _remember(self, *, is_interrupted: bool = False) -> bool:
        """Store what was said; whether it could be done. The answer itself is worth more than an error about it."""
        if self._place is None:
            return True
        messages = self._transcript.messages(self.agent, self.model)
        if is_interrupted and messages:
            messages[-1].metadata["interrupted"] = True
        try:
            stored: Sequence[Any] = (
                await self._place.memory.append(self._place.session_id, messages) if messages else ()
            )
        except RemError as error:
            logger.error("An answer of session {} was not remembered: {}", self.session_id, error)
            return False
        if stored:
            self._message_id = str(stored[-1].id)
            if self._place.memory.settings.strategy != "simple":
                self._afterwards.start(self._summarize())
        return True

    async def _summarize(self) -> None:
        if self._place is not None:
            await self._place.memory.refresh_summary(self._place.session_id, self._place.summarize)
