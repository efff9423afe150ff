"""Schemas of untrusted callers: nothing is fetched, and every check is fast."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rem.agents.factory import AgentFactory, make_output_type
from rem.agents.json_schema import check_answer, check_schema, expand_references
from rem.agents.yaml_parser import parse_agent
from rem.errors import InvalidInputError
from tests.agents.sample_agents import COMPLETE, MINIMAL_AGENT, object_schema

REFERENCE_KEYWORDS = ["$ref", "$dynamicRef", "$recursiveRef", "$id", "$schema", "$anchor", "$dynamicAnchor"]
BACKTRACKING_PATTERNS = [r"^((a)+)+$", r"^(a|a)*$", r"^a*a*a*a*a*a*b$", r"^(a+)+$", r"^([a-z]+)*$", r"(.*)*x"]


def describe_issues(schema: dict[str, Any]) -> str:
    return " ".join(f"{issue.path} {issue.message}" for issue in check_schema(schema))


@contextmanager
def max_duration(seconds: float = 2) -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < seconds


@asynccontextmanager
async def recording_server() -> AsyncIterator[tuple[str, list[str]]]:
    """Run a server on loopback, and yield its address and the list of its connections."""
    connections: list[str] = []

    def record(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append("connection")
        writer.close()

    server = await asyncio.start_server(record, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/schema.json", connections


def put_everywhere(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return schemas that contain `part` in different positions."""
    return [
        object_schema(a=part),
        {"type": "object", "allOf": [part]},
        {"type": "object", "not": part},
        {"type": "object", "propertyNames": part},
        {"type": "object", "if": {"properties": {"a": part}}},
        {"type": "object", "$defs": {"x": part}, "properties": {"a": {"$ref": "#/$defs/x"}}},
        object_schema(a={"type": "array", "items": {"anyOf": [{"type": "null"}, part]}}),
        {"type": "object", **part},
    ]


@pytest.mark.parametrize("keyword", REFERENCE_KEYWORDS)
async def test_no_address_is_fetched(keyword: str) -> None:
    async with recording_server() as (address, connections):
        for schema in put_everywhere({keyword: address}):
            with pytest.raises(InvalidInputError):
                await asyncio.to_thread(make_output_type, "caller", schema)
            # Not even without the check of the schema.
            await asyncio.to_thread(validate_unchecked, schema)
        await asyncio.sleep(0.05)
        assert connections == []


def validate_unchecked(schema: dict[str, Any]) -> None:
    try:
        check_answer(schema, {"a": "x"})
    except ValueError:
        return


@pytest.mark.parametrize("keyword", REFERENCE_KEYWORDS)
def test_no_file_is_read(keyword: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"const": "the secret"}')
    for schema in put_everywhere({keyword: secret.as_uri()}):
        assert "secret.json" in describe_issues(schema) or keyword in describe_issues(schema)
        with pytest.raises(InvalidInputError):
            make_output_type("caller", schema)


@pytest.mark.parametrize(
    "reference",
    ["#", "#/properties/a", "#/$defs/none", "#/$defs/x/properties/y", "#/$defs/x~1y", "#/$defs/%78", "x", "//host/x"],
)
def test_references_must_name_a_definition_of_the_same_schema(reference: str) -> None:
    schema = {**object_schema(a={"$ref": reference}), "$defs": {"x": {"properties": {"y": {}}}, "x/y": {}}}
    assert "leads nowhere" in describe_issues(schema)


def test_property_may_have_the_name_of_a_keyword() -> None:
    names = {name: {"type": "string"} for name in (*REFERENCE_KEYWORDS, "pattern", "type", "required")}
    assert check_schema(object_schema(**names)) == []
    assert check_answer(object_schema(**names), {"$ref": "http://127.0.0.1:9/", "pattern": "("}) == []


@pytest.mark.parametrize(
    "standard", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_schema_may_name_its_standard(standard: str) -> None:
    assert check_schema({"$schema": standard, **object_schema(a={"type": "string"})}) == []


@pytest.mark.parametrize("pattern", BACKTRACKING_PATTERNS)
def test_regular_expressions_are_matched_in_linear_time(pattern: str) -> None:
    text = "a" * 50_000 + "!"
    schemas = [
        *put_everywhere({"pattern": pattern}),
        {"type": "object", "patternProperties": {pattern: {"type": "integer"}}},
    ]
    with max_duration(5):
        for schema in schemas:
            assert check_schema(schema) == []
            check_answer(schema, {"a": text, text: "x"})
    assert check_answer(object_schema(a={"pattern": r"^((a)+)+$"}), {"a": text}) != []
    assert check_answer(object_schema(a={"pattern": r"^((a)+)+$"}), {"a": text[:-1]}) == []


def test_total_size_of_regular_expressions_is_limited() -> None:
    large = object_schema(**{f"p{n}": {"pattern": f"[01]*1[01]{{300}}{n}$"} for n in range(100)})
    assert "regular expressions" in describe_issues(large)
    many = {"type": "object", "allOf": [{"$ref": "#/$defs/x"}] * 200, "$defs": {"x": {"pattern": "^a*$"}}}
    assert "regular expressions" in describe_issues(many)
    usual = object_schema(**{f"p{n}": {"pattern": rf"^\d{{4}}-\d{{2}}-\d{{2}} {n}$"} for n in range(100)})
    assert check_schema(usual) == []


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", r"(a)\1", "(", "[", "(a{1000}){1000}", "a" * 2_000])
def test_regular_expression_without_linear_match_is_rejected(pattern: str) -> None:
    for schema in put_everywhere({"pattern": pattern}):
        assert "can be matched quickly" in describe_issues(schema)
    assert "can be matched quickly" in describe_issues({"type": "object", "patternProperties": {pattern: {}}})


def nest(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = object_schema(a=schema)
    return schema


HOSTILE_SCHEMAS: list[tuple[str, dict[str, Any], str]] = [
    ("400 levels", nest(400), "nested too deep"),
    ("100 levels", nest(100), "nested too deep"),
    ("a surrogate", object_schema(a={"description": "\ud800"}), "surrogate"),
    ("a surrogate in a name", object_schema(**{"\ud800": {}}), "surrogate"),
    ("a large integer", object_schema(a={"maximum": 10**40}), "beyond 64 bits"),
    ("not a number", object_schema(a={"const": float("nan")}), "not a number"),
    ("4 MB", object_schema(a={"description": "x" * 4_000_000}), "longer than 64 KB"),
    ("4 MB of parts", object_schema(**{f"p{n}": {"type": "string"} for n in range(150_000)}), "longer than 64 KB"),
    ("many parts", object_schema(a={"enum": [[]] * 10_000}), "more than 5000 parts"),
    ("many errors", object_schema(**{f"p{n}": 5 for n in range(4_000)}), "is not of types"),
    (
        "500 references",
        {
            **object_schema(**{f"p{n}": {"$ref": "#/$defs/x"} for n in range(500)}),
            "$defs": {"x": {"title": "x" * 5_000}},
        },
        "references expanded",
    ),
    (
        "a chain of references",
        {
            **object_schema(a={"$ref": "#/$defs/d0"}),
            "$defs": {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(150)} | {"d150": {}},
        },
        "nested too deep",
    ),
    (
        "references and patterns",
        {
            "type": "object",
            "allOf": [{"$ref": "#/$defs/x"}] * 1_000,
            "$defs": {"x": {"patternProperties": {f"a{n}": True for n in range(1_500)}}},
        },
        "regular expressions",
    ),
]


@pytest.mark.parametrize(("schema", "message"), [pytest.param(*case[1:], id=case[0]) for case in HOSTILE_SCHEMAS])
def test_hostile_schema_is_rejected_quickly(schema: dict[str, Any], message: str) -> None:
    with max_duration(), pytest.raises(InvalidInputError, match=message):
        AgentFactory().build(MINIMAL_AGENT, schema)


def test_unevaluated_keywords_are_limited() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    for _ in range(22):
        schema = {"unevaluatedProperties": False, "if": schema, "then": True}
    with max_duration():
        assert "unevaluated" in describe_issues({"type": "object", "allOf": [schema]})


def test_answer_with_very_many_errors_is_checked_quickly() -> None:
    schema = object_schema(a={"items": {"allOf": [{"type": "string"}] * 2_000}})
    assert check_schema(schema) == []
    with max_duration():
        problems = check_answer(schema, {"a": [1] * 2_000})
    assert problems[0].message == '1 is not of type "string"'


@pytest.mark.parametrize("answer", [{"a": "\ud800"}, {"\ud800": 1}, {"a": 10**40}, nest(1_000)])
def test_answer_that_json_cannot_hold_is_rejected(answer: dict[str, Any]) -> None:
    assert check_answer({"type": "object"}, answer) != []


def test_references_are_expanded_in_every_position() -> None:
    for schema in put_everywhere({"$ref": "#/$defs/person", "description": "Who."}):
        schema.setdefault("$defs", {})["person"] = {"type": "object", "properties": {"name": {"type": "string"}}}
        assert "$ref" not in str(expand_references(schema))
        assert "Who." in str(expand_references(schema))
        AgentFactory().build(MINIMAL_AGENT, schema)


def test_error_for_enum_lists_every_option() -> None:
    schema = object_schema(a={"enum": ["north", "east", "south", "west", None, 5]})
    problem = check_answer(schema, {"a": "up"})[0]
    assert problem.message == '"up" is not one of "north", "east", "south", "west", null, 5'


def test_usual_schema_is_checked_quickly() -> None:
    schema = parse_agent(COMPLETE, "x").output_schema
    with max_duration(1):
        for n in range(100):
            assert check_schema({**schema, "title": str(n)}) == []
            assert check_answer({**schema, "title": str(n)}, {"answer": "It is out."}) == []
