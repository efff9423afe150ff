"""Run: what an agent carries with it while it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from rem.agents.translator import RemEvent
from rem.events import AnyEvent
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_ai import RunContext
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.usage import UsageLimits

    from rem.agents.models import ResolvedModel


class Children(Protocol):
    """Runs an agent that another one calls."""

    async def __call__(
        self, parent: RunContext[Run], agent_name: str, text: str, timeout_seconds: float
    ) -> dict[str, Any]:
        """The child's answer; what it does meanwhile is emitted into the parent's events."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The dependencies of one run of one agent."""

    env: ToolEnv
    agent: str
    model: ResolvedModel
    is_model_chosen: bool
    """Whether the caller named the model, so that children use it, too."""
    model_settings: Mapping[str, Any]
    history: Sequence[ModelMessage]
    limits: UsageLimits
    seconds: float
    """How long the answer may take."""
    children: Children


def tool_env(context: RunContext[Run]) -> ToolEnv:
    """What a tool knows that an agent calls: its events go into the agent's, other agents run under this one."""

    async def emit(event: AnyEvent) -> None:
        named = event if event.agent else event.model_copy(update={"agent": run.agent})
        await context.emit(RemEvent(event=named))

    async def delegate(agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        return await run.children(context, agent_name, text, timeout_seconds)

    run = context.deps
    return replace(run.env, emit=emit, delegate=delegate)
