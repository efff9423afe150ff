"""From an agent's definition to a pydantic-ai agent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_ai import Agent

from rem.agents.output import checked_size, output_type, validate_output
from rem.agents.run import Run, tool_env
from rem.tools.binding import agent_tool
from rem.tools.registry import TOOLS

if TYPE_CHECKING:
    from rem.agents.schema import AgentSchema

_OWN = (256, 16 * 1024 * 1024)
"""Agents that are kept built, and how long their definitions may be together.

Making the schemas of the tools' arguments takes longer than a short answer.
"""
_WANTED = (32, 1024 * 1024)
"""The same for agents with a schema that a caller wants: few, and apart, so that they push out nobody's agent."""


class AgentFactory:
    """Builds agents, and keeps those that were used last."""

    def __init__(self) -> None:
        self._own = _Kept(*_OWN)
        self._wanted = _Kept(*_WANTED)

    def build(self, schema: AgentSchema, wanted: Mapping[str, Any] | None = None) -> Agent[Run, Any]:
        """The agent of a definition, with an answer of its own schema, or of the one that the caller wants.

        What is wrong with the wanted schema is an InvalidInputError.
        """
        output_schema = wanted or (schema.output_schema if schema.structured_output else None)
        key = orjson.dumps(schema.model_dump(mode="json")) + (checked_size(wanted) if wanted else b"")
        kept = self._wanted if wanted else self._own
        agent = kept.get(key)
        if agent is None:
            agent = _agent(schema, output_schema)
            kept.add(key, agent)
        return agent


class _Kept:
    """The agents that were used last, at most so many, and not those whose definitions are too long together."""

    def __init__(self, most: int, room: int) -> None:
        self._most = most
        self._room = room
        self._size = 0
        self._agents: OrderedDict[bytes, Agent[Run, Any]] = OrderedDict()

    def get(self, key: bytes) -> Agent[Run, Any] | None:
        """The agent of a definition, if it is kept."""
        agent = self._agents.get(key)
        if agent is not None:
            self._agents.move_to_end(key)
        return agent

    def add(self, key: bytes, agent: Agent[Run, Any]) -> None:
        """Keep an agent, instead of others if need be."""
        self._agents[key] = agent
        self._size += len(key)
        while self._size > self._room or len(self._agents) > self._most:
            oldest, _ = self._agents.popitem(last=False)
            self._size -= len(oldest)


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
