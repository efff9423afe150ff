"""From an agent's definition to a pydantic-ai agent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_ai import Agent, ModelRetry, StructuredDict

from rem.agents.json_schema import (
    SchemaIssue,
    SchemaTooLargeError,
    check_answer,
    check_schema,
    encode_schema,
    expand_references,
    format_path,
)
from rem.agents.runs import RunDeps, make_tool_env
from rem.errors import InvalidInputError
from rem.tools.binding import make_agent_tool
from rem.tools.registry import TOOLS

if TYPE_CHECKING:
    from rem.agents.schema import AgentSchema


def make_output_type(name: str, output_schema: Mapping[str, Any]) -> Any:
    """What pydantic-ai takes as `output_type` for answers of a JSON schema; an error if it is none.

    The library shows the schema to the model and takes whatever comes back, so `validate_output` has to be the
    agent's output validator.
    """
    problems = check_schema(dict(output_schema))
    if problems:
        raise _refused(problems)
    title = "".join(word.capitalize() for word in name.split("-"))
    # The library writes references out as well, but not all of them.
    return StructuredDict(expand_references(output_schema), name=f"{title}Output", description="The answer.")


def encode_output_schema(output_schema: Mapping[str, Any]) -> bytes:
    """A schema as JSON, before it is looked at any closer; an error if it is too long or cannot be JSON."""
    try:
        return encode_schema(output_schema)
    except SchemaTooLargeError as error:
        raise _refused([SchemaIssue((), str(error))]) from error


def validate_output(output_schema: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The answer, if it fits the schema; else a ModelRetry that tells the model what to mend."""
    problems = check_answer(output_schema, data)
    if problems:
        raise ModelRetry(
            f"The answer does not fit its schema. {describe_schema_issues(problems)} Answer again with these mended."
        )
    return data


def describe_schema_issues(problems: list[SchemaIssue]) -> str:
    """The problems as sentences."""
    return " ".join(f"{format_path(problem.path) or 'As a whole'}: {problem.message}." for problem in problems)


def _refused(problems: list[SchemaIssue]) -> InvalidInputError:
    return InvalidInputError(f"The answer cannot have this schema. {describe_schema_issues(problems)}")


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

    def build(self, schema: AgentSchema, wanted: Mapping[str, Any] | None = None) -> Agent[RunDeps, Any]:
        """The agent of a definition, with an answer of its own schema, or of the one that the caller wants.

        What is wrong with the wanted schema is an InvalidInputError.
        """
        output_schema = wanted or (schema.output_schema if schema.structured_output else None)
        key = orjson.dumps(schema.model_dump(mode="json")) + (encode_output_schema(wanted) if wanted else b"")
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
        self._agents: OrderedDict[bytes, Agent[RunDeps, Any]] = OrderedDict()

    def get(self, key: bytes) -> Agent[RunDeps, Any] | None:
        """The agent of a definition, if it is kept."""
        agent = self._agents.get(key)
        if agent is not None:
            self._agents.move_to_end(key)
        return agent

    def add(self, key: bytes, agent: Agent[RunDeps, Any]) -> None:
        """Keep an agent, instead of others if need be."""
        self._agents[key] = agent
        self._size += len(key)
        while self._size > self._room or len(self._agents) > self._most:
            oldest, _ = self._agents.popitem(last=False)
            self._size -= len(oldest)


def _agent(schema: AgentSchema, output_schema: Mapping[str, Any] | None) -> Agent[RunDeps, Any]:
    described = {tool.name: tool.description for tool in schema.tools}
    agent: Agent[RunDeps, Any] = Agent(
        name=schema.name,
        deps_type=RunDeps,
        instructions=schema.description,
        tools=[
            make_agent_tool(TOOLS[name], env_of=make_tool_env, description=described.get(name))
            for name in schema.tool_names
        ],
        output_type=str if output_schema is None else make_output_type(schema.name, output_schema),
        retries=schema.retries,
    )
    if output_schema is not None:
        agent.output_validator(partial(validate_output, output_schema))
    return agent
