"""AgentRun: a run of an agent as a stream of events; and its children, which stream into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import orjson
from pydantic_ai import AgentRunResultEvent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits

from rem.agents.chat import FinishReason, Usage
from rem.agents.event_translator import EmittedEvent, EventTranslator
from rem.agents.json_safe import to_json_safe
from rem.agents.model_errors import describe_model_error
from rem.agents.simulator import simulate
from rem.errors import RunLimitError
from rem.events import AnyEvent, ReasoningEvent, TextEvent
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai import Agent, AgentRunResult, RunContext
    from pydantic_ai.messages import ModelMessage

    from rem.agents.factory import AgentFactory
    from rem.agents.model_registry import ResolvedModel
    from rem.agents.schema import AgentSchema
    from rem.agents.service import Agents


class Children(Protocol):
    """Runs an agent that another one calls."""

    async def __call__(
        self, parent: RunContext[RunDeps], agent_name: str, text: str, timeout_seconds: float
    ) -> dict[str, Any]:
        """The child's answer; what it does meanwhile is emitted into the parent's events."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeps:
    """The dependencies of one run of one agent."""

    env: ToolEnv
    agent: str
    model: ResolvedModel
    is_model_chosen: bool
    """Whether the caller named the model, so that children use it, too."""
    model_settings: Mapping[str, Any]
    history: Sequence[ModelMessage]
    limits: UsageLimits
    seconds: float
    """How long the answer may take."""
    children: Children


def make_tool_env(context: RunContext[RunDeps]) -> ToolEnv:
    """What a tool knows that an agent calls: its events go into the agent's, other agents run under this one."""

    async def emit(event: AnyEvent) -> None:
        named = event if event.agent else event.model_copy(update={"agent": run.agent})
        await context.emit(EmittedEvent(event=named))

    async def delegate(agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        return await run.children(context, agent_name, text, timeout_seconds)

    run = context.deps
    return replace(run.env, emit=emit, delegate=delegate)


_LONGEST_ANSWER = 2_000_000


class AgentRun(Protocol):
    """Something that answers."""

    agent: str
    model: str
    finish_reason: FinishReason
    output: dict[str, Any] | None

    @property
    def usage(self) -> Usage:
        """How many tokens it took so far."""
        ...

    def events(self) -> AsyncGenerator[AnyEvent]:
        """What happens until the answer is complete."""
        ...


class ModelRun:
    """A run of an agent on a language model."""

    def __init__(
        self,
        agent: Agent[RunDeps, Any],
        run: RunDeps,
        prompt: str,
        *,
        instructions: Sequence[str] = (),
        usage: RunUsage | None = None,
    ) -> None:
        self.agent = run.agent
        self.model = run.model.name
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self._agent = agent
        self._run = run
        self._prompt = prompt
        self._instructions = list(instructions)
        self._characters = 0
        self._usage = usage if usage is not None else RunUsage()

    @property
    def usage(self) -> Usage:
        """How many tokens it took so far."""
        return Usage(self._usage.input_tokens, self._usage.output_tokens)

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """What happens until the answer is complete."""
        translator = EventTranslator(self.agent)
        async with self._agent.run_stream_events(
            self._prompt,
            message_history=self._run.history,
            model=self._run.model.model,
            deps=self._run,
            instructions=self._instructions or None,
            model_settings=cast(ModelSettings, dict(self._run.model_settings)),
            usage_limits=self._run.limits,
            usage=self._usage,
            timeout=self._run.seconds,
            conversation_id=self._run.env.context.session_id,
            infer_name=False,
        ) as happening:
            async for event in happening:
                if isinstance(event, AgentRunResultEvent):
                    for told in self._end(event.result):
                        yield told
                else:
                    for told in translator.translate(event):
                        self._count(told)
                        yield told

    def _count(self, event: AnyEvent) -> None:
        """A model that does not stop by itself is stopped."""
        self._characters += len(event.content) if isinstance(event, TextEvent | ReasoningEvent) else 0
        if self._characters > _LONGEST_ANSWER:
            raise RunLimitError(f"The answer has more than {_LONGEST_ANSWER:,} characters and does not end.")

    def _end(self, result: AgentRunResult[Any]) -> Sequence[AnyEvent]:
        reason = result.response.finish_reason
        if reason in ("length", "content_filter"):
            self.finish_reason = reason
        if isinstance(result.output, dict):
            self.output = to_json_safe(result.output)
            return [TextEvent(content=orjson.dumps(self.output).decode(), agent=self.agent)]
        return []


class SimulatedRun:
    """The scripted answer that shows every kind of event, for who builds a client."""

    usage = Usage()

    def __init__(self, agent: str, prompt: str) -> None:
        self.agent = agent
        self.model = "simulator"
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self._prompt = prompt

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """The script."""
        async for event in simulate(self._prompt):
            yield event if event.agent else event.model_copy(update={"agent": self.agent})


class ChildRuns:
    """Runs the agents that an agent calls: for the same user, in the same conversation, within the same limits."""

    def __init__(self, agents: Agents, factory: AgentFactory) -> None:
        self._agents = agents
        self._factory = factory

    async def __call__(
        self, parent: RunContext[RunDeps], agent_name: str, text: str, timeout_seconds: float
    ) -> dict[str, Any]:
        """The child's answer; what it does meanwhile is emitted into the parent's events."""
        schema = await self._agents.catalog.get(agent_name, parent.deps.env.scope)
        child = self._child(parent, schema, text)
        said: list[str] = []
        try:
            async with asyncio.timeout(timeout_seconds), aclosing(child.events()) as happening:
                async for event in happening:
                    if isinstance(event, TextEvent) and event.agent == child.agent:
                        said.append(event.content)
                    await parent.emit(EmittedEvent(event=event))
        except UsageLimitExceeded:
            raise
        except TimeoutError:
            return _failure(schema.name, f"It took more than {timeout_seconds:g} seconds.", said)
        except Exception as error:  # noqa: BLE001  # the parent goes on without its child
            return _failure(schema.name, str(describe_model_error(error)), said)
        return {"status": "success", "agent": schema.name, "output": child.output or "".join(said)}

    def _child(self, parent: RunContext[RunDeps], schema: AgentSchema, text: str) -> AgentRun:
        run = parent.deps
        if schema.name == "simulator":
            return SimulatedRun(schema.name, text)
        model = run.model if run.is_model_chosen or not schema.model else self._agents.resolve_model(schema.model)
        context = run.env.context.child_context(agent_schema_uri=schema.name)
        child = replace(
            run,
            env=replace(run.env, context=context, may_read=schema.may_read),
            agent=schema.name,
            model=model,
            model_settings=self._agents.model_settings(schema, {}),
            limits=_within(run.limits, schema, parent.usage.requests),
        )
        return ModelRun(self._factory.build(schema), child, text, usage=parent.usage)


def _within(limits: UsageLimits, schema: AgentSchema, requests: int) -> UsageLimits:
    """The limits of a child: what is left of the parent's, or its own if they are narrower."""
    if schema.request_limit is None:
        return limits
    allowed = requests + schema.request_limit
    return replace(limits, request_limit=min(limits.request_limit or allowed, allowed))


def _failure(agent: str, reason: str, said: Sequence[str]) -> dict[str, Any]:
    return {"status": "error", "agent": agent, "error": reason, "output": "".join(said)}
