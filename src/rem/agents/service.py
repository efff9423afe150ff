"""Agents: start a chat turn with an agent: find the agent and the model, store the message, run the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.usage import UsageLimits

from rem.agents.answer_stream import AnswerStream, SessionTarget, get_eval_metadata
from rem.agents.background_tasks import BackgroundTasks
from rem.agents.catalog import AgentCatalog
from rem.agents.chat import AgentAnswer, AgentRequest
from rem.agents.client_tools import (
    check_client_tools,
    exchange_to_messages,
    find_session_id,
    hide_shadowed_tools,
    list_first_tools,
)
from rem.agents.decisions import DecisionRun, find_confirmation, read_card_decision
from rem.agents.factory import AgentFactory
from rem.agents.memory_run import MemoryRun
from rem.agents.model_input import build_summary_prompt, build_user_hint, history_from_client, history_from_session
from rem.agents.model_registry import DEFAULT_MODEL, LOCAL_MODEL, ModelRegistry, ResolvedModel
from rem.agents.output_modes import OutputModes
from rem.agents.paused_run import PausedRun
from rem.agents.runs import AgentRun, ChildRuns, ModelRun, RunDeps
from rem.agents.simulator import SIMULATOR, SimulatedRun
from rem.agents.tool_gaps import ToolGapCollector
from rem.app import Rem
from rem.context import AgentContext, Scope
from rem.errors import (
    ForbiddenError,
    InvalidAgentError,
    InvalidInputError,
    MemoryDisabledError,
    ModelError,
    ModelRequiredError,
    NotFoundError,
    RemError,
    RerankerError,
)
from rem.models import Approval
from rem.models.message import MessageKind, Role
from rem.sessions.card_answers import prepare_card_answer
from rem.sessions.message import NewMessage, Turn
from rem.sessions.tokens import count_tokens
from rem.tools.approved_calls import check_decision, is_self_contained
from rem.tools.env import Delegate, ToolEnv, TurnWindow

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

    from rem.agents.schema import AgentSchema
    from rem.db.database import Progress
    from rem.models import Message
    from rem.sessions.extractive_summary import Summarizer
    from rem.settings import OutputModeSetting, Settings
    from rem.tools.consent import Decision

DEFAULT_AGENT = "rem"
SUMMARIZER = "summarizer"
MAY_NOT_APPROVE = (
    "This key or token has no scope `write`, which an approval needs: decide where you are logged in, or with another "
    "key."
)
_LOOKUP_TOOLS = frozenset({"search_rem", "search", "lookup"})
"""Tools that return the entity with a key. An agent without them cannot follow a LOOKUP hint."""


class Agents:
    """Runs agents for an open REM. Without a REM, or with MEMORY__ENABLED=false, chat works but nothing is stored."""

    def __init__(self, rem: Rem | None, settings: Settings) -> None:
        self.catalog = AgentCatalog(settings, rem)
        self._rem = rem
        self._settings = settings
        self._models = ModelRegistry(settings)
        self._output_modes = OutputModes()
        self._factory = AgentFactory()
        self._child_runs = ChildRuns(self, self._factory)
        self._background = BackgroundTasks()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, *, on_progress: Progress | None = None) -> AsyncIterator[Agents]:
        """Open REM and yield its agents; agents without a memory if the database is switched off."""
        if settings.postgres.enabled:
            async with Rem.open(settings, on_progress=on_progress) as rem:
                yield rem.agents
            return
        agents = cls(None, settings)
        try:
            yield agents
        finally:
            await agents.close()

    @property
    def rem(self) -> Rem:
        """The open REM. Raise MemoryDisabledError if the database is switched off."""
        if self._rem is None:
            raise MemoryDisabledError
        return self._rem

    async def run(self, request: AgentRequest) -> AgentAnswer:
        """Run an agent and return its complete answer."""
        return await (await self.start(request)).collect()

    async def start(self, request: AgentRequest) -> AnswerStream:
        """Store the user message and return the stream of the answer.

        An unknown agent or model, an invalid output schema or a session of another user is an error before anything is
        stored.
        """
        if not request.text.strip() and request.card_answer is None:
            raise InvalidInputError("The message is empty: say something.")
        context = await self._resolve_session(request)
        is_stored = request.is_remembered and not context.is_transient
        schema = await self.catalog.get(request.agent or context.agent_schema_uri or DEFAULT_AGENT, context.scope)
        check_client_tools(request, schema)
        schema = hide_shadowed_tools(schema, request.client_tools)
        source = self._get_session_target(context)
        target = source if is_stored else None
        decided = await self._find_decision(request, context, schema) if is_stored else None
        if decided is not None:
            return await self._answer_decision(request, context, schema, *decided)
        request = await _apply_card_answer(request, target)
        if schema.name == SIMULATOR:
            turn = await self._begin_turn(request, context, schema, target)
            return AnswerStream(SimulatedRun(schema.name, request.text), target, self._background, turn)
        model = await self._choose_model(request, schema)
        agent = self._factory.prepare(schema, request.output_schema)
        if model.is_local and (schema.name != DEFAULT_AGENT or agent.is_structured):
            raise _make_model_error(schema)
        turn = await self._continue_turn(request, target) if is_stored else await _read_session(source)
        if turn is None:
            kind = await self._find_kind(request.text) if model.is_local else None
            turn = await self._begin_turn(request, context, schema, target, kind)
        env = replace(self.env(context), window=_make_window(request, turn), hides_text=not request.is_from_user)
        if model.is_local:
            memory_run = MemoryRun(env, request.text, schema.name, previous=_find_previous(request, turn))
            return AnswerStream(memory_run, target, self._background, turn)
        history = await _build_history(request, schema, source, turn)
        instructions = await self._build_instructions(request, schema, env, turn)
        prompt = await self._build_prompt(request, schema, source, turn)
        if request.tool_exchange:
            history += [ModelRequest(parts=[UserPromptPart(prompt)]), *exchange_to_messages(request.tool_exchange)]
        run = ModelRun(
            agent,
            self._make_deps(request, schema, model, env, history),
            None if request.tool_exchange else prompt,
            instructions=instructions,
            client_tools=request.client_tools,
            first_tools=list_first_tools(request),
        )
        return AnswerStream(run, target, self._background, turn)

    async def run_without_session(self, agent: str, text: str, context: AgentContext) -> AgentAnswer:
        """Run an agent on a text that is not part of a session, and return its answer. Nothing is stored."""
        return await self.run_schema(await self.catalog.get(agent, context.scope), text, context)

    async def run_schema(
        self,
        schema: AgentSchema,
        text: str,
        context: AgentContext,
        *,
        model: str | None = None,
        output_schema: Mapping[str, Any] | None = None,
        model_settings: Mapping[str, Any] | None = None,
    ) -> AgentAnswer:
        """Run an agent, which need not be in the catalog, on a text that is not part of a session."""
        request = AgentRequest(
            context=context, text=text, agent=schema.name, model=model, model_settings=model_settings or {}
        )
        env = replace(self.env(context), hides_text=True)
        resolved = await self._choose_model(request, schema)
        if resolved.is_local:
            raise _make_model_error(schema)
        deps = self._make_deps(request, schema, resolved, env, [])
        run = ModelRun(self._factory.prepare(schema, output_schema), deps, request.text)
        return await AnswerStream(run, None, self._background).collect()

    def env(self, context: AgentContext) -> ToolEnv:
        """Return the tool environment of a caller, without a delegate."""
        return ToolEnv(context, self._rem, agents=self.catalog, has_model=self._has_model)

    def env_with_delegate(self, context: AgentContext) -> ToolEnv:
        """Return the tool environment of a caller that is not an agent, such as an MCP client, and may ask agents."""
        return replace(self.env(context), delegate=self._make_delegate(context))

    def resolve_model(self, name: str | None) -> ResolvedModel:
        """Return the model with this name; None means the configured one."""
        return self._models.resolve(name)

    async def load_model(self, name: str | None) -> ResolvedModel:
        """Return the model with this name, without a pause of the event loop for the library of its provider."""
        return await self._models.load(name)

    def merge_model_settings(self, schema: AgentSchema, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for the model: the request overrides the agent, and the agent overrides the settings."""
        default_temperature = self._settings.llm.default_temperature
        defaults = {
            "temperature": default_temperature if schema.temperature is None else schema.temperature,
            "max_tokens": schema.max_tokens,
        }
        return {name: value for name, value in defaults.items() if value is not None} | dict(requested)

    def choose_output_mode(self, schema: AgentSchema) -> OutputModeSetting:
        """Return how a model gives the structured answer of an agent: the agent overrides the settings."""
        return schema.output_mode or self._settings.llm.output_mode

    @property
    def output_schemas(self) -> CatalogOutputSchemas:
        """The output schemas of the agents, for dreams without a language model."""
        return CatalogOutputSchemas(self.catalog)

    @property
    def extraction_model(self) -> AgentExtractionModel | None:
        """The configured language model, for dreams; None if there is none."""
        return AgentExtractionModel(self, str(self._settings.llm.default_model)) if self._has_model else None

    async def warm_up(self) -> None:
        """Load the parts that would delay the first answer."""
        self._factory.build(await self.catalog.get(DEFAULT_AGENT, Scope()))
        count_tokens("x")

    async def close(self) -> None:
        """Wait until all answers are stored, and close the connections to the models."""
        await self._background.close()
        await self._models.close()

    @property
    def _has_model(self) -> bool:
        return self._settings.llm.default_model not in (None, "", LOCAL_MODEL)

    async def _resolve_session(self, request: AgentRequest) -> AgentContext:
        """Return the context with the id of the session to store; a new id if the caller names no session."""
        context = request.context
        if self._rem is None or not self._settings.memory.enabled or not request.is_remembered:
            if context.is_reader and context.session_id is None:
                # Without a session its scope would be what the tenant shares, and its tools would write there.
                return context.model_copy(update={"session_id": str(uuid4()), "is_transient": True})
            return context
        if context.session_id is None:
            session_id = find_session_id(request.tool_exchange) or str(uuid4())
            return context.model_copy(update={"session_id": session_id})
        return await self._rem.resolve_session(context)

    def _get_session_target(self, context: AgentContext) -> SessionTarget | None:
        if self._rem is None or not self._settings.memory.enabled or context.session_id is None:
            return None
        summarize = self._make_summarizer(context) if self._has_model else None
        return SessionTarget(
            self._rem.for_user(context.scope).sessions, UUID(context.session_id), summarize, is_eval=context.is_eval
        )

    async def decide(self, approval: Approval, decision: Decision, context: AgentContext) -> AnswerStream:
        """Carry out a person's decision on a request, and return the answer: the rest of the run that waited, if any.

        Call it only for a person who proved to be the owner of the request. The decision and the answer are stored in
        the session of the request. An error of the action is raised by the stream.
        """
        if approval.session_id is not None and context.session_id is None:
            context = context.model_copy(update={"session_id": str(approval.session_id)})
        schema = await self._find_schema(approval, context)
        text = "Approve" if decision.is_approved else "Reject"
        request = AgentRequest(context=context, text=f"{text}: {decision.reason}" if decision.reason else text)
        return await self._answer_decision(request, context, schema, approval, decision, raises=True)

    async def _find_schema(self, approval: Approval, context: AgentContext) -> AgentSchema:
        """Return the agent of a request. The default one answers for an agent that is gone, unless a run needs it."""
        try:
            return await self.catalog.get(approval.agent or DEFAULT_AGENT, context.scope)
        except NotFoundError:
            if approval.requires_immediate_approval and not is_self_contained(approval):
                raise
            return await self.catalog.get(DEFAULT_AGENT, context.scope)

    async def _find_decision(
        self, request: AgentRequest, context: AgentContext, schema: AgentSchema
    ) -> tuple[Approval | RemError, Decision] | None:
        """Return the request that the user's message or card decides on, with the decision; None for any other message.

        The answer to a card of a model decides nothing, because the model wrote the words of the card. Instead of the
        request, return the error if there is none, or if the caller may not approve it.
        """
        is_structured = request.output_schema is not None or schema.structured_output
        if self._rem is None or not request.is_from_user or schema.name == SIMULATOR or request.tool_exchange:
            return None
        approvals = self._rem.for_user(context.scope).approvals
        decided: tuple[Approval | RemError, Decision] | None
        if request.card_answer is not None:
            decided = await read_card_decision(approvals, request.card_answer)
        elif is_structured:
            return None
        else:
            decided = await find_confirmation(approvals, request.text, context.session_id)
        if decided is not None and decided[1].is_approved and not context.may_approve:
            return ForbiddenError(MAY_NOT_APPROVE), decided[1]
        return decided

    async def _answer_decision(
        self,
        request: AgentRequest,
        context: AgentContext,
        schema: AgentSchema,
        approval: Approval | RemError,
        decision: Decision,
        *,
        raises: bool = False,
    ) -> AnswerStream:
        """Store the user's decision as a message, and return the answer to it."""
        target = self._get_session_target(context)
        run = await self._make_decision_run(request, context, schema, approval, decision, raises=raises)
        text = request.text if request.text.strip() else "Approve" if decision.is_approved else "Reject"
        turn = await self._begin_turn(replace(request, text=text), context, schema, target, MessageKind.COMMAND)
        return AnswerStream(run, target, self._background, turn)

    async def _make_decision_run(
        self,
        request: AgentRequest,
        context: AgentContext,
        schema: AgentSchema,
        approval: Approval | RemError,
        decision: Decision,
        *,
        raises: bool,
    ) -> AgentRun:
        """Record a decision for which a run waits, and return the rest of that run; else a run that carries it out."""
        env = replace(self.env(context), consent=schema.consent_levels)
        approvals = self.rem.for_user(context.scope).approvals
        if not isinstance(approval, Approval):
            return DecisionRun(env, approval, decision, schema.name)
        await approvals.require_open(approval)
        if is_self_contained(approval):
            return DecisionRun(env, approval, decision, schema.name, raises=raises)
        check_decision(approval, decision)
        state = await approvals.load_run(approval)
        if state is None:
            if decision.is_approved:
                # Before the answer begins: a stream could not say 409 any more.
                await approvals.approve(approval, by=decision.by, parameters=decision.parameters)
            return DecisionRun(env, approval, decision, schema.name, raises=raises)
        paused = PausedRun.model_validate_json(state)
        schema = await self.catalog.get(paused.agent, context.scope)
        model = await self.load_model(paused.model)
        recorded: Mapping[str, Any] | None = None
        if decision.is_approved:
            recorded = await approvals.approve(approval, by=decision.by, parameters=decision.parameters)
        else:
            await approvals.reject(approval, by=decision.by, reason=decision.reason)
        resumed = replace(request, text=paused.message, model_settings=paused.model_settings)
        deps = self._make_deps(resumed, schema, model, env, paused.messages)
        return ModelRun(
            self._factory.prepare(schema),
            replace(deps, is_model_chosen=paused.is_model_chosen),
            None,
            instructions=paused.instructions,
            results=paused.make_results(str(approval.id), decision, recorded),
        )

    async def _continue_turn(self, request: AgentRequest, target: SessionTarget | None) -> Turn | None:
        """Return the turn to which the results of the client's tools belong; None if it is not stored."""
        if target is None or not request.tool_exchange:
            return None
        try:
            return await target.memory.continue_turn(target.session_id)
        except NotFoundError:
            return None

    async def _begin_turn(
        self,
        request: AgentRequest,
        context: AgentContext,
        schema: AgentSchema,
        target: SessionTarget | None,
        kind: MessageKind | None = None,
    ) -> Turn | None:
        """Store the user message, and return the turn with the session's history; None if nothing is stored."""
        if target is None:
            return None
        if request.client_history and request.context.session_id is not None:
            messages = [
                NewMessage(
                    role=Role(message.role), content=message.content, metadata=get_eval_metadata(context.is_eval)
                )
                for message in request.client_history
                if message.role != "tool" and message.content.strip()
            ]
            await target.memory.seed_session(target.session_id, messages, agent=schema.name, name=context.session_name)
        client = {} if context.client_id is None else {"client_id": context.client_id}
        metadata = {**client, **get_eval_metadata(context.is_eval)}
        message = NewMessage(role=Role.USER, content=request.text, metadata={**request.metadata, **metadata}, kind=kind)
        return await target.memory.begin_turn(
            target.session_id, message, agent=schema.name, metadata=metadata, name=context.session_name
        )

    async def _find_kind(self, text: str) -> MessageKind | None:
        """Return the kind of a message that its form alone does not show: a question is not stored as a statement."""
        if self._rem is None:
            return None
        try:
            read = await self._rem.reader.classify(text)
        except RerankerError:
            return None
        return MessageKind.QUESTION if read.kind is MessageKind.QUESTION else None

    async def _choose_model(self, request: AgentRequest, schema: AgentSchema) -> ResolvedModel:
        return await self.load_model(_get_requested_model(request) or schema.model)

    def _make_deps(
        self,
        request: AgentRequest,
        schema: AgentSchema,
        model: ResolvedModel,
        env: ToolEnv,
        history: Sequence[ModelMessage],
    ) -> RunDeps:
        return RunDeps(
            env=replace(env, may_read=schema.may_read, consent=env.consent | schema.consent_levels),
            agent=schema.name,
            model=model,
            is_model_chosen=_get_requested_model(request) is not None,
            model_settings=self.merge_model_settings(schema, request.model_settings),
            message=request.text,
            history=history,
            output_mode=self.choose_output_mode(schema),
            output_modes=self._output_modes,
            limits=UsageLimits(
                request_limit=schema.request_limit or self._settings.llm.request_limit,
                total_tokens_limit=schema.total_tokens_limit or self._settings.llm.total_tokens_limit,
            ),
            timeout_seconds=self._settings.llm.answer_seconds,
            child_runs=self._child_runs,
            tool_names=tuple(schema.tool_names),
            gaps=ToolGapCollector(),
        )

    async def _build_instructions(
        self, request: AgentRequest, schema: AgentSchema, env: ToolEnv, turn: Turn | None
    ) -> list[str]:
        """Return the instructions in addition to the agent's own: of the session, about the user, of the client."""
        summary = turn.summary if turn else None
        instructions = [
            turn.system_prompt if turn else None,
            await build_user_hint(
                env,
                with_profile=self._settings.chat.auto_inject_user_context,
                can_look_up=_can_look_up(schema),
            ),
            f"Summary of the earlier conversation:\n{summary}" if summary else None,
            request.instructions,
        ]
        return [text for text in instructions if text]

    async def _build_prompt(
        self, request: AgentRequest, schema: AgentSchema, target: SessionTarget | None, turn: Turn | None
    ) -> str:
        """Return the user message; with passages of past sessions if the agent or the settings want them."""
        with_recall = self._settings.memory.rag.enabled if schema.enable_rag is None else schema.enable_rag
        if target is None or not with_recall:
            return request.text
        prompt = await target.memory.recall(
            request.text,
            target.session_id,
            turn=turn,
            top_k=schema.rag_top_k,
            min_similarity=schema.rag_min_similarity,
        )
        return prompt or request.text

    def _make_summarizer(self, context: AgentContext) -> Summarizer:
        async def summarize(so_far: str | None, messages: list[Message]) -> str:
            answer = await self.run_without_session(SUMMARIZER, build_summary_prompt(so_far, messages), context)
            return str((answer.output or {}).get("summary") or answer.text)

        return summarize

    def _make_delegate(self, context: AgentContext) -> Delegate:
        async def delegate(agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
            async with asyncio.timeout(timeout_seconds):
                # A caller without a session stores the conversation itself.
                is_remembered = context.session_id is not None
                request = AgentRequest(
                    context=context, text=text, agent=agent_name, is_remembered=is_remembered, is_from_user=False
                )
                answer = await self.run(request)
            return {"status": "success", "agent": answer.agent, "output": answer.output or answer.text}

        return delegate


class CatalogOutputSchemas:
    """The output schemas of the agents in a catalog, for dreams without a language model."""

    def __init__(self, catalog: AgentCatalog) -> None:
        self._catalog = catalog

    async def output_schema(self, agent: str, scope: Scope) -> dict[str, Any]:
        """Return the JSON schema of an agent's output. Raise InvalidAgentError if its output is plain text."""
        schema = await self._catalog.get(agent, scope)
        if not schema.structured_output:
            raise InvalidAgentError(
                f"The agent {schema.name} answers in plain text: set structured_output to true, and give it properties."
            )
        return schema.output_schema


class AgentExtractionModel(CatalogOutputSchemas):
    """Runs agents on the configured language model, for dreams."""

    def __init__(self, agents: Agents, model: str) -> None:
        super().__init__(agents.catalog)
        self._agents = agents
        self.model = model

    async def extract(self, agent: str, text: str, scope: Scope) -> dict[str, Any]:
        """Return the agent's output for a text, valid against its schema. Raise ModelError if there is none."""
        context = AgentContext(user_id=scope.user_id, tenant_id=scope.tenant_id)
        answer = await self._agents.run_without_session(agent, text, context)
        if answer.output is None:
            raise ModelError(f"The agent {agent} gave no output that matches its schema.")
        return answer.output


async def _read_session(source: SessionTarget | None) -> Turn | None:
    """Return a turn that is not stored, with the history of the caller's session; None if there is no such session."""
    if source is None:
        return None
    try:
        history = await source.memory.get_history(source.session_id)
    except NotFoundError:
        return None
    index = history.messages[-1].index + 1 if history.messages else 0
    return Turn(
        source.session_id,
        uuid4(),
        index,
        history.messages,
        history.summary,
        is_new=False,
        system_prompt=history.system_prompt,
    )


async def _apply_card_answer(request: AgentRequest, target: SessionTarget | None) -> AgentRequest:
    """Return the request with the user's answer to a card as its text. Raise an error if the answer is not valid."""
    if request.card_answer is None:
        return request
    if target is None:
        raise InvalidInputError("A card is answered in its session: chat stores none here.")
    answer = await prepare_card_answer(target.memory, target.session_id, request.card_answer)
    text = "\n".join(part for part in (answer.content, request.text) if part.strip())
    return replace(request, text=text, metadata={**request.metadata, **answer.metadata})


async def _build_history(
    request: AgentRequest, schema: AgentSchema, target: SessionTarget | None, turn: Turn | None
) -> list[ModelMessage]:
    """Return the earlier messages: those of the stored session, or those of the client if it named no session."""
    if target is None or turn is None or request.context.session_id is None:
        return history_from_client(request.client_history)
    if not _can_look_up(schema):
        return history_from_session(await target.memory.expand_history(target.session_id, turn.history))
    return history_from_session(turn.history)


def _make_window(request: AgentRequest, turn: Turn | None) -> TurnWindow:
    """Return what the model already has."""
    return TurnWindow(request.text, frozenset() if turn is None else turn.list_known_messages())


def _find_previous(request: AgentRequest, turn: Turn | None) -> str:
    """Return the message of the user before this one; "" for the first one."""
    earlier = [*request.client_history, *(turn.history if turn is not None else ())]
    return next((message.content for message in reversed(earlier) if message.role == Role.USER), "")


def _make_model_error(schema: AgentSchema) -> ModelRequiredError:
    return ModelRequiredError(
        f"The agent {schema.name} needs a language model: set LLM__DEFAULT_MODEL (for example openai:gpt-4o), or name "
        f"a model. Without one the agent {DEFAULT_AGENT} answers in plain text."
    )


def _can_look_up(schema: AgentSchema) -> bool:
    """Return whether the agent can follow the LOOKUP hint of a shortened message."""
    return not _LOOKUP_TOOLS.isdisjoint(schema.tool_names)


def _get_requested_model(request: AgentRequest) -> str | None:
    """Return the model that the caller named; None for `rem`, which means the agent's or the configured one."""
    name = request.context.default_model or request.model
    return None if name == DEFAULT_MODEL else name
