"""`rem:local` fills structured answers, or says that a language model is required."""

from __future__ import annotations

from typing import Any

import pytest

from rem.agents.catalog import load_built_in_agents
from rem.agents.json_schema import check_answer
from rem.app import Rem
from rem.errors import ModelError
from tests.agents.local.local_chat import LAUNCH, ask, build_history
from tests.cases import cases

ANY_OBJECT = {"type": "object", "additionalProperties": True}


async def test_structured_answer_is_filled_with_excerpts(memory: Rem) -> None:
    schema = {agent.name: agent for agent in load_built_in_agents()}["query-agent"].output_schema
    answer = await ask(memory, "Why did the launch of Atlas slip?", tools=["search_rem"], output_schema=schema)
    assert "slipped to June" in answer.output["answer"]
    assert answer.output["sources"][0] == "atlas-launch"
    assert 0 < answer.output["confidence"] <= 1
    assert check_answer(schema, answer.output) == []


@pytest.mark.parametrize(
    "agent", [agent for agent in load_built_in_agents() if agent.structured_output], ids=lambda a: a.name
)
@pytest.mark.parametrize("text", ["hi", "We decided to ship in June. Sarah owns it. " * 50])
async def test_built_in_agents_quote_or_require_a_model(memory: Rem, agent: Any, text: str) -> None:
    tools = [name for name in agent.tool_names if name != "read_resource"]
    if "search_rem" in tools:
        answer = await ask(memory, text, tools=tools, output_schema=agent.output_schema)
        assert check_answer(agent.output_schema, answer.output) == []
    else:
        with pytest.raises(ModelError, match=r"needs a language model: .* Set LLM__DEFAULT_MODEL"):
            await ask(memory, text, tools=tools, output_schema=agent.output_schema)


async def test_text_field_without_search_is_filled_from_the_input(memory: Rem) -> None:
    schema = {
        "type": "object",
        "properties": {
            "summary": {"type": "string"},
            "kind": {"const": "summary"},
            "confidence": {"type": "number"},
            "sources": {"type": "array"},
        },
        "required": ["summary", "kind"],
    }
    answer = await ask(memory, "We decided to ship in June. " + "Then we talked. " * 99, tools=[], output_schema=schema)
    assert answer.output["summary"].startswith("We decided to ship in June.")
    assert answer.output.keys() == {"summary", "kind"}


@cases(
    "rule",
    [
        {"type": "number", "default": 0},
        {"enum": ["none", "related"]},
        {"enum": ["unknown", "related"]},
        {"type": "array", "items": {"type": "string"}},
        {"type": ["integer", "null"]},
        {"type": "object", "properties": {"text": {"type": "string"}}},
    ],
)
async def test_other_fields_without_search_require_a_model(memory: Rem, rule: dict[str, Any]) -> None:
    properties = {"reason": {"type": "string"}, "judged": rule}
    schema = {"type": "object", "properties": properties, "required": ["reason", "judged"]}
    with pytest.raises(ModelError, match="needs a language model: rem:local only quotes, and cannot fill 'judged'"):
        await ask(memory, "Two memories.", tools=[], output_schema=schema)


async def test_any_object_is_filled_with_answer_confidence_and_sources(memory: Rem) -> None:
    output = (await ask(memory, "Atlas budget?", output_schema=ANY_OBJECT)).output
    assert output == {"answer": output["answer"], "confidence": 0.9, "sources": output["sources"]}
    assert output["sources"][0] == "atlas-budget"
    assert "40,000 euros" in output["answer"]


async def test_any_object_for_small_talk_needs_no_search(memory: Rem) -> None:
    history = await build_history(memory, LAUNCH)
    answer = await ask(memory, "What did I just ask you?", output_schema=ANY_OBJECT, history=history)
    assert "search_rem" not in answer.tools
    assert LAUNCH in answer.output["answer"]
    assert answer.output["sources"] == []


async def test_any_object_without_search_tool_is_an_error(memory: Rem) -> None:
    with pytest.raises(ModelError, match="needs a language model"):
        await ask(memory, "Atlas budget?", tools=[], output_schema=ANY_OBJECT)


@cases(
    ("field", "rule"),
    [
        ("pass", {"type": "boolean"}),
        ("score", {"type": "number", "minimum": 0}),
        ("mood", {"enum": ["happy", "sad"]}),
        ("relation", {"enum": ["none", "related"]}),
        ("decisions", {"type": "array", "items": {"type": "string"}}),
        ("detail", {"type": "object"}),
        ("when", {"type": "string", "format": "date-time"}),
        ("facts", {"type": "array", "items": {"type": "string"}, "minItems": 1}),
        ("text", {"type": "string", "minLength": 100_000}),
    ],
)
async def test_field_that_needs_a_model_is_named_in_the_error(memory: Rem, field: str, rule: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {field: rule}, "required": [field]}
    with pytest.raises(ModelError, match=f"cannot fill '{field}'.*LLM__DEFAULT_MODEL"):
        await ask(memory, "Atlas", output_schema=schema)


async def test_fields_of_every_type_are_filled(memory: Rem) -> None:
    schema = {
        "type": "object",
        "properties": {
            "answer": {"type": ["string", "null"], "maxLength": 20},
            "kind": {"const": "extract"},
            "mood": {"enum": ["happy", "unknown"]},
            "size": {"type": "integer", "default": 7},
            "rating": {"type": ["integer", "null"]},
            "detail": {"$ref": "#/$defs/detail"},
            "optional": {"type": "boolean"},
        },
        "required": ["answer", "kind", "mood", "size", "rating", "detail"],
        "additionalProperties": False,
        "$defs": {
            "detail": {
                "type": "object",
                "properties": {"references": {"type": "array", "maxItems": 1}},
                "required": ["references"],
            }
        },
    }
    output = (await ask(memory, "Atlas budget", output_schema=schema)).output
    assert output == {
        "answer": output["answer"],
        "kind": "extract",
        "mood": "unknown",
        "size": 7,
        "rating": None,
        "detail": {"references": ["atlas-budget"]},
    }
    assert len(output["answer"]) == 20
