"""ToolEnv: the caller, the open REM and the callbacks that a tool call may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from uuid import UUID

from rem.context import AgentContext, Scope
from rem.errors import MemoryDisabledError
from rem.events import AnyEvent
from rem.models.approval import RiskLevel

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.models import Approval


AskUser: TypeAlias = Callable[[str, "Approval"], Awaitable[bool | None]]


class Delegate(Protocol):
    """Runs another agent in the same session. Its events are streamed while it runs."""

    async def __call__(self, agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        """Run the agent and return its answer under `output`, with `status` and `agent`."""
        ...


class AgentDefinition(Protocol):
    """The definition of an agent."""

    @property
    def name(self) -> str:
        """The name of the agent."""
        ...

    @property
    def description(self) -> str:
        """The system prompt of the agent."""
        ...

    def as_yaml(self) -> str:
        """Return the definition as YAML."""
        ...

    def as_document(self) -> dict[str, Any]:
        """Return the definition as plain JSON."""
        ...


class AgentDirectory(Protocol):
    """The agents that a caller can use: built-in agents, agents of the folder, and the caller's own."""

    async def get(self, name: str, scope: Scope) -> AgentDefinition:
        """Return the agent with this name."""
        ...

    async def list(self, scope: Scope) -> Sequence[AgentDefinition]:
        """Return all agents that the caller can use."""
        ...

    async def save(self, text: str, scope: Scope) -> AgentDefinition:
        """Check the YAML of an agent and store it as the caller's own."""
        ...


async def _discard_event(_event: AnyEvent) -> None:
    return None


@dataclass(frozen=True, slots=True)
class TurnWindow:
    """What a model already has in its current turn, so that a search need not return it."""

    question: str = ""
    """The message of the user."""
    messages: frozenset[tuple[UUID, int]] = frozenset()
    """The stored messages that the model sees in full, by session id and message index, and the question itself."""

    def contains(self, record: Mapping[str, Any]) -> bool:
        """Return whether a row of `messages` is one of these messages."""
        return (UUID(str(record["session_id"])), record["message_index"]) in self.messages


@dataclass(frozen=True, slots=True)
class ToolEnv:
    """The environment of a tool call. The arguments of a tool, which a model writes, cannot change its scope."""

    context: AgentContext
    memory: Rem | None
    """None if the database is switched off. Use `rem`, which raises MemoryDisabledError then."""
    delegate: Delegate | None = None
    emit: Callable[[AnyEvent], Awaitable[None]] = _discard_event
    agents: AgentDirectory | None = None
    has_model: bool = False
    """A language model is configured, so another agent can interpret plain language."""
    window: TurnWindow = TurnWindow()
    ask_user: AskUser | None = None
    """Shows a request to the user and returns whether the user agrees; None if the client cannot ask."""
    is_chat: bool = False
    """A model of a chat calls the tool: its text is part of the answer, but only the model sees its result."""
    hides_text: bool = False
    """The user does not see the text that the tool emits, such as in a run with structured output."""
    consent: frozenset[RiskLevel] = frozenset({RiskLevel.IRREVERSIBLE})
    """The risk levels of tools that wait for the consent of the user. An irreversible call always does."""
    may_read: Callable[[str], bool] | None = None
    """Decides by its address whether a resource may be read. None allows all resources."""

    @property
    def rem(self) -> Rem:
        """The open REM."""
        if self.memory is None:
            raise MemoryDisabledError
        return self.memory

    @property
    def scope(self) -> Scope:
        """The scope of the caller."""
        return self.context.scope
