"""Where tools run in the tests: who calls, and what the caller's client sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rem import Rem
from rem.context import AgentContext, Scope
from rem.events import AnyEvent
from rem.tools.env import ToolEnv


def env_for(rem: Rem | None, user: str | None = None, **fields: Any) -> ToolEnv:
    """The environment of a user's call."""
    context = AgentContext(user_id=Scope.for_user(user).user_id, session_id=fields.pop("session_id", None))
    return ToolEnv(context, rem, **fields)


@dataclass
class Client:
    """Keeps what is emitted."""

    events: list[AnyEvent] = field(default_factory=list)

    async def emit(self, event: AnyEvent) -> None:
        self.events.append(event)

    @property
    def seen(self) -> list[dict[str, Any]]:
        return [event.model_dump(exclude_none=True, exclude_defaults=True) for event in self.events]
