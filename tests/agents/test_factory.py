"""The agent factory caches agents within its limits."""

from __future__ import annotations

from rem.agents.factory import AgentFactory
from rem.agents.yaml_parser import parse_agent
from tests.agents.sample_agents import MINIMAL_AGENT, minimal, object_schema


def test_agent_is_built_once() -> None:
    factory, other = AgentFactory(), object_schema(a={"type": "integer"})
    assert factory.build(MINIMAL_AGENT) is factory.build(parse_agent(minimal(), "x"))
    assert factory.build(MINIMAL_AGENT, other) is factory.build(MINIMAL_AGENT, object_schema(a={"type": "integer"}))
    assert factory.build(MINIMAL_AGENT, other) is not factory.build(MINIMAL_AGENT)


def test_requested_schemas_do_not_evict_agents() -> None:
    factory = AgentFactory()
    own, first = factory.build(MINIMAL_AGENT), factory.build(MINIMAL_AGENT, object_schema(a={"title": "first"}))
    for n in range(40):
        factory.build(MINIMAL_AGENT, object_schema(a={"title": str(n)}))
    assert factory.build(MINIMAL_AGENT) is own
    assert factory.build(MINIMAL_AGENT, object_schema(a={"title": "first"})) is not first


def test_cache_of_requested_schemas_is_limited_in_size() -> None:
    factory = AgentFactory()
    first = factory.build(MINIMAL_AGENT, object_schema(a={"title": "first"}))
    for n in range(20):
        factory.build(MINIMAL_AGENT, object_schema(a={"title": f"{n}{'x' * 60_000}"}))
    assert factory.build(MINIMAL_AGENT, object_schema(a={"title": "first"})) is not first


def test_cache_of_agents_is_limited_in_size() -> None:
    factory = AgentFactory()
    first = factory.build(MINIMAL_AGENT)
    for n in range(180):
        factory.build(MINIMAL_AGENT.model_copy(update={"description": f"{n}{'x' * 99_000}"}))
    assert factory.build(MINIMAL_AGENT) is not first
