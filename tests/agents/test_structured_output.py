"""Structured answers are validated, and the model may correct them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from rem.agents.factory import make_output_type, validate_output
from rem.agents.model_errors import describe_model_error
from rem.agents.yaml_parser import parse_agent
from rem.errors import InvalidInputError, ModelError
from tests.agents.sample_agents import COMPLETE

SCHEMA = parse_agent(COMPLETE, "x").output_schema


class AnsweringModel:
    """A model that gives one answer after the other, and keeps what it was told about them."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)
        self.feedback: list[str] = []
        self.output_schema: dict[str, Any] = {}

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.feedback += [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        self.output_schema = info.output_tools[0].parameters_json_schema
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, self._answers.pop(0))])

    def agent(self, retries: int = 2) -> Agent[None, Any]:
        agent: Agent[None, Any] = Agent(
            FunctionModel(self), output_type=make_output_type("release-helper", SCHEMA), retries=retries
        )
        agent.output_validator(partial(validate_output, SCHEMA))
        return agent


async def test_valid_answer_is_accepted() -> None:
    good = {"answer": "It is out.", "confidence": 1, "released_at": "2026-05-01T12:00:00Z", "owner": {"name": "Zoë"}}
    answers = AnsweringModel(good)
    assert (await answers.agent().run("When?")).output == good
    assert answers.output_schema["required"] == ["answer"]
    assert answers.output_schema["properties"]["confidence"]["maximum"] == 1


async def test_model_is_told_the_errors_and_may_correct_them() -> None:
    answers = AnsweringModel({"answer": 5, "confidence": 7}, {"answer": ""}, {"answer": "It is out."})
    assert (await answers.agent().run("When?")).output == {"answer": "It is out."}
    assert 'answer: 5 is not of type "string"' in answers.feedback[0]
    assert "confidence: 7 is greater than the maximum of 1" in answers.feedback[0]
    assert 'answer: "" is shorter than 1 character' in answers.feedback[1]


async def test_error_after_the_last_retry_is_clear() -> None:
    bad = {"answer": 5}
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the library's own, whatever it is called
        await AnsweringModel(bad, bad, bad).agent(retries=1).run("When?")
    described = describe_model_error(caught.value)
    assert type(described) is ModelError
    assert "did not give an answer that matches the agent's schema" in str(described)


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ({}, '"answer" is a required property'),
        ({"answer": None}, 'answer: null is not of type "string"'),
        ({"answer": "a", "extra": 1}, "Additional properties are not allowed ('extra' was unexpected)"),
        ({"answer": "a", "confidence": -0.1}, "confidence: -0.1 is less than the minimum of 0"),
        ({"answer": "a", "confidence": "high"}, 'confidence: "high" is not of type "number"'),
        ({"answer": "a", "confidence": True}, 'confidence: true is not of type "number"'),
        ({"answer": "a", "released_at": "yesterday"}, 'released_at: "yesterday" is not a "date-time"'),
        ({"answer": "a", "released_at": "2026-02-30T12:00:00Z"}, 'is not a "date-time"'),
        ({"answer": "a", "released_at": "2026-02-03T12:00:00"}, 'is not a "date-time"'),
        ({"answer": "a", "owner": {}}, 'owner: "name" is a required property'),
        ({"answer": "a", "owner": {"name": 1}}, 'owner.name: 1 is not of type "string"'),
        ({"answer": "a", "owner": []}, 'owner: [] is not of type "object"'),
    ],
)
def test_every_rule_of_the_schema_is_checked(answer: dict[str, Any], where: str) -> None:
    with pytest.raises(ModelRetry) as caught:
        validate_output(SCHEMA, answer)
    assert where in str(caught.value)


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("date", "2026-05-01", "2026-13-01"),
        ("date-time", "2026-05-01t12:00:00.25+02:00", "2026-05-01"),
        ("time", "12:30:00", "25:00"),
        ("email", "a@example.com", "nobody"),
        ("uri", "rem://agents/rem", "not an address"),
        ("uuid", "edabafbb-61ad-51d6-9fd8-e976c892a731", "42"),
        ("ipv4", "127.0.0.1", "127.0.0.300"),
    ],
)
def test_formats_are_checked(form: str, good: str, bad: str) -> None:
    schema = {"type": "object", "properties": {"x": {"format": form}}}
    assert validate_output(schema, {"x": good}) == {"x": good}
    with pytest.raises(ModelRetry, match=form):
        validate_output(schema, {"x": bad})


def test_message_to_the_model_is_short() -> None:
    with pytest.raises(ModelRetry) as caught:
        validate_output(SCHEMA, {"answer": ["x" * 100_000] * 5})
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array"}, "type: must be object"),
        ({"type": "object", "properties": {"a": {"type": "strng"}}}, "properties.a.type: 'strng' is not a type"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "leads nowhere"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}, "matched quickly"),
    ],
)
def test_requested_schema_is_checked(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make_output_type("caller", schema)
    assert message in str(caught.value)


def test_recursive_schema_is_rejected() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(InvalidInputError, match="nested too deep"):
        make_output_type("caller", schema)
