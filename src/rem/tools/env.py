"""ToolEnv: all that a tool may know of who called it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rem.context import AgentContext, Scope
from rem.errors import MemoryOffError
from rem.events import AnyEvent

if TYPE_CHECKING:
    from rem.app import Rem


class Delegate(Protocol):
    """Lets another agent answer, in the same conversation; what it says is streamed as it says it."""

    async def __call__(self, agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        """The agent's answer: `output`, and what else the caller should know."""
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

    @property
    def rem(self) -> Rem:
        """The open REM."""
        if self.memory is None:
            raise MemoryOffError
        return self.memory

    @property
    def scope(self) -> Scope:
        """What the caller may see."""
        return self.context.scope
