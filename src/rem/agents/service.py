"""Agents: who answers, with which model, remembering what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from pydantic_ai.usage import UsageLimits

from rem.agents.afterwards import Afterwards
from rem.agents.catalog import AgentCatalog
from rem.agents.conversation import Conversation, Place
from rem.agents.factory import AgentFactory
from rem.agents.history import client_messages, model_messages
from rem.agents.local_model import LOCAL_MODEL
from rem.agents.mind import AgentMind, CatalogSchemas
from rem.agents.models import ModelRegistry, ResolvedModel
from rem.agents.run import Run
from rem.agents.run_agent import ChildRuns, ModelRun, SimulatedRun
from rem.agents.to_summarize import to_summarize
from rem.agents.turn import Answer, ChatTurn
from rem.agents.user_hint import user_hint
from rem.context import AgentContext, Scope
from rem.errors import InvalidInputError
from rem.memory.message import NewMessage
from rem.memory.tokens import count_tokens
from rem.models.message import Role
from rem.tools.env import Delegate, ToolEnv

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

    from rem.agents.schema import AgentSchema
    from rem.app import Rem
    from rem.memory.message import Turn
    from rem.memory.summary import Summarize
    from rem.models import Message
    from rem.settings import Settings

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
        self._afterwards = Afterwards()

    async def run(self, turn: ChatTurn) -> Answer:
        """The whole answer of an agent."""
        return await (await self.begin(turn)).answer()

    async def begin(self, turn: ChatTurn) -> Conversation:
        """Begin to answer: an unknown agent or model, or another's session, is an error now; the message is stored."""
        if not turn.text.strip():
            raise InvalidInputError("The message is empty: say something.")
        context = await self._in_session(turn)
        schema = await self.catalog.get(turn.agent or context.agent_schema_uri or DEFAULT_AGENT, context.scope)
        place = self._place(context)
        if schema.name == _SIMULATOR:
            await self._begin_turn(turn, context, schema, place)
            return Conversation(SimulatedRun(schema.name, turn.text), place, self._afterwards)
        model = self._model_for(turn, schema)
        agent = self._factory.build(schema, turn.output_schema)
        begun = await self._begin_turn(turn, context, schema, place)
        env = self.env(context)
        run = self._run(turn, schema, model, env, await _history(turn, schema, place, begun))
        instructions = await self._instructions(turn, schema, env, begun)
        prompt = await self._prompt(turn, schema, place, begun)
        return Conversation(ModelRun(agent, run, prompt, instructions=instructions), place, self._afterwards)

    async def _in_session(self, turn: ChatTurn) -> AgentContext:
        """The context with a conversation to remember; a new one if the caller names none."""
        context = turn.context
        if self._rem is None or not turn.is_remembered:
            return context
        if context.session_id is None:
            return context.model_copy(update={"session_id": str(uuid4())})
        if context.session_name is None or context.user_id is None:
            return context
        named = await self._rem.memory(context.scope).session_id(context.session_name)
        return context.model_copy(update={"session_id": str(named)})

    def _run(
        self, turn: ChatTurn, schema: AgentSchema, model: ResolvedModel, env: ToolEnv, history: Sequence[ModelMessage]
    ) -> Run:
        return Run(
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
                turn = ChatTurn(context=context, text=text, agent=agent_name, is_remembered=is_remembered)
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

    def _model_for(self, turn: ChatTurn, schema: AgentSchema) -> ResolvedModel:
        return self.resolve_model(_chosen_model(turn) or schema.model)

    def _place(self, context: AgentContext) -> Place | None:
        if self._rem is None or context.session_id is None:
            return None
        summarize = self._summarize_for(context) if self._has_model else None
        return Place(self._rem.memory(context.scope), UUID(context.session_id), summarize)

    async def _begin_turn(
        self, turn: ChatTurn, context: AgentContext, schema: AgentSchema, place: Place | None
    ) -> Turn | None:
        """Store the message, and read what was said before it; None without memory."""
        if place is None:
            return None
        if turn.earlier and turn.context.session_id is not None:
            earlier = [NewMessage(role=Role(said.role), content=said.content) for said in turn.earlier]
            await place.memory.bring_along(place.session_id, earlier, agent=schema.name, name=context.session_name)
        given = {"client_id": context.client_id, "is_eval": context.is_eval or None}
        about = {name: value for name, value in given.items() if value is not None}
        message = NewMessage(role=Role.USER, content=turn.text, metadata={**turn.metadata, **about})
        return await place.memory.begin_turn(
            place.session_id, message, agent=schema.name, metadata=about, name=context.session_name
        )

    async def _instructions(self, turn: ChatTurn, schema: AgentSchema, env: ToolEnv, begun: Turn | None) -> list[str]:
        """What the model is told beside the agent's own instructions."""
        summary = begun.summary if begun else None
        told = [
            await user_hint(
                env,
                with_profile=self._settings.chat.auto_inject_user_context,
                can_look_up=_can_look_up(schema),
            ),
            f"What was said earlier in this conversation, in short:\n{summary}" if summary else None,
            turn.instructions,
        ]
        return [text for text in told if text]

    async def _prompt(self, turn: ChatTurn, schema: AgentSchema, place: Place | None, begun: Turn | None) -> str:
        """The message, with what was said about it in the past if the agent or the settings want that."""
        is_wanted = self._settings.memory.rag.enabled if schema.rag is None else schema.rag
        if place is None or not is_wanted:
            return turn.text
        return await place.memory.recall(turn.text, place.session_id, turn=begun) or turn.text

    @property
    def _has_model(self) -> bool:
        """Whether a language model is configured."""
        return self._settings.llm.default_model not in (None, "", LOCAL_MODEL)

    def _summarize_for(self, context: AgentContext) -> Summarize:
        """Summaries by the summarizer agent; they are no part of the conversation."""

        async def summarize(so_far: str | None, messages: list[Message]) -> str:
            answer = await self.think(_SUMMARIZER, to_summarize(so_far, messages), context)
            return str((answer.output or {}).get("summary") or answer.text)

        return summarize

    @property
    def schemas(self) -> CatalogSchemas:
        """What agents return, as dreams without a language model use it."""
        return CatalogSchemas(self.catalog)

    @property
    def mind(self) -> AgentMind | None:
        """The configured language model, as dreams use it; None without one."""
        return AgentMind(self, str(self._settings.llm.default_model)) if self._has_model else None

    async def think(self, agent: str, text: str, context: AgentContext) -> Answer:
        """The answer of an agent to a text that is no part of any conversation."""
        schema = await self.catalog.get(agent, context.scope)
        turn = ChatTurn(context=context, text=text, agent=schema.name)
        run = self._run(turn, schema, self._model_for(turn, schema), self.env(context), [])
        alone = Conversation(ModelRun(self._factory.build(schema), run, turn.text), None, self._afterwards)
        return await alone.answer()

    async def warm_up(self) -> None:
        """Load beforehand what the first answer would have to wait for."""
        self._factory.build(await self.catalog.get(DEFAULT_AGENT, Scope()))
        count_tokens("x")

    async def close(self) -> None:
        """Finish what is still to be remembered, and close the connections to the models."""
        await self._afterwards.close()
        await self._models.close()


async def _history(turn: ChatTurn, schema: AgentSchema, place: Place | None, begun: Turn | None) -> list[ModelMessage]:
    """What was said before. Who keeps no session sends it along each time; it is context then, not news."""
    if place is None or begun is None or turn.context.session_id is None:
        return client_messages(turn.earlier)
    if not _can_look_up(schema):
        return model_messages(await place.memory.recovered(place.session_id, begun.history))
    return model_messages(begun.history)


def _can_look_up(schema: AgentSchema) -> bool:
    """Whether an agent can follow the hint that a shortened answer has."""
    return not _LOOKS_UP.isdisjoint(schema.tool_names)


def _chosen_model(turn: ChatTurn) -> str | None:
    """The model that the caller named; `rem` stands for the agent's own or the default one."""
    named = turn.context.default_model or turn.model
    return None if named == DEFAULT_AGENT else named
