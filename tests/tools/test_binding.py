"""One tool function serves MCP clients and agents; the caller never comes from its arguments."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from rem import Rem
from rem.agents.schema import KNOWN_TOOLS
from rem.db.store import Store
from rem.errors import InvalidInputError, RemError
from rem.models import Resource
from rem.tools.binding import bind_tool, get_traits, make_agent_tool
from rem.tools.env import ToolEnv
from rem.tools.registry import AGENT_TOOLS, TOOLS
from rem.tools.search import lookup, search_rem
from tests.tools.tool_env import env_for

ALICE, BOB = "alice@example.com", "bob@example.com"


def test_agents_may_have_every_registered_tool() -> None:
    assert {*TOOLS, "search"} == set(KNOWN_TOOLS)


def test_traits_are_declared_at_each_tool() -> None:
    traits = {name: get_traits(function) for name, function in TOOLS.items()}
    assert {name for name in traits if traits[name].is_read_only} == {
        "search_rem",
        "lookup",
        "fuzzy",
        "traverse",
        "read_resource",
        "list_schema",
        "get_schema",
    }
    assert {name for name in traits if traits[name].is_destructive} == {
        "forget",
        "correct",
        "ingest_into_rem",
        "parse_and_ingest_file",
        "save_agent",
    }
    assert {name for name in traits if traits[name].is_open_world} == {"ask_agent"}


@pytest.mark.parametrize("name", AGENT_TOOLS)
def test_tool_has_a_description_and_takes_no_user(name: str) -> None:
    parameters = inspect.signature(AGENT_TOOLS[name]).parameters
    assert next(iter(parameters)) == "env"
    assert not {"user", "user_id", "tenant", "tenant_id", "scope"} & set(parameters)
    text = inspect.getdoc(AGENT_TOOLS[name]) or ""
    assert "For example:" in text
    assert f"{name}(" in text
    properties = make_agent_tool(AGENT_TOOLS[name]).function_schema.json_schema["properties"]
    assert set(properties) == set(parameters) - {"env"}
    assert all(schema.get("description") for schema in properties.values())


@pytest.mark.parametrize("name", AGENT_TOOLS)
def test_bound_tool_keeps_signature_and_docstring(name: str) -> None:
    function = bind_tool(AGENT_TOOLS[name], lambda: env_for(None))
    inner = inspect.signature(AGENT_TOOLS[name])
    outer = inspect.signature(function)
    assert list(outer.parameters) == list(inner.parameters)[1:]
    assert [parameter.default for parameter in outer.parameters.values()] == [
        parameter.default for parameter in list(inner.parameters.values())[1:]
    ]
    hints = get_type_hints(AGENT_TOOLS[name], include_extras=True)
    hints.pop("env")
    assert str(get_type_hints(function, include_extras=True)) == str(hints)
    assert (function.__name__, function.__doc__) == (name, AGENT_TOOLS[name].__doc__)


async def test_each_call_gets_its_own_environment(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Note", content="x"))
    callers = [env_for(rem, ALICE), env_for(rem, BOB)]

    async def next_caller() -> ToolEnv:
        return callers.pop(0)

    function = bind_tool(lookup, next_caller)
    assert [(await function(key="note"))["count"] for _ in range(2)] == [1, 0]


async def test_error_is_converted_for_the_caller() -> None:
    def as_error(error: RemError) -> Exception:
        return LookupError(str(error))

    def nobody() -> ToolEnv:
        raise InvalidInputError("X-User-Id: wrong")

    for env_of in (lambda: env_for(None), nobody):
        with pytest.raises(LookupError):
            await bind_tool(lookup, env_of, as_error)(key="x")
    with pytest.raises(InvalidInputError):
        await bind_tool(lookup, nobody)(key="x")


def scripted(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """A model that makes these calls, one after the other, and then says that it is done."""
    left = list(calls)

    def answer(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        name, arguments = left.pop(0)
        return ModelResponse(parts=[ToolCallPart(name, arguments)])

    return FunctionModel(answer)


async def returned(env: ToolEnv, *calls: tuple[str, dict[str, Any]]) -> list[ToolReturnPart]:
    """What an agent's model gets back from its calls."""
    agent = Agent(
        scripted(*calls), deps_type=ToolEnv, tools=[make_agent_tool(function) for function in TOOLS.values()], retries=3
    )
    result = await agent.run("go", deps=env)
    parts = [part for message in result.all_messages() for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart)]


async def test_agent_tool_searches_as_its_user(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Note", content="x"))
    for user, count in ((ALICE, 1), (BOB, 0)):
        (part,) = await returned(env_for(rem, user), ("search_rem", {"query": "LOOKUP note"}))
        assert isinstance(part.content, dict)
        assert part.content["count"] == count


async def test_correctable_error_goes_back_to_the_model(rem: Rem) -> None:
    wrong, right = await returned(
        env_for(rem, ALICE), ("search_rem", {"query": "LOKUP x"}), ("search_rem", {"query": "LOOKUP x"})
    )
    assert (wrong.outcome, right.outcome) == ("retried", "success")
    assert "Unknown verb 'LOKUP': a query begins with LOOKUP" in str(wrong.content)
    (missing,) = await returned(env_for(rem, ALICE), ("read_resource", {"uri": "rem://nothing"}))
    assert missing.outcome == "retried"


async def test_invalid_arguments_go_back_to_the_model(rem: Rem) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_rem", {"query": "LOOKUP x", "mode": "sql"}),
        ("lookup", {"key": "x", "user_id": "bob"}),
        ("register_metadata", {"confidence": 7}),
    ]
    parts = await returned(env_for(rem, ALICE), *calls)
    assert [part.outcome for part in parts] == ["retried"] * 3


async def test_other_error_becomes_an_error_result() -> None:
    (part,) = await returned(env_for(None, ALICE), ("search_rem", {"query": "LOOKUP x"}))
    assert part.content == {
        "status": "error",
        "error": "This needs the database, which is switched off: set POSTGRES__ENABLED=true.",
    }


async def test_environment_may_be_made_from_run_dependencies(rem: Rem) -> None:
    tool = make_agent_tool(search_rem, env_of=lambda context: env_for(rem, context.deps), description="Search here.")
    agent = Agent(scripted(("search_rem", {"query": "LOOKUP x"})), deps_type=str, tools=[tool])
    assert (await agent.run("go", deps=ALICE)).output == "done"
    assert tool.description == "Search here."
