"""AgentMind: the built-in agents at work on memories, for dreams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rem.context import AgentContext
from rem.errors import ModelError

if TYPE_CHECKING:
    from rem.agents.service import Agents
    from rem.context import Scope


class AgentMind:
    """Asks agents on the configured model."""

    def __init__(self, agents: Agents, model: str) -> None:
        self._agents = agents
        self.model = model

    async def think(self, agent: str, text: str, scope: Scope) -> dict[str, Any]:
        """The agent's output, valid against its schema; a ModelError if there is none."""
        context = AgentContext(user_id=scope.user_id, tenant_id=scope.tenant_id)
        answer = await self._agents.think(agent, text, context)
        if answer.output is None:
            raise ModelError(f"The agent {agent} gave no output that fits its schema.")
        return answer.output
