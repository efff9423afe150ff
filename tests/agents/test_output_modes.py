"""A structured answer comes from any server: by a tool call, by its JSON schema, or as JSON in its text."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import pytest

from rem.agents.output_modes import parse_json_object
from rem.app import Rem
from rem.context import AgentContext
from rem.errors import ModelError, ModelNotFoundError
from rem.settings import Settings
from tests.agents.running_agents import agents_with, make_request
from tests.scripted_model import Call, Refuse, ScriptedModel, Step, has_result, instructions

_PLACE = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}, "required": ["city"]}
_AGENT = """
type: object
description: You find the city in a text.
properties: {city: {type: string, minLength: 1}}
required: [city]
json_schema_extra: {kind: agent, name: city-finder, structured_output: true}
"""
_ANSWER = '{"city": "Aarhus"}'


def _calls_tools(body: dict[str, Any]) -> list[Step]:
    return [Call(body["tools"][-1]["function"]["name"], {"city": "Aarhus"})]


def _ignores_tools(body: dict[str, Any]) -> list[Step]:
    """A server without tools that knows JSON schemas."""
    schema = (body.get("response_format") or {}).get("json_schema")
    return [_ANSWER if schema else "The city is Aarhus."]


def _refuses_tools(body: dict[str, Any]) -> list[Step]:
    if body.get("tools"):
        return [Refuse(400, "This server does not support tools.")]
    return _ignores_tools(body)


def _knows_only_text(body: dict[str, Any]) -> list[Step]:
    """A server that refuses tools and JSON schemas, with a model that follows its prompt."""
    if body.get("tools") or body.get("response_format"):
        return [Refuse(400, "Unknown field.")]
    return [f"Here you are:\n```json\n{_ANSWER}\n```"] if '"minLength"' in instructions(body) else ["Aarhus."]


def _ignores_everything(body: dict[str, Any]) -> list[Step]:
    """A server that ignores all fields that it does not know, with a model that follows its prompt."""
    return [_ANSWER] if "one JSON object" in instructions(body) else ["The city is Aarhus."]


def _fails_with_tools(body: dict[str, Any]) -> list[Step]:
    return [Refuse(500, "tools param requires a template")] if body.get("tools") else _ignores_tools(body)


@pytest.mark.parametrize(
    ("script", "first_requests"),
    [
        (_calls_tools, 1),
        (_ignores_tools, 2),
        (_refuses_tools, 2),
        (_fails_with_tools, 2),
        (_ignores_everything, 2),
        (_knows_only_text, 3),
    ],
)
async def test_auto_finds_what_works_and_remembers_it(
    rem: Rem, settings: Settings, model: ScriptedModel, script: Any, first_requests: int
) -> None:
    model.script = script
    async with agents_with(settings, model) as agents:
        await agents.catalog.save(_AGENT, AgentContext(user_id="alice").scope)
        started = perf_counter()
        for number in range(2):
            answer = await agents.run(make_request("I live in Aarhus.", agent="city-finder"))
            assert answer.output == {"city": "Aarhus"}
            assert json.loads(answer.text) == {"city": "Aarhus"}
            assert len(model.requests) == first_requests + number
        assert perf_counter() - started < 10
        stored = await rem.for_user("alice").sessions.list_sessions()
    assert len(stored) == 2


@pytest.mark.parametrize(
    ("mode", "script", "field"),
    [
        ("tool", _calls_tools, "tools"),
        ("native", _ignores_tools, "response_format"),
        ("prompt", _knows_only_text, None),
    ],
)
async def test_mode_can_be_set(
    rem: Rem, settings: Settings, model: ScriptedModel, mode: str, script: Any, field: str | None
) -> None:
    model.script = script
    async with agents_with(settings, model, llm={"output_mode": mode}) as agents:
        answer = await agents.run(make_request("I live in Aarhus.", agent="summarizer", output_schema=_PLACE))
    assert answer.output == {"city": "Aarhus"}
    (request,) = model.requests
    assert [name for name in ("tools", "response_format") if name in request] == ([field] if field else [])


async def test_mode_of_an_agent_overrides_the_setting(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    model.script = _knows_only_text
    async with agents_with(settings, model, llm={"output_mode": "tool"}) as agents:
        definition = _AGENT.replace("structured_output: true", "structured_output: true, output_mode: prompt")
        await agents.catalog.save(definition, AgentContext(user_id="alice").scope)
        assert (await agents.run(make_request("Where?", agent="city-finder"))).output == {"city": "Aarhus"}
    assert len(model.requests) == 1


@pytest.mark.parametrize("mode", ["native", "prompt"])
async def test_invalid_answer_is_corrected_in_every_mode(
    rem: Rem, settings: Settings, model: ScriptedModel, mode: str
) -> None:
    model.script = lambda _body: [_ANSWER if len(model.requests) > 1 else '{"city": ""}']
    async with agents_with(settings, model, llm={"output_mode": mode}) as agents:
        stream = await agents.start(make_request("Where?", agent="summarizer", output_schema=_PLACE))
        events = [event async for event in stream.events()]
    assert [event.content for event in events if event.type == "text_delta"] == ['{"city":"Aarhus"}']
    assert "is shorter than 1 character" in str(model.requests[1]["messages"])


async def test_agent_with_tools_answers_through_the_json_schema(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    answer = {"answer": "Aarhus", "confidence": 0.9, "sources": []}

    def script(body: dict[str, Any]) -> list[Step]:
        return [json.dumps(answer)] if has_result(body) else [Call("search_rem", {"query": "SEARCH city"})]

    model.script = script
    async with agents_with(settings, model, llm={"output_mode": "native"}) as agents:
        found = await agents.run(make_request("Where?", agent="query-agent"))
    assert found.output == answer
    assert [call["name"] for call in found.tool_calls] == ["search_rem"]


async def test_model_that_uses_tools_is_asked_again_for_its_answer(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    answer = {"answer": "Aarhus", "confidence": 0.9, "sources": []}

    def script(body: dict[str, Any]) -> list[Step]:
        name = next(t["function"]["name"] for t in body["tools"] if t["function"]["name"].startswith("final_result"))
        replies: list[list[Step]] = [
            [Call("search_rem", {"query": "SEARCH city"})],
            ["It is Aarhus."],
            [Call(name, answer, "call_9")],
        ]
        return replies[len(model.requests) - 1]

    model.script = script
    async with agents_with(settings, model) as agents:
        found = await agents.run(make_request("Where?", agent="query-agent"))
    assert found.output == answer
    assert found.text == json.dumps(answer, separators=(",", ":"))


async def test_model_without_structured_answers_is_a_clear_error(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    model.script = lambda _body: ["The city is Aarhus."]
    started = perf_counter()
    async with agents_with(settings, model) as agents:
        with pytest.raises(ModelError) as caught:
            await agents.run(make_request("Where?", agent="summarizer"))
    assert perf_counter() - started < 10
    assert "did not give an answer that matches the agent's schema" in str(caught.value)
    assert len(model.requests) == 5


async def test_refused_tools_of_an_agent_are_a_clear_error(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    model.script = _refuses_tools
    async with agents_with(settings, model) as agents:
        with pytest.raises(ModelError) as caught:
            await agents.run(make_request("Where?", agent="query-agent"))
    assert "This server does not support tools" in str(caught.value)
    assert "(this one has search_rem, read_resource)" in str(caught.value)


@pytest.mark.parametrize("status", [401, 404, 429])
async def test_other_errors_are_not_taken_for_a_missing_feature(
    rem: Rem, settings: Settings, model: ScriptedModel, status: int
) -> None:
    model.script = lambda _body: [Refuse(status, "no")]
    async with agents_with(settings, model) as agents:
        with pytest.raises((ModelError, ModelNotFoundError)):
            await agents.run(make_request("Where?", agent="summarizer"))
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure!\n```json\n{"a": {"b": 2}}\n```\nDone.', {"a": {"b": 2}}),
        ("[1]", None),
        ("{broken", None),
        ("", None),
        ("}{", None),
    ],
)
def test_json_object_is_found_in_a_text(text: str, value: dict[str, Any] | None) -> None:
    assert parse_json_object(text) == value
