"""AnswerStream: the answer to one request while it is produced. It yields events and stores the answer."""

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

from rem.agents.chat import AgentAnswer, ClientToolCall, FinishReason, Usage
from rem.agents.event_translator import ToolCallIds
from rem.agents.model_errors import describe_model_error
from rem.agents.model_registry import LOCAL_MODEL
from rem.agents.tool_gaps import store_tool_gaps
from rem.errors import RemError
from rem.events import (
    ActionRequestEvent,
    AnyEvent,
    DoneEvent,
    ErrorEvent,
    MetadataEvent,
    ReasoningEvent,
    TextEvent,
    ToolCallEvent,
)
from rem.models.message import Role
from rem.sessions.card_answers import CARDS_FIELD
from rem.sessions.message import NOTE_TOOLS, OUTCOME_FIELD, REASONING, NewMessage

if TYPE_CHECKING:
    from rem.agents.background_tasks import BackgroundTasks
    from rem.agents.runs import AgentRun
    from rem.models import Approval
    from rem.sessions.extractive_summary import Summarizer
    from rem.sessions.manager import MemoryManager
    from rem.sessions.message import Turn

NOT_REMEMBERED_FLAG = "not_remembered"
"""Flag in the last metadata event if the answer could not be stored."""
MASKED_FLAG = "masked"
"""Flag in the last metadata event if a secret was masked in the stored messages."""
TOOL_GAP_FLAG = "tool_gap"
"""Flag in the last metadata event if the agent called a tool that it does not have."""
NEEDS_APPROVAL_FLAG = "needs_approval"
"""Flag in the last metadata event if the answer waits for a decision of the user."""
MAX_REASONING_CHARS = 20_000
"""Length of the reasoning that is stored with an answer."""
MAX_RESULT_KEYS = 20
"""Number of rows that a stored tool call names."""


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """The session in which a turn is stored."""

    memory: MemoryManager
    session_id: UUID
    summarize: Summarizer | None = None
    is_eval: bool = False


def get_eval_metadata(is_eval: bool) -> dict[str, Any]:
    """Return the metadata of the messages of a session. Those of an evaluation are neither searched nor dreamt of."""
    return {"is_eval": True, "searchable": False} if is_eval else {}


class AnswerStream:
    """The answer to one request. The user message is already stored. Use either `events` or `collect`, once."""

    def __init__(
        self, run: AgentRun, target: SessionTarget | None, background: BackgroundTasks, turn: Turn | None = None
    ) -> None:
        self._run = run
        self._target = target
        self._background = background
        self._tool_call_ids = ToolCallIds()
        self._transcript = Transcript()
        self._started = perf_counter()
        self._message_id: str | None = None
        self._masked = list(turn.masked) if turn else []
        self.error: RemError | None = None

    @property
    def session_id(self) -> str | None:
        """The session of the turn; None if it is not stored."""
        return str(self._target.session_id) if self._target else None

    @property
    def masked(self) -> list[str]:
        """Return the kinds of secrets that were masked in the stored messages of the turn, such as "api key"."""
        return list(dict.fromkeys(self._masked))

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self._run.agent

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._run.model

    @property
    def approval(self) -> Approval | None:
        """The request for approval on which the answer waits; None if it is complete."""
        return self._run.approval

    @property
    def client_calls(self) -> Sequence[ClientToolCall]:
        """The calls that the client must carry out before the answer can go on."""
        return self._run.client_calls

    @property
    def usage(self) -> Usage:
        """The tokens used so far."""
        return self._run.usage

    @property
    def finish_reason(self) -> FinishReason:
        """The reason why the answer ended."""
        return "error" if self.error else self._run.finish_reason

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """Yield the events of the answer; the last one is `done`. The answer is stored even if the client leaves."""
        with self._background.track_answer():
            try:
                async with aclosing(self._run.events()) as run_events:
                    async for run_event in run_events:
                        event = self._tool_call_ids.assign(run_event)
                        self._transcript.add(event)
                        yield event
            except (GeneratorExit, asyncio.CancelledError):
                # Nothing can be awaited any more here.
                self._background.start(self._store_answer(is_interrupted=True))
                raise
            except Exception as error:  # noqa: BLE001  # any error of a provider's library becomes one clear event
                self.error = describe_model_error(error)
            # A client that leaves now must not cancel the storing.
            is_stored = await asyncio.shield(self._background.start(self._store_answer()))
            for event in self._closing_events(is_stored):
                yield event

    async def collect(self) -> AgentAnswer:
        """Return the complete answer. Raise the error that `events` would report."""
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
            client_calls=self.client_calls,
            tool_gaps=self._run.tool_gaps,
            masked=self.masked,
            approval_id=None if self.approval is None else str(self.approval.id),
        )

    def _closing_events(self, is_stored: bool) -> Iterator[AnyEvent]:
        gaps = self._run.tool_gaps
        flags = [*([] if is_stored else [NOT_REMEMBERED_FLAG]), *self._list_flags()]
        extra: dict[str, Any] = {"tool_gaps": [gap.model_dump() for gap in gaps]} if gaps else {}
        if self._masked:
            extra["masked"] = self.masked
        yield MetadataEvent(
            agent=self.agent,
            agent_schema=self.agent,
            message_id=self._message_id,
            session_id=self.session_id,
            model_version=self.model,
            latency_ms=round((perf_counter() - self._started) * 1000),
            token_count=self.usage.total_tokens,
            flags=flags or None,
            extra=extra or None,
            hidden=True,
        )
        if self.error is not None:
            logger.warning("The agent {} failed: {}", self.agent, type(self.error).__name__)
            yield ErrorEvent(agent=self.agent, code=self.error.code, message=str(self.error))
        reason = "error" if self.error else "length" if self.finish_reason == "length" else "stop"
        yield DoneEvent(agent=self.agent, reason=reason)

    def _list_flags(self) -> list[str]:
        states = {TOOL_GAP_FLAG: self._run.tool_gaps, MASKED_FLAG: self._masked, NEEDS_APPROVAL_FLAG: self.approval}
        return [flag for flag, is_set in states.items() if is_set]

    async def _store_answer(self, *, is_interrupted: bool = False) -> bool:
        """Store the answer and return whether that worked. A failure is logged, because the answer was already sent."""
        if self._target is None:
            return True
        await self._store_tool_gaps()
        messages = self._transcript.to_messages(self.agent, self.model)
        self._masked += self._target.memory.store.executor.privacy.list_masked(message.content for message in messages)
        for message in messages:
            message.metadata.update(get_eval_metadata(self._target.is_eval))
        if is_interrupted and messages:
            messages[-1].metadata["interrupted"] = True
        if messages and (flags := self._list_flags()):
            messages[-1].metadata["flags"] = flags
        try:
            stored: Sequence[Any] = (
                await self._target.memory.append(self._target.session_id, messages) if messages else ()
            )
        except RemError as error:
            logger.error("An answer in session {} was not stored: {}", self.session_id, error)
            return False
        if stored:
            self._message_id = str(stored[-1].id)
            if self._target.memory.settings.strategy != "simple":
                self._background.start(self._refresh_summary())
        return True

    async def _store_tool_gaps(self) -> None:
        if self._target is None or not self._run.tool_gaps:
            return
        try:
            await store_tool_gaps(self._target.memory.store, self._run.tool_gaps, self._target.session_id)
        except RemError as error:
            logger.error("The missing tools of the agent {} were not stored: {}", self.agent, error)

    async def _refresh_summary(self) -> None:
        if self._target is not None:
            await self._target.memory.refresh_summary(self._target.session_id, self._target.summarize)


class Transcript:
    """Collects the events of an answer, to store it as messages."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: dict[tuple[str | None, int], list[str]] = {}
        self._calls: dict[tuple[str | None, str], ToolCallEvent] = {}
        self._ends: dict[tuple[str | None, str], ToolCallEvent] = {}
        self._cards: list[dict[str, Any]] = []
        self.confidence: float | None = None

    def add(self, event: AnyEvent) -> None:
        """Record an event. Tool calls are known by agent and `tool_id`."""
        match event:
            case TextEvent():
                self._text.append(event.content)
            case ReasoningEvent():
                self._reasoning.setdefault((event.agent, event.step), []).append(event.content)
            case ToolCallEvent(status="started"):
                self._calls[event.agent, event.tool_id] = event
            case ToolCallEvent():
                self._ends[event.agent, event.tool_id] = event
            case ActionRequestEvent():
                self._cards.append(event.card.model_dump(mode="json", exclude_none=True))
            case MetadataEvent(confidence=float() as confidence):
                self.confidence = confidence

    @property
    def text(self) -> str:
        """The text that the user saw, child runs included."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str | None:
        """The reasoning of the model; None if there was none."""
        return "".join(part for parts in self._reasoning.values() for part in parts) or None

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls with their results."""
        return [
            {"name": call.tool_name, "args": call.arguments or {}, "result": end.result if end else None}
            for key, call in self._calls.items()
            for end in [self._ends.get(key)]
        ]

    def to_messages(self, agent: str, model: str) -> Sequence[NewMessage]:
        """Return the messages to store: the reasoning, the tool calls without their results, then the text.

        Reasoning that led to nothing is not stored: nobody has seen an answer.
        """
        messages = [_tool_call_to_message(call, self._ends.get(key), agent, model) for key, call in self._calls.items()]
        if self.text.strip():
            # Excerpts of the memory must not be found beside their sources.
            metadata = {"agent": agent} | ({"searchable": False} if model == LOCAL_MODEL else {})
            messages.append(NewMessage(role=Role.ASSISTANT, content=self.text, model=model, metadata=metadata))
        if messages and self._cards:
            # The user's answer to a card is checked against it.
            messages[-1].metadata[CARDS_FIELD] = self._cards
        return [*self._reasoning_to_messages(agent, model), *messages] if messages else []

    def _reasoning_to_messages(self, agent: str, model: str) -> Iterator[NewMessage]:
        remaining = MAX_REASONING_CHARS
        for (thinking_agent, step), parts in self._reasoning.items():
            text = "".join(parts)
            if not text.strip() or remaining <= 0:
                continue
            content = text if len(text) <= remaining else f"{text[:remaining]}…"
            remaining -= len(text)
            yield NewMessage(
                role=Role.TOOL,
                content=content,
                tool_name=REASONING,
                model=model,
                # It takes no place in the history of the session.
                token_count=0,
                metadata={"agent": thinking_agent or agent, "step": step},
            )


def _tool_call_to_message(call: ToolCallEvent, end: ToolCallEvent | None, agent: str, model: str) -> NewMessage:
    arguments = call.arguments or {}
    outcome = {} if end is None else {OUTCOME_FIELD: _describe_outcome(end)}
    return NewMessage(
        role=Role.TOOL,
        content=orjson.dumps(arguments).decode() if call.tool_name in NOTE_TOOLS else "",
        tool_calls=[{"id": call.tool_id, "name": call.tool_name, "arguments": arguments}],
        tool_call_id=call.tool_id,
        tool_name=call.tool_name,
        model=model,
        metadata={"tool_arguments": arguments, "agent": call.agent or agent, **outcome},
    )


def _describe_outcome(end: ToolCallEvent) -> dict[str, Any]:
    """Return how a call ended, and the keys of the rows in its result. Their texts would outlive the rows."""
    rows = end.result.get("results") if isinstance(end.result, dict) else None
    if not isinstance(rows, list):
        return {"status": end.status}
    keys = [row["key"] for row in rows if isinstance(row, dict) and isinstance(row.get("key"), str)]
    return {"status": end.status, "count": len(rows), "keys": list(dict.fromkeys(keys))[:MAX_RESULT_KEYS]}
