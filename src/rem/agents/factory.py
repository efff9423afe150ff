"""AgentFactory: build pydantic-ai agents from agent schemas, with validated structured output."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    ModelRetry,
    NativeOutput,
    RunContext,
    StructuredDict,
    TextOutput,
    Tool,
)

from rem.agents.json_schema import (
    SchemaIssue,
    SchemaTooLargeError,
    check_answer,
    check_schema,
    encode_schema,
    expand_references,
    format_path,
)
from rem.agents.model_input import describe_today
from rem.agents.output_modes import SCHEMA_PROMPT, OutputMode, parse_json_object
from rem.agents.runs import RunDeps, make_tool_env
from rem.errors import InvalidInputError
from rem.tools.binding import make_agent_tool
from rem.tools.registry import AGENT_TOOLS

if TYPE_CHECKING:
    from rem.agents.schema import AgentSchema

MAX_CACHED_AGENTS = 256
MAX_CACHED_AGENTS_BYTES = 16 * 1024 * 1024
"""Size of the cached definitions together. Building an agent takes longer than a short answer."""
MAX_CACHED_TOOLS = 256
MAX_CACHED_REQUEST_AGENTS = 32
MAX_CACHED_REQUEST_AGENTS_BYTES = 1024 * 1024
"""Agents with an output schema of a request have a small cache of their own, so they do not evict other agents."""


class AgentFactory:
    """Builds agents, and caches those that were used last."""

    def __init__(self) -> None:
        self._agents = _AgentCache(MAX_CACHED_AGENTS, MAX_CACHED_AGENTS_BYTES)
        self._request_agents = _AgentCache(MAX_CACHED_REQUEST_AGENTS, MAX_CACHED_REQUEST_AGENTS_BYTES)

    def prepare(self, schema: AgentSchema, requested_schema: Mapping[str, Any] | None = None) -> PreparedAgent:
        """Return the agent of a schema, for a run. Raise InvalidInputError if `requested_schema` cannot be used."""
        self.build(schema, requested_schema)
        return PreparedAgent(schema, requested_schema, self)

    def build(
        self,
        schema: AgentSchema,
        requested_schema: Mapping[str, Any] | None = None,
        mode: OutputMode = "tool",
    ) -> Agent[RunDeps, Any]:
        """Return the agent of a schema. `requested_schema` replaces its output schema; `mode` is how it answers.

        Raise InvalidInputError if `requested_schema` cannot be used.
        """
        output_schema = requested_schema or (schema.output_schema if schema.structured_output else None)
        key = mode.encode() + orjson.dumps(schema.model_dump(mode="json"))
        if requested_schema:
            key += _encode_output_schema(requested_schema)
        cache = self._request_agents if requested_schema else self._agents
        agent = cache.get(key)
        if agent is None:
            agent = _make_agent(schema, output_schema, mode)
            cache.add(key, agent)
        return agent


@dataclass(frozen=True, slots=True)
class PreparedAgent:
    """An agent that can be run in every output mode."""

    schema: AgentSchema
    requested_schema: Mapping[str, Any] | None
    factory: AgentFactory

    @property
    def is_structured(self) -> bool:
        """Whether the answer is an object that matches a schema."""
        return self.schema.structured_output or bool(self.requested_schema)

    def build(self, mode: OutputMode) -> Agent[RunDeps, Any]:
        """Return the agent that answers in this mode."""
        return self.factory.build(self.schema, self.requested_schema, mode)


class _AgentCache:
    """The agents that were used last, limited in number and in the size of their keys."""

    def __init__(self, max_agents: int, max_bytes: int) -> None:
        self._max_agents = max_agents
        self._max_bytes = max_bytes
        self._bytes = 0
        self._agents: OrderedDict[bytes, Agent[RunDeps, Any]] = OrderedDict()

    def get(self, key: bytes) -> Agent[RunDeps, Any] | None:
        """Return the cached agent, or None."""
        agent = self._agents.get(key)
        if agent is not None:
            self._agents.move_to_end(key)
        return agent

    def add(self, key: bytes, agent: Agent[RunDeps, Any]) -> None:
        """Cache an agent, and evict the agents that were not used for the longest time."""
        self._agents[key] = agent
        self._bytes += len(key)
        while self._bytes > self._max_bytes or len(self._agents) > self._max_agents:
            oldest, _ = self._agents.popitem(last=False)
            self._bytes -= len(oldest)


def make_output_type(name: str, output_schema: Mapping[str, Any], mode: OutputMode = "tool") -> Any:
    """Return the `output_type` of pydantic-ai for answers that match a JSON schema.

    The library shows the schema to the model but does not validate the answer: use `validate_output` as the agent's
    output validator. With the mode `prompt` it does not show the schema either: add `describe_output` to the
    instructions. Raise InvalidInputError if the schema cannot be used.
    """
    issues = check_schema(dict(output_schema))
    if issues:
        raise _make_schema_error(issues)
    title = "".join(word.capitalize() for word in name.split("-"))
    # The library does not expand all references.
    answer = StructuredDict(expand_references(output_schema), name=f"{title}Output", description="The answer.")
    match mode:
        case "tool":
            return answer
        case "native":
            # A server may ignore the schema without an error, so the prompt has it as well.
            return NativeOutput(answer, template=SCHEMA_PROMPT)
        case "prompt":
            return TextOutput(_parse_answer)


def describe_output(output_schema: Mapping[str, Any]) -> str:
    """Return the instruction to answer with JSON that matches a schema."""
    return SCHEMA_PROMPT.format(schema=orjson.dumps(expand_references(output_schema)).decode())


def validate_output(output_schema: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return the answer if it matches the schema. Raise ModelRetry, which tells the model all errors, if not."""
    issues = check_answer(output_schema, data)
    if issues:
        raise ModelRetry(
            f"The answer does not match its schema. {_describe_issues(issues)} Correct these errors and answer again."
        )
    return data


def _make_agent(schema: AgentSchema, output_schema: Mapping[str, Any] | None, mode: OutputMode) -> Agent[RunDeps, Any]:
    descriptions = {tool.name: tool.description for tool in schema.tools}
    # A structured run asks the user nothing, so it never waits for a decision.
    output_type: Any = [str, DeferredToolRequests]
    if output_schema is not None:
        output_type = make_output_type(schema.name, output_schema, mode)
    agent: Agent[RunDeps, Any] = Agent(
        name=schema.name,
        deps_type=RunDeps,
        # The library puts the text of a function after all others, so what changes most comes last.
        instructions=[
            schema.description,
            *([describe_output(output_schema)] if output_schema is not None and mode == "prompt" else []),
            _describe_today,
        ],
        tools=[_make_tool(name, descriptions.get(name)) for name in schema.tool_names],
        output_type=output_type,
        retries=schema.retries,
    )
    if output_schema is not None:
        agent.output_validator(partial(validate_output, output_schema))
    return agent


@lru_cache(MAX_CACHED_TOOLS)
def _make_tool(name: str, description: str | None) -> Tool[RunDeps]:
    """Return a tool. Agents share it: its schema takes most of the time of building an agent."""
    return make_agent_tool(AGENT_TOOLS[name], env_of=make_tool_env, description=description)


def _describe_today(run: RunContext[RunDeps]) -> str:
    return describe_today(run.deps.env)


def _parse_answer(text: str) -> dict[str, Any]:
    """Return the JSON object in a text. Raise ModelRetry, which asks the model for one, if there is none."""
    answer = parse_json_object(text)
    if answer is None:
        raise ModelRetry("The answer must be one JSON object and nothing else. Write it again.")
    return answer


def _encode_output_schema(output_schema: Mapping[str, Any]) -> bytes:
    try:
        return encode_schema(output_schema)
    except SchemaTooLargeError as error:
        raise _make_schema_error([SchemaIssue((), str(error))]) from error


def _make_schema_error(issues: list[SchemaIssue]) -> InvalidInputError:
    return InvalidInputError(f"The answer cannot have this schema. {_describe_issues(issues)}")


def _describe_issues(issues: list[SchemaIssue]) -> str:
    return " ".join(f"{format_path(issue.path) or 'As a whole'}: {issue.message}." for issue in issues)
