"""A chat on the database of this machine, or the one that the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.app import Rem
from rem.cli.chat.connection import MessageLine, NamedChoice, OutgoingMessage, SessionLine
from rem.cli.runtime import print_to_stderr
from rem.context import AgentContext
from rem.errors import NotFoundError
from rem.models import Feedback, Message
from rem.settings import Settings

if TYPE_CHECKING:
    from rem.agents.service import Agents
    from rem.events import AnyEvent
    from rem.models import Session
    from rem.models.results import Result
    from rem.sessions.manager import MemoryManager


class LocalConnection:
    """A `ChatConnection` to an open REM in this process."""

    def __init__(self, rem: Rem, context: AgentContext) -> None:
        self._rem = rem
        self._context = context
        # The modules of the agents take most of the start: they are loaded while the user types.
        self._loading = asyncio.create_task(asyncio.to_thread(import_module, "rem.agents.service"))

    @classmethod
    @asynccontextmanager
    async def open(cls, context: AgentContext, settings: Settings) -> AsyncIterator[LocalConnection]:
        """Open REM and its agents, and yield a connection."""
        async with Rem.open(settings, on_progress=print_to_stderr) as rem:
            connection = cls(rem, context)
            try:
                yield connection
            finally:
                await connection._loading

    async def send(self, message: OutgoingMessage) -> AsyncGenerator[AnyEvent]:
        """Store a message and yield the events of the answer. Closing the generator stops the answer."""
        agents = await self._get_agents()
        from rem.agents.chat import AgentRequest

        context = self._context.in_session(message.session) if message.session else self._context
        request = AgentRequest(
            context=context,
            text=message.text,
            agent=message.agent,
            model=message.model,
            card_answer=message.card_answer,
        )
        answer = await agents.start(request)
        async with aclosing(answer.events()) as events:
            async for event in events:
                yield event

    async def query(self, text: str) -> Result:
        """Run a query in REM's query language."""
        return await self._rem.for_user(self._context.scope).query(text)

    async def ask_memory(self, question: str) -> Result:
        """Return what the memory says to a question in plain words."""
        return await self._rem.for_user(self._context.scope).find(question)

    async def load_profile(self) -> dict[str, Any] | None:
        """Return the user's row in `users`, or None."""
        agents = await self._get_agents()
        from rem.tools.profile import load_own_profile

        return await load_own_profile(agents.env(self._context))

    async def list_sessions(self, limit: int) -> Sequence[SessionLine]:
        """Return the user's sessions, the most recently used first."""
        return await self._with_titles(await self._memory.list_sessions(limit))

    async def find_session(self, name: str) -> SessionLine:
        """Return a session by its id or name. Raise NotFoundError if there is none."""
        session_id = await self._memory.resolve_session_id(name)
        try:
            (line,) = await self._with_titles([await self._memory.get_session(session_id)])
        except NotFoundError as error:
            raise NotFoundError(f"There is no session {name!r}: /sessions lists yours.") from error
        return line

    async def list_messages(self, session: str) -> Sequence[MessageLine]:
        """Return all messages of a session in order."""
        messages = await self._memory.load_session(UUID(session), create_session=False)
        return [_to_line(message) for message in messages]

    async def rename_session(self, session: str, name: str) -> None:
        """Give a session a name."""
        await self._memory.rename_session(UUID(session), name)

    async def start_over(self, session: str) -> int:
        """Leave the messages so far out of what models are given. Return how many they are."""
        return await self._memory.start_over(UUID(session))

    async def delete_session(self, session: str) -> None:
        """Delete a session with its messages."""
        await self._memory.delete_session(UUID(session))

    async def rate(self, message_key: str, rating: int, comment: str | None) -> None:
        """Store a rating of an answer."""
        store = self._rem.for_user(self._context.scope).store
        message = await store.get(Message, UUID(message_key))
        await store.upsert(
            Feedback(session_id=message.session_id, message_id=message.id, rating=rating, comment=comment)
        )

    async def list_agents(self) -> Sequence[NamedChoice]:
        """Return the agents that the user can talk to."""
        schemas = await (await self._get_agents()).catalog.list(self._context.scope)
        return [NamedChoice(schema.name, schema.description) for schema in schemas]

    async def list_models(self) -> Sequence[NamedChoice]:
        """Return the models that can answer."""
        await self._get_agents()
        from rem.agents.model_registry import list_models

        return [NamedChoice(card.id, card.description or "") for card in list_models(self._rem.settings)]

    async def check_model(self, name: str) -> None:
        """Raise InvalidInputError if no model has this name, or it is not set up."""
        (await self._get_agents()).resolve_model(name)

    def describe(self) -> str:
        """Return where the memory is, for the first line of the chat."""
        return self._rem.database.describe_address()

    async def _get_agents(self) -> Agents:
        # Ctrl-C may stop the answer that waits for them, but not the loading.
        await asyncio.shield(self._loading)
        return self._rem.agents

    @property
    def _memory(self) -> MemoryManager:
        return self._rem.for_user(self._context.scope).sessions

    async def _with_titles(self, sessions: Sequence[Session]) -> list[SessionLine]:
        titles = await self._memory.get_titles([session.id for session in sessions])
        return [
            SessionLine(
                str(session.id),
                titles.get(session.id) or session.name or "",
                session.updated_at,
                session.message_count,
                session.name,
            )
            for session in sessions
        ]


def _to_line(message: Message) -> MessageLine:
    return MessageLine(
        message.key or "", message.role.value, message.content or "", message.created_at, message.tool_name
    )
