"""Runs of agents as streams of events: on a model, scripted, or started by another agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import UUID

import orjson
from pydantic_ai import AgentRunResultEvent, DeferredToolRequests
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import FunctionToolCallEvent, ModelRequest, UserPromptPart
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits

from rem.agents.chat import ClientTool, ClientToolCall, FinishReason, Usage
from rem.agents.client_tools import FirstToolChoice, make_toolset, to_client_call
from rem.agents.event_translator import EmittedEvent, EventTranslator
from rem.agents.json_safe import to_json_safe
from rem.agents.model_errors import describe_model_error
from rem.agents.output_modes import ModeProbe, OutputMode, OutputModes, describe_failed_modes, is_mode_refused
from rem.agents.paused_run import PausedRun
from rem.agents.simulator import SIMULATOR, SimulatedRun
from rem.agents.tool_gaps import ToolGapCollector, ToolGapReport
from rem.approvals.approvals import Origin, Proposal
from rem.approvals.cards import make_card
from rem.errors import ModelRequiredError, RunLimitError
from rem.events import ActionRequestEvent, AnyEvent, MetadataEvent, ReasoningEvent, TextEvent, ToolCallEvent
from rem.text import fold_text
from rem.tools.binding import PROPOSAL, get_traits
from rem.tools.consent import ConsentNeeded, describe_question
from rem.tools.env import ToolEnv
from rem.tools.registry import AGENT_TOOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai import AgentRunResult, DeferredToolResults, RunContext
    from pydantic_ai.messages import ModelMessage, ToolCallPart

    from rem.agents.factory import AgentFactory, PreparedAgent
    from rem.agents.model_registry import ResolvedModel
    from rem.agents.schema import AgentSchema
    from rem.agents.service import Agents
    from rem.models import Approval
    from rem.settings import OutputModeSetting

MAX_ANSWER_CHARS = 2_000_000
"""A model that does not stop by itself is stopped here."""
MIN_TIMEOUT_SECONDS = 0.001


class AgentRun(Protocol):
    """One execution of an agent."""

    agent: str
    model: str
    finish_reason: FinishReason
    output: dict[str, Any] | None

    @property
    def usage(self) -> Usage:
        """The tokens used so far."""
        ...

    @property
    def tool_gaps(self) -> list[ToolGapReport]:
        """The missing tools that the agent called."""
        ...

    @property
    def approval(self) -> Approval | None:
        """The request for approval on which the run waits; None if it is complete."""
        ...

    @property
    def client_calls(self) -> Sequence[ClientToolCall]:
        """The calls that the client must carry out before the run can go on."""
        ...

    def events(self) -> AsyncGenerator[AnyEvent]:
        """Yield the events of the run until the answer is complete."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeps:
    """The dependencies of one run: pydantic-ai passes them to every tool call."""

    env: ToolEnv
    agent: str
    model: ResolvedModel
    is_model_chosen: bool
    """The caller named the model, so child runs use it too."""
    model_settings: Mapping[str, Any]
    message: str
    """The message of the user, which the child runs see as well."""
    history: Sequence[ModelMessage]
    output_mode: OutputModeSetting
    output_modes: OutputModes
    limits: UsageLimits
    timeout_seconds: float
    """Time limit of the whole answer."""
    child_runs: ChildRuns
    tool_names: Sequence[str]
    """The tools that the agent has."""
    gaps: ToolGapCollector
    """The missing tools that this agent and its child runs called."""


class ModelRun:
    """A run of an agent on a model."""

    def __init__(
        self,
        agent: PreparedAgent,
        deps: RunDeps,
        prompt: str | None,
        *,
        instructions: Sequence[str] = (),
        usage: RunUsage | None = None,
        results: DeferredToolResults | None = None,
        client_tools: Sequence[ClientTool] = (),
        first_tools: Sequence[str] = (),
    ) -> None:
        """Prepare a run on a prompt; without one, the rest of a run, which begins with `results` or the history.

        The model must begin with a call of one of `first_tools`, if there are any.
        """
        self.agent = deps.agent
        self.model = deps.model.name
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self._agent = agent
        # Also for its child runs: text beside a structured answer is dropped.
        self._deps = replace(deps, env=replace(deps.env, hides_text=True)) if agent.is_structured else deps
        self._prompt = prompt
        self._instructions = list(instructions)
        self._results = results
        self._client_tools = client_tools
        self._first_tools = list(first_tools)
        self.approval: Approval | None = None
        self.client_calls: Sequence[ClientToolCall] = ()
        self._is_waiting = False
        self._confidence: float | None = None
        self._answer_chars = 0
        self._has_acted = False
        self._deadline = monotonic() + deps.timeout_seconds
        self._usage = usage if usage is not None else RunUsage()

    @property
    def usage(self) -> Usage:
        """The tokens used so far."""
        return Usage(self._usage.input_tokens, self._usage.output_tokens)

    @property
    def is_waiting(self) -> bool:
        """Return whether the run, or one that it started, waits for a decision of the user."""
        return self._is_waiting

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """Yield the events of the run until the answer is complete.

        If the model does not support the way in which it is asked for a structured answer, it is asked in another way.
        """
        if not self._agent.is_structured:
            async with aclosing(self._run("tool")) as run_events:
                async for event in run_events:
                    yield event
            return
        errors: list[tuple[OutputMode, Exception]] = []
        modes = self._deps.output_modes.list(self._deps.model, self._deps.output_mode)
        for mode in modes:
            is_probed = self._is_unproven(mode) and mode != modes[-1]
            try:
                async with aclosing(self._run(mode, is_probed=is_probed)) as run_events:
                    async for event in run_events:
                        yield event
            except Exception as error:
                if self._has_acted or len(modes) == 1 or not is_mode_refused(error):
                    raise
                errors.append((mode, error))
            else:
                self._deps.output_modes.remember(self._deps.model, mode)
                return
        raise describe_failed_modes(self.model, errors, self._agent.schema.tool_names) from errors[-1][1]

    def _is_unproven(self, mode: OutputMode) -> bool:
        return not self._deps.output_modes.is_known_to_work(self._deps.model, mode)

    async def _run(self, mode: OutputMode, *, is_probed: bool = False) -> AsyncGenerator[AnyEvent]:
        translator = EventTranslator(self.agent)
        async with self._agent.build(mode).run_stream_events(
            self._prompt,
            message_history=self._deps.history,
            deferred_tool_results=self._results,
            model=self._deps.model.model,
            deps=self._deps,
            instructions=self._instructions or None,
            model_settings=cast(ModelSettings, dict(self._deps.model_settings)),
            usage_limits=self._deps.limits,
            usage=self._usage,
            timeout=max(self._deadline - monotonic(), MIN_TIMEOUT_SECONDS),
            conversation_id=self._deps.env.context.session_id,
            infer_name=False,
            toolsets=[make_toolset(self._client_tools)] if self._client_tools else None,
            capabilities=[
                *([ModeProbe(mode)] if is_probed else []),
                *([FirstToolChoice(self._first_tools)] if self._first_tools else []),
            ],
        ) as library_events:
            async for library_event in library_events:
                if isinstance(library_event, AgentRunResultEvent):
                    for event in await self._finish(library_event.result):
                        yield event
                else:
                    self._note_missing_tool(library_event)
                    for event in translator.translate(library_event):
                        self._check_length(event)
                        self._has_acted = self._has_acted or isinstance(event, ToolCallEvent)
                        self._note_confidence(event)
                        if not self._is_raw_answer(event):
                            yield event

    def _is_raw_answer(self, event: AnyEvent) -> bool:
        """Return whether an event is text of a structured answer, which is shown only after it was validated."""
        return self._agent.is_structured and isinstance(event, TextEvent) and event.agent == self.agent

    @property
    def tool_gaps(self) -> list[ToolGapReport]:
        """The missing tools that this run and its child runs called."""
        return self._deps.gaps.reports

    def _note_missing_tool(self, library_event: object) -> None:
        if isinstance(library_event, FunctionToolCallEvent):
            name = library_event.part.tool_name
            if name not in self._deps.tool_names and name not in {tool.name for tool in self._client_tools}:
                self._deps.gaps.add(self.agent, name, self._deps.tool_names, self._prompt or self._deps.message)

    def _note_confidence(self, event: AnyEvent) -> None:
        if isinstance(event, MetadataEvent) and event.confidence is not None:
            self._confidence = event.confidence

    def _check_length(self, event: AnyEvent) -> None:
        self._answer_chars += len(event.content) if isinstance(event, TextEvent | ReasoningEvent) else 0
        if self._answer_chars > MAX_ANSWER_CHARS:
            raise RunLimitError(f"The answer has more than {MAX_ANSWER_CHARS:,} characters and does not end.")

    async def _finish(self, result: AgentRunResult[Any]) -> Sequence[AnyEvent]:
        """Record how the run ended, and return a structured answer as text, or the question on which the run waits."""
        if isinstance(result.output, DeferredToolRequests):
            return await self._pause(result)
        reason = result.response.finish_reason
        if reason in ("length", "content_filter"):
            self.finish_reason = reason
        if isinstance(result.output, dict):
            self.output = to_json_safe(result.output)
            return [TextEvent(content=orjson.dumps(self.output).decode(), agent=self.agent)]
        return []

    async def _pause(self, result: AgentRunResult[DeferredToolRequests]) -> Sequence[AnyEvent]:
        """Store the request for the first call that needs consent, with this run, and return what the user sees."""
        self._is_waiting = True
        proposals = {
            call.tool_call_id: (call, proposal)
            for call in result.output.approvals
            if (proposal := result.output.metadata.get(call.tool_call_id, {}).get(PROPOSAL)) is not None
        }
        if not proposals:
            if result.output.calls and not result.output.approvals:
                self._hand_over(result.output.calls)
            # Otherwise an agent that this one asked waits, and has shown what for.
            return []
        call_id, (call, proposal) = next(iter(proposals.items()))
        state = PausedRun(
            agent=self.agent,
            model=self.model,
            is_model_chosen=self._deps.is_model_chosen,
            model_settings=dict(self._deps.model_settings),
            message=self._deps.message,
            instructions=self._instructions,
            messages=result.all_messages(),
            call_id=call_id,
            other_call_ids=[call.tool_call_id for call in result.output.approvals if call.tool_call_id != call_id],
            client_call_ids=[call.tool_call_id for call in result.output.calls],
        )
        env = self._deps.env
        session_id = None if env.context.session_id is None else UUID(env.context.session_id)
        # A tool that carries out its request itself needs no run, so the messages need not be stored twice.
        needs_run = get_traits(AGENT_TOOLS[call.tool_name]).carry_out is None
        origin = Origin(session_id, self.agent, state.to_json() if needs_run else None)
        approval = await env.rem.for_user(env.scope).approvals.request(
            replace(proposal, confidence=self._confidence), origin
        )
        self.approval = approval
        return self._show(approval, proposal, call)

    def _hand_over(self, calls: Sequence[ToolCallPart]) -> None:
        """Leave calls of the client's tools to the client."""
        self._is_waiting = False
        self.finish_reason = "tool_calls"
        self.client_calls = [to_client_call(call, self._deps.env.context.session_id) for call in calls]

    def _show(self, approval: Approval, proposal: Proposal, call: ToolCallPart) -> Sequence[AnyEvent]:
        gap = "\n\n" if self._answer_chars else ""
        question = describe_question(approval, len(proposal.rows))
        waits = {"status": "needs_approval", "approval_id": str(approval.id)}
        return [
            ToolCallEvent(
                tool_name=call.tool_name,
                tool_id=to_json_safe(call.tool_call_id),
                status="completed",
                result=waits,
                agent=self.agent,
            ),
            # The user sees exactly this, whatever the model says about it.
            TextEvent(content=f"{gap}{proposal.preview}\n\n{question}\n", agent=self.agent),
            ActionRequestEvent(card=make_card(approval, proposal.preview, len(proposal.rows)), agent=self.agent),
        ]


class ChildRuns:
    """Runs agents for other agents: for the same user, in the same session, within the same limits."""

    def __init__(self, agents: Agents, factory: AgentFactory) -> None:
        self._agents = agents
        self._factory = factory

    async def run(
        self, parent: RunContext[RunDeps], agent_name: str, text: str, timeout_seconds: float
    ) -> dict[str, Any]:
        """Run the agent and return its answer. Its events are emitted into the parent's stream.

        A failure or a timeout of the child is returned with `"status": "error"`; an exceeded usage limit is raised.
        """
        schema = await self._agents.catalog.get(agent_name, parent.deps.env.scope)
        child = await self._make_child(parent, schema, text)
        texts: list[str] = []
        try:
            async with asyncio.timeout(timeout_seconds), aclosing(child.events()) as child_events:
                async for event in child_events:
                    if isinstance(event, TextEvent) and event.agent == child.agent:
                        texts.append(event.content)
                    await parent.emit(EmittedEvent(event=event))
        except UsageLimitExceeded:
            raise
        except TimeoutError:
            return _describe_failure(schema.name, f"It took more than {timeout_seconds:g} seconds.", texts)
        except Exception as error:  # noqa: BLE001  # the parent continues without its child
            return _describe_failure(schema.name, str(describe_model_error(error)), texts)
        if isinstance(child, ModelRun) and child.is_waiting:
            # The parent ends here, too: its words must not stand between the question and the user's yes.
            raise ConsentNeeded(None)
        return {"status": "success", "agent": schema.name, "output": child.output or "".join(texts)}

    async def _make_child(self, parent: RunContext[RunDeps], schema: AgentSchema, text: str) -> AgentRun:
        deps = parent.deps
        if schema.name == SIMULATOR:
            return SimulatedRun(schema.name, text)
        keeps_model = deps.is_model_chosen or not schema.model
        model = deps.model if keeps_model else await self._agents.load_model(schema.model)
        if model.is_local:
            raise ModelRequiredError(f"The agent {schema.name} needs a language model: {model.name} is none.")
        context = deps.env.context.child_context(agent_schema_uri=schema.name)
        child_deps = replace(
            deps,
            env=replace(
                deps.env,
                context=context,
                may_read=schema.may_read,
                # A stricter parent stays strict.
                consent=deps.env.consent | schema.consent_levels,
            ),
            agent=schema.name,
            tool_names=tuple(schema.tool_names),
            model=model,
            model_settings=self._agents.merge_model_settings(schema, {}),
            history=_add_message(deps.history, deps.message, text),
            output_mode=self._agents.choose_output_mode(schema),
            limits=_limit_child(deps.limits, schema, parent.usage.requests),
        )
        return ModelRun(self._factory.prepare(schema), child_deps, text, usage=parent.usage)


def make_tool_env(context: RunContext[RunDeps]) -> ToolEnv:
    """Return the environment of a tool call: events go to the agent's stream, other agents become child runs."""
    deps = context.deps

    async def emit(event: AnyEvent) -> None:
        named = event if event.agent else event.model_copy(update={"agent": deps.agent})
        await context.emit(EmittedEvent(event=named))

    async def delegate(agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        return await deps.child_runs.run(context, agent_name, text, timeout_seconds)

    return replace(deps.env, emit=emit, delegate=delegate, is_chat=True)


def _add_message(history: Sequence[ModelMessage], message: str, task: str) -> Sequence[ModelMessage]:
    """Return the history of a child: the session and the message of the user, unless that is the task itself."""
    if fold_text(message) == fold_text(task):
        return history
    return [*history, ModelRequest(parts=[UserPromptPart(message)])]


def _limit_child(limits: UsageLimits, schema: AgentSchema, used_requests: int) -> UsageLimits:
    """Return the limits of a child run: the rest of the parent's, or the child's own if they are lower."""
    if schema.request_limit is None:
        return limits
    allowed = used_requests + schema.request_limit
    return replace(limits, request_limit=min(limits.request_limit or allowed, allowed))


def _describe_failure(agent: str, reason: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"status": "error", "agent": agent, "error": reason, "output": "".join(texts)}
