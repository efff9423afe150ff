"""Agents: who answers, with which model, remembering what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from pydantic_ai.usage import UsageLimits

from rem.agents.answer_stream import AnswerStream, SessionTarget
from rem.agents.background_tasks import BackgroundTasks
from rem.agents.catalog import AgentCatalog
from rem.agents.chat import AgentAnswer, AgentRequest
from rem.agents.factory import AgentFactory
from rem.agents.local.model import LOCAL_MODEL
from rem.agents.model_input import build_summary_prompt, build_user_hint, history_from_client, history_from_session
from rem.agents.model_registry import ModelRegistry, ResolvedModel
from rem.agents.runs import ChildRuns, ModelRun, RunDeps, SimulatedRun
from rem.context import AgentContext, Scope
from rem.errors import InvalidAgentError, InvalidInputError, ModelError
from rem.memory.message import NewMessage
from rem.memory.tokens import count_tokens
from rem.models.message import Role
from rem.tools.env import Delegate, ToolEnv

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

    from rem.agents.schema import AgentSchema
    from rem.app import Rem
    from rem.memory.extractive_summary import Summarizer
    from rem.memory.message import Turn
    from rem.models import Message
    from rem.settings import Settings


class CatalogOutputSchemas:
    """What the agents of a catalogue return, for dreams that do without a language model."""

    def __init__(self, catalog: AgentCatalog) -> None:
        self._catalog = catalog

    async def schema_of(self, agent: str, scope: Scope) -> dict[str, Any]:
        """The JSON schema of what an agent returns; an error if there is no such agent, or it returns plain text."""
        schema = await self._catalog.get(agent, scope)
        if not schema.structured_output:
            raise InvalidAgentError(
                f"The agent {schema.name} answers in plain text: set structured_output to true, and give it properties."
            )
        return schema.output_schema


class AgentExtractionModel(CatalogOutputSchemas):
    """Asks agents on the configured model."""

    def __init__(self, agents: Agents, model: str) -> None:
        super().__init__(agents.catalog)
        self._agents = agents
        self.model = model

    async def think(self, agent: str, text: str, scope: Scope) -> dict[str, Any]:
        """The agent's output, valid against its schema; a ModelError if there is none."""
        context = AgentContext(user_id=scope.user_id, tenant_id=scope.tenant_id)
        answer = await self._agents.run_without_session(agent, text, context)
        if answer.output is None:
            raise ModelError(f"The agent {agent} gave no output that fits its schema.")
        return answer.output


DEFAULT_AGENT = "rem"
_SIMULATOR = "simulator"
_SUMMARIZER = "summarizer"
_LOOKS_UP = frozenset({"search_rem", "lookup"})
"""Tools that give back what a key stands for: an agent without them cannot follow a hint."""


class Agents:
    """Answers for the agents of an open REM; without a REM, it answers and forgets."""

    def __init__(self, rem: Rem | None, settings: Settings) -> None:
        self.catalog = AgentCatalog(settings, rem)
        self._rem = rem
        self._settings = settings
        self._models = ModelRegistry(settings)
        self._factory = AgentFactory()
        self._children = ChildRuns(self, self._factory)
        self._afterwards = BackgroundTasks()

    async def run(self, turn: AgentRequest) -> AgentAnswer:
        """The whole answer of an agent."""
        return await (await self.start(turn)).collect()

    async def start(self, turn: AgentRequest) -> AnswerStream:
        """Begin to answer: an unknown agent or model, or another's session, is an error now; the message is stored."""
        if not turn.text.strip():
            raise InvalidInputError("The message is empty: say something.")
        context = await self._in_session(turn)
        schema = await self.catalog.get(turn.agent or context.agent_schema_uri or DEFAULT_AGENT, context.scope)
        place = self._place(context)
        if schema.name == _SIMULATOR:
            await self._begin_turn(turn, context, schema, place)
            return AnswerStream(SimulatedRun(schema.name, turn.text), place, self._afterwards)
        model = self._model_for(turn, schema)
        agent = self._factory.build(schema, turn.output_schema)
        begun = await self._begin_turn(turn, context, schema, place)
        env = self.env(context)
        run = self._run(turn, schema, model, env, await _history(turn, schema, place, begun))
        instructions = await self._instructions(turn, schema, env, begun)
        prompt = await self._prompt(turn, schema, place, begun)
        return AnswerStream(ModelRun(agent, run, prompt, instructions=instructions), place, self._afterwards)

    async def _in_session(self, turn: AgentRequest) -> AgentContext:
        """The context with a conversation to remember; a new one if the caller names none."""
        context = turn.context
        if self._rem is None or not turn.is_remembered:
            return context
        if context.session_id is None:
            return context.model_copy(update={"session_id": str(uuid4())})
        if context.session_name is None or context.user_id is None:
            return context
        named = await self._rem.memory(context.scope).resolve_session_id(context.session_name)
        return context.model_copy(update={"session_id": str(named)})

    def _run(
        self,
        turn: AgentRequest,
        schema: AgentSchema,
        model: ResolvedModel,
        env: ToolEnv,
        history: Sequence[ModelMessage],
    ) -> RunDeps:
        return RunDeps(
            env=replace(env, may_read=schema.may_read),
            agent=schema.name,
            model=model,
            is_model_chosen=_chosen_model(turn) is not None,
            model_settings=self.model_settings(schema, turn.model_settings),
            history=history,
            limits=UsageLimits(
                request_limit=schema.request_limit or self._settings.llm.request_limit,
                total_tokens_limit=schema.total_tokens_limit or self._settings.llm.total_tokens_limit,
            ),
            seconds=self._settings.llm.answer_seconds,
            children=self._children,
        )

    def env(self, context: AgentContext) -> ToolEnv:
        """What tools know of a caller."""
        return ToolEnv(context, self._rem, agents=self.catalog, has_model=self._has_model)

    def env_with_delegate(self, context: AgentContext) -> ToolEnv:
        """The same for who is no agent itself, such as an MCP client: it can ask agents, too."""
        return replace(self.env(context), delegate=self._delegate_for(context))

    def _delegate_for(self, context: AgentContext) -> Delegate:
        async def delegate(agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
            async with asyncio.timeout(timeout_seconds):
                # Who asks without a session keeps the conversation elsewhere.
                is_remembered = context.session_id is not None
                turn = AgentRequest(context=context, text=text, agent=agent_name, is_remembered=is_remembered)
                answer = await self.run(turn)
            return {"status": "success", "agent": answer.agent, "output": answer.output or answer.text}

        return delegate

    def resolve_model(self, name: str | None) -> ResolvedModel:
        """The model of a name; the default one without."""
        return self._models.resolve(name)

    def model_settings(self, schema: AgentSchema, asked: Mapping[str, Any]) -> dict[str, Any]:
        """How the model is to answer: as the caller asks, else as the agent says, else as the settings do."""
        default = self._settings.llm.default_temperature
        defaults = {
            "temperature": default if schema.temperature is None else schema.temperature,
            "max_tokens": schema.max_tokens,
        }
        return {name: value for name, value in defaults.items() if value is not None} | dict(asked)

    def _model_for(self, turn: AgentRequest, schema: AgentSchema) -> ResolvedModel:
        return self.resolve_model(_chosen_model(turn) or schema.model)

    def _place(self, context: AgentContext) -> SessionTarget | None:
        if self._rem is None or context.session_id is None:
            return None
        summarize = self._summarize_for(context) if self._has_model else None
        return SessionTarget(self._rem.memory(context.scope), UUID(context.session_id), summarize)

    async def _begin_turn(
        self, turn: AgentRequest, context: AgentContext, schema: AgentSchema, place: SessionTarget | None
    ) -> Turn | None:
        """Store the message, and read what was said before it; None without memory."""
        if place is None:
            return None
        if turn.earlier and turn.context.session_id is not None:
            earlier = [NewMessage(role=Role(said.role), content=said.content) for said in turn.earlier]
            await place.memory.seed_session(place.session_id, earlier, agent=schema.name, name=context.session_name)
        given = {"client_id": context.client_id, "is_eval": context.is_eval or None}
        about = {name: value for name, value in given.items() if value is not None}
        message = NewMessage(role=Role.USER, content=turn.text, metadata={**turn.metadata, **about})
        return await place.memory.begin_turn(
            place.session_id, message, agent=schema.name, metadata=about, name=context.session_name
        )

    async def _instructions(
        self, turn: AgentRequest, schema: AgentSchema, env: ToolEnv, begun: Turn | None
    ) -> list[str]:
        """What the model is told beside the agent's own instructions."""
        summary = begun.summary if begun else None
        told = [
            await build_user_hint(
                env,
                with_profile=self._settings.chat.auto_inject_user_context,
                can_look_up=_can_look_up(schema),
            ),
            f"What was said earlier in this conversation, in short:\n{summary}" if summary else None,
            turn.instructions,
        ]
        return [text for text in told if text]

    async def _prompt(
        self, turn: AgentRequest, schema: AgentSchema, place: SessionTarget | None, begun: Turn | None
    ) -> str:
        """The message, with what was said about it in the past if the agent or the settings want that."""
        is_wanted = self._settings.memory.rag.enabled if schema.rag is None else schema.rag
        if place is None or not is_wanted:
            return turn.text
        return await place.memory.recall(turn.text, place.session_id, turn=begun) or turn.text

    @property
    def _has_model(self) -> bool:
        """Whether a language model is configured."""
        return self._settings.llm.default_model not in (None, "", LOCAL_MODEL)

    def _summarize_for(self, context: AgentContext) -> Summarizer:
        """Summaries by the summarizer agent; they are no part of the conversation."""

        async def summarize(so_far: str | None, messages: list[Message]) -> str:
            answer = await self.run_without_session(_SUMMARIZER, build_summary_prompt(so_far, messages), context)
            return str((answer.output or {}).get("summary") or answer.text)

        return summarize

    @property
    def output_schemas(self) -> CatalogOutputSchemas:
        """What agents return, as dreams without a language model use it."""
        return CatalogOutputSchemas(self.catalog)

    @property
    def extraction_model(self) -> AgentExtractionModel | None:
        """The configured language model, as dreams use it; None without one."""
        return AgentExtractionModel(self, str(self._settings.llm.default_model)) if self._has_model else None

    async def run_without_session(self, agent: str, text: str, context: AgentContext) -> AgentAnswer:
        """The answer of an agent to a text that is no part of any conversation."""
        schema = await self.catalog.get(agent, context.scope)
        turn = AgentRequest(context=context, text=text, agent=schema.name)
        run = self._run(turn, schema, self._model_for(turn, schema), self.env(context), [])
        alone = AnswerStream(ModelRun(self._factory.build(schema), run, turn.text), None, self._afterwards)
        return await alone.collect()

    async def warm_up(self) -> None:
        """Load beforehand what the first answer would have to wait for."""
        self._factory.build(await self.catalog.get(DEFAULT_AGENT, Scope()))
        count_tokens("x")

    async def close(self) -> None:
        """Finish what is still to be remembered, and close the connections to the models."""
        await self._afterwards.close()
        await self._models.close()


async def _history(
    turn: AgentRequest, schema: AgentSchema, place: SessionTarget | None, begun: Turn | None
) -> list[ModelMessage]:
    """What was said before. Who keeps no session sends it along each time; it is context then, not news."""
    if place is None or begun is None or turn.context.session_id is None:
        return history_from_client(turn.earlier)
    if not _can_look_up(schema):
        return history_from_session(await place.memory.expand_history(place.session_id, begun.history))
    return history_from_session(begun.history)


def _can_look_up(schema: AgentSchema) -> bool:
    """Whether an agent can follow the hint that a shortened answer has."""
    return not _LOOKS_UP.isdisjoint(schema.tool_names)


def _chosen_model(turn: AgentRequest) -> str | None:
    """The model that the caller named; `rem` stands for the agent's own or the default one."""
    named = turn.context.default_model or turn.model
    return None if named == DEFAULT_AGENT else named
