"""AgentMind: the built-in agents at work on memories, for dreams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rem.context import AgentContext
from rem.errors import AgentInvalidError, ModelError

if TYPE_CHECKING:
    from rem.agents.catalog import AgentCatalog
    from rem.agents.service import Agents
    from rem.context import Scope


class CatalogSchemas:
    """What the agents of a catalogue return, for dreams that do without a language model."""

    def __init__(self, catalog: AgentCatalog) -> None:
        self._catalog = catalog

    async def schema_of(self, agent: str, scope: Scope) -> dict[str, Any]:
        """The JSON schema of what an agent returns; an error if there is no such agent, or it returns plain text."""
        schema = await self._catalog.get(agent, scope)
        if not schema.structured_output:
            raise AgentInvalidError(
                f"The agent {schema.name} answers in plain text: set structured_output to true, and give it properties."
            )
        return schema.output_schema


class AgentMind(CatalogSchemas):
    """Asks agents on the configured model."""

    def __init__(self, agents: Agents, model: str) -> None:
        super().__init__(agents.catalog)
        self._agents = agents
        self.model = model

    async def think(self, agent: str, text: str, scope: Scope) -> dict[str, Any]:
        """The agent's output, valid against its schema; a ModelError if there is none."""
        context = AgentContext(user_id=scope.user_id, tenant_id=scope.tenant_id)
        answer = await self._agents.think(agent, text, context)
        if answer.output is None:
            raise ModelError(f"The agent {agent} gave no output that fits its schema.")
        return answer.output
