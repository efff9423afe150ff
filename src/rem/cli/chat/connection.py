"""What a chat needs of REM, in this process (`local`) or on a server (`remote`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rem.events import AnyEvent
    from rem.models.results import Result
    from rem.sessions.card_answers import CardAnswer


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What the user sends: a text, or the answer to a card, and who shall answer."""

    text: str
    session: str | None = None
    """The session to continue, by id or name. Default: a new one."""
    agent: str | None = None
    model: str | None = None
    card_answer: CardAnswer | None = None


@dataclass(frozen=True, slots=True)
class SessionLine:
    """One session of a list."""

    id: str
    title: str
    updated_at: datetime
    message_count: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MessageLine:
    """One stored message."""

    key: str
    role: str
    content: str
    created_at: datetime
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class NamedChoice:
    """An agent or a model that can be chosen."""

    name: str
    description: str


class ChatConnection(Protocol):
    """The memory and the agents of one user. Its methods raise RemError with a text for the user."""

    def send(self, message: OutgoingMessage) -> AsyncGenerator[AnyEvent]:
        """Store a message and yield the events of the answer. Closing the generator stops the answer."""

    async def query(self, text: str) -> Result:
        """Run a query in REM's query language."""

    async def ask_memory(self, question: str) -> Result:
        """Return what the memory says to a question in plain words."""

    async def load_profile(self) -> dict[str, Any] | None:
        """Return the user's row in `users`, or None."""

    async def list_sessions(self, limit: int) -> Sequence[SessionLine]:
        """Return the user's sessions, the most recently used first."""

    async def find_session(self, name: str) -> SessionLine:
        """Return a session by its id or name. Raise NotFoundError if there is none."""

    async def list_messages(self, session: str) -> Sequence[MessageLine]:
        """Return all messages of a session in order."""

    async def rename_session(self, session: str, name: str) -> None:
        """Give a session a name."""

    async def start_over(self, session: str) -> int:
        """Leave the messages so far out of what models are given. Return how many they are."""

    async def delete_session(self, session: str) -> None:
        """Delete a session with its messages."""

    async def rate(self, message_key: str, rating: int, comment: str | None) -> None:
        """Store a rating of an answer."""

    async def list_agents(self) -> Sequence[NamedChoice]:
        """Return the agents that the user can talk to."""

    async def list_models(self) -> Sequence[NamedChoice]:
        """Return the models that can answer."""

    async def check_model(self, name: str) -> None:
        """Raise InvalidInputError if it is known that no model has this name."""

    def describe(self) -> str:
        """Return where the memory is, for the first line of the chat."""
