"""Tool environments for tests: the caller, its client and a delegate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rem import Rem
from rem.context import AgentContext, Scope
from rem.events import AnyEvent
from rem.tools.env import ToolEnv


def env_for(rem: Rem | None, user: str | None = None, **fields: Any) -> ToolEnv:
    """Return the environment of a call by `user`."""
    context = AgentContext(user_id=Scope.for_user(user).user_id, session_id=fields.pop("session_id", None))
    return ToolEnv(context, rem, **fields)


@dataclass
class RecordingClient:
    """Records the emitted events."""

    events: list[AnyEvent] = field(default_factory=list)

    async def emit(self, event: AnyEvent) -> None:
        self.events.append(event)

    @property
    def seen_events(self) -> list[dict[str, Any]]:
        return [event.model_dump(exclude_none=True, exclude_defaults=True) for event in self.events]


class RecordingDelegate:
    """Answers for other agents, and records the requests."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.requests: list[tuple[str, str, float]] = []
        self._answer = answer

    async def __call__(self, agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        self.requests.append((agent_name, text, timeout_seconds))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer
