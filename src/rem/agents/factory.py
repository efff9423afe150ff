"""From an agent's definition to a pydantic-ai agent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_ai import Agent

from rem.agents.output import output_type, validate_output
from rem.agents.run import Run, tool_env
from rem.tools.binding import agent_tool
from rem.tools.registry import TOOLS

if TYPE_CHECKING:
    from rem.agents.schema import AgentSchema

_KEPT = 256
"""Agents that are kept built: making the schemas of the tools' arguments takes longer than a short answer."""


class AgentFactory:
    """Builds agents, and keeps those that were used last."""

    def __init__(self) -> None:
        self._built: OrderedDict[bytes, Agent[Run, Any]] = OrderedDict()

    def build(self, schema: AgentSchema, wanted: Mapping[str, Any] | None = None) -> Agent[Run, Any]:
        """The agent of a definition, with an answer of its own schema, or of the one that the caller wants."""
        output_schema = wanted or (schema.output_schema if schema.structured_output else None)
        key = orjson.dumps([schema.model_dump(mode="json"), output_schema])
        agent = self._built.get(key)
        if agent is None:
            agent = self._built[key] = _agent(schema, output_schema)
            if len(self._built) > _KEPT:
                self._built.popitem(last=False)
        self._built.move_to_end(key)
        return agent


def _agent(schema: AgentSchema, output_schema: Mapping[str, Any] | None) -> Agent[Run, Any]:
    described = {tool.name: tool.description for tool in schema.tools}
    agent: Agent[Run, Any] = Agent(
        name=schema.name,
        deps_type=Run,
        instructions=schema.description,
        tools=[agent_tool(TOOLS[name], env_of=tool_env, description=described.get(name)) for name in schema.tool_names],
        output_type=str if output_schema is None else output_type(schema.name, output_schema),
        retries=schema.retries,
    )
    if output_schema is not None:
        agent.output_validator(partial(validate_output, output_schema))
    return agent
