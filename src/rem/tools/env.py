"""ToolEnv: all that a tool may know of who called it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rem.context import AgentContext, Scope
from rem.errors import MemoryDisabledError
from rem.events import AnyEvent

if TYPE_CHECKING:
    from rem.app import Rem


class Delegate(Protocol):
    """Lets another agent answer, in the same conversation; what it says is streamed as it says it."""

    async def __call__(self, agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        """The agent's answer: `output`, and what else the caller should know."""
        ...


class AgentDefinition(Protocol):
    """The definition of an agent."""

    @property
    def name(self) -> str:
        """What it is called by."""
        ...

    @property
    def description(self) -> str:
        """What it is for."""
        ...

    def as_yaml(self) -> str:
        """The definition as its author writes it."""
        ...

    def as_document(self) -> dict[str, Any]:
        """The same as plain JSON."""
        ...


class AgentDirectory(Protocol):
    """The agents that a caller can ask: those that come with REM, those of a folder, and its own."""

    async def get(self, name: str, scope: Scope) -> AgentDefinition:
        """The agent of a name."""
        ...

    async def list(self, scope: Scope) -> Sequence[AgentDefinition]:
        """All of them."""
        ...

    async def save(self, text: str, scope: Scope) -> AgentDefinition:
        """Keep an agent that the caller wrote."""
        ...


async def _nobody_listens(_event: AnyEvent) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ToolEnv:
    """Where a tool runs. The scope is the caller's; a tool's arguments, which a model writes, cannot change it."""

    context: AgentContext
    memory: Rem | None
    """None where the database is switched off: use `rem`, which says so."""
    delegate: Delegate | None = None
    emit: Callable[[AnyEvent], Awaitable[None]] = _nobody_listens
    agents: AgentDirectory | None = None
    has_model: bool = False
    """Whether a language model is configured, so that another agent understands what is asked in plain language."""
    may_read: Callable[[str], bool] | None = None
    """Which resources may be read, by their address; all of them if not given."""

    @property
    def rem(self) -> Rem:
        """The open REM."""
        if self.memory is None:
            raise MemoryDisabledError
        return self.memory

    @property
    def scope(self) -> Scope:
        """What the caller may see."""
        return self.context.scope
