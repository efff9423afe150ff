"""Agent schemas: fields, documents, resources and the built-in agents."""

from __future__ import annotations

import time

import pytest
import yaml

from rem.agents.catalog import load_built_in_agents
from rem.agents.uri_pattern import matches_uri_pattern
from rem.agents.yaml_parser import parse_agent, parse_agent_document
from rem.errors import InvalidAgentError
from rem.query.parser import parse_query
from rem.tools.registry import TOOLS
from tests.agents.sample_agents import COMPLETE, minimal


def test_every_field_of_the_document_is_in_the_schema() -> None:
    schema = parse_agent(COMPLETE, "agents/x.yaml")
    assert (schema.name, schema.version, schema.kind) == ("release-helper", "2.1.0", "agent")
    assert schema.description == "You help with releases. You know them all.\n\nAnswer in one sentence.\n"
    assert schema.summary == "You help with releases."
    assert [tool.name for tool in schema.tools] == ["search_rem", "register_metadata"]
    assert schema.tools[0].description == "Look for releases."
    assert (schema.structured_output, schema.model, schema.temperature) == (True, "openai:gpt-4o", 0.2)
    assert (schema.max_tokens, schema.request_limit, schema.total_tokens_limit) == (500, 7, 20000)
    assert (schema.retries, schema.enable_rag, schema.source) == (3, True, "agents/x.yaml")
    assert schema.output_schema["required"] == ["answer"]
    assert schema.output_schema["additionalProperties"] is False
    assert schema.output_schema["$defs"]["person"]["required"] == ["name"]


def test_agent_has_its_own_recall_settings() -> None:
    options = "  enable_rag: false\n  rag_top_k: 2\n  rag_min_similarity: 0.6\n"
    schema = parse_agent(minimal() + options, "agents/x.yaml")
    assert (schema.enable_rag, schema.rag_top_k, schema.rag_min_similarity) == (False, 2, 0.6)
    with pytest.raises(InvalidAgentError, match=r"rag_top_k: must be less than or equal to 50"):
        parse_agent(minimal() + "  rag_top_k: 51\n", "agents/x.yaml")


def test_agent_needs_only_prompt_and_name() -> None:
    schema = parse_agent(minimal(), "agents/x.yaml")
    assert (schema.kind, schema.version, schema.structured_output, schema.retries) == ("agent", "1.0.0", False, 2)
    assert schema.tool_names == []
    assert schema.model is None


@pytest.mark.parametrize("text", [COMPLETE, minimal(), minimal(description="Zoë, 東京 🙂")])
def test_document_round_trips(text: str) -> None:
    schema = parse_agent(text, "x")
    assert parse_agent(schema.as_yaml(), "x") == schema
    assert parse_agent_document(schema.as_document(), "x") == schema
    assert yaml.safe_load(schema.as_yaml()) == schema.as_document()


def test_multiline_prompt_is_written_as_a_block() -> None:
    assert "description: |\n  You help with releases." in parse_agent(COMPLETE, "x").as_yaml()


def test_resources_add_the_tool_and_limit_it_to_their_patterns() -> None:
    schema = parse_agent(COMPLETE, "x")
    assert schema.tool_names == ["search_rem", "register_metadata", "read_resource"]
    assert schema.may_read("rem://agents")
    assert schema.may_read("rem://agents/rem")
    assert schema.may_read("rem://moments/12")
    assert not schema.may_read("rem://moments/key/x")
    assert not schema.may_read("user://profile/me")
    assert not schema.may_read("see rem://agents")


def test_tool_without_patterns_reads_everything_and_no_tool_reads_nothing() -> None:
    with_tool = parse_agent(minimal() + "  tools:\n    - name: read_resource\n", "x")
    assert with_tool.may_read("rem://status")
    assert not parse_agent(minimal(), "x").may_read("rem://status")


def test_uri_patterns_are_matched_in_linear_time() -> None:
    started = time.process_time()
    assert not matches_uri_pattern("a*" * 30 + "b", "a" * 2000)
    assert time.process_time() - started < 2


def test_agent_may_have_every_registered_tool() -> None:
    tools = "".join(f"    - name: {name}\n" for name in TOOLS)
    assert parse_agent(f"{minimal()}  tools:\n{tools}", "x").tool_names == list(TOOLS)


def test_built_in_agents() -> None:
    agents = {agent.name: agent for agent in load_built_in_agents()}
    assert set(agents) == {
        "rem",
        "query-agent",
        "orchestrator",
        "summarizer",
        "moment-extractor",
        "entity-extractor",
        "profile-builder",
        "affinity-judge",
        "simulator",
    }
    assert next(iter(agents)) == "rem"
    assert not agents["rem"].structured_output
    assert {"search_rem", "register_metadata"} <= set(agents["rem"].tool_names)
    assert "ask_agent" in agents["orchestrator"].tool_names
    assert agents["query-agent"].required == ["answer", "confidence", "sources"]
    assert {"summary", "key_facts", "decisions"} == set(agents["summarizer"].required)
    extracting = ("summarizer", "moment-extractor", "entity-extractor", "profile-builder", "affinity-judge")
    assert all(agents[name].structured_output and not agents[name].tool_names for name in extracting)


def test_queries_in_built_in_prompts_are_valid() -> None:
    quoted = [
        example
        for agent in load_built_in_agents()
        for example in agent.description.split("`")[1::2]
        if example.split(" ")[0] in ("LOOKUP", "FUZZY", "SEARCH", "TRAVERSE") and " " in example
    ]
    assert len(quoted) >= 8
    for example in quoted:
        parse_query(example)
