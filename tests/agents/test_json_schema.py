"""The schema of an answer is written by strangers: it fetches nothing, and nobody has to wait for it."""

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
from tests.agents.sample_agents import COMPLETE, minimal

AGENT = parse_agent(minimal(), "x")
REFERRING = ["$ref", "$dynamicRef", "$recursiveRef", "$id", "$schema", "$anchor", "$dynamicAnchor"]
ENDLESS = [r"^((a)+)+$", r"^(a|a)*$", r"^a*a*a*a*a*a*b$", r"^(a+)+$", r"^([a-z]+)*$", r"(.*)*x"]


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def messages(schema: dict[str, Any]) -> str:
    return " ".join(f"{problem.path} {problem.message}" for problem in check_schema(schema))


@contextmanager
def soon(seconds: float = 2) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    assert time.perf_counter() - begun < seconds


@asynccontextmanager
async def a_server() -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a server on loopback, and who connected."""
    met: list[str] = []

    def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append("somebody")
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/schema.json", met


def places(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Schemas that hold a part in all kinds of places."""
    return [
        an_object(a=part),
        {"type": "object", "allOf": [part]},
        {"type": "object", "not": part},
        {"type": "object", "propertyNames": part},
        {"type": "object", "if": {"properties": {"a": part}}},
        {"type": "object", "$defs": {"x": part}, "properties": {"a": {"$ref": "#/$defs/x"}}},
        an_object(a={"type": "array", "items": {"anyOf": [{"type": "null"}, part]}}),
        {"type": "object", **part},
    ]


@pytest.mark.parametrize("keyword", REFERRING)
async def test_nothing_is_ever_fetched(keyword: str) -> None:
    async with a_server() as (address, met):
        for schema in places({keyword: address}):
            with pytest.raises(InvalidInputError):
                await asyncio.to_thread(make_output_type, "caller", schema)
            # Not even if the check were forgotten.
            await asyncio.to_thread(_validated_anyway, schema)
        await asyncio.sleep(0.05)
        assert met == []


def _validated_anyway(schema: dict[str, Any]) -> None:
    try:
        check_answer(schema, {"a": "x"})
    except ValueError:
        return


@pytest.mark.parametrize("keyword", REFERRING)
def test_no_file_is_ever_read(keyword: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"const": "the secret"}')
    for schema in places({keyword: secret.as_uri()}):
        assert "secret.json" in messages(schema) or keyword in messages(schema)
        with pytest.raises(InvalidInputError):
            make_output_type("caller", schema)


@pytest.mark.parametrize(
    "reference",
    ["#", "#/properties/a", "#/$defs/none", "#/$defs/x/properties/y", "#/$defs/x~1y", "#/$defs/%78", "x", "//host/x"],
)
def test_a_reference_leads_to_a_definition_of_the_same_schema(reference: str) -> None:
    schema = {**an_object(a={"$ref": reference}), "$defs": {"x": {"properties": {"y": {}}}, "x/y": {}}}
    assert "leads nowhere" in messages(schema)


def test_a_property_may_be_called_as_a_keyword_is() -> None:
    names = {name: {"type": "string"} for name in (*REFERRING, "pattern", "type", "required")}
    assert check_schema(an_object(**names)) == []
    assert check_answer(an_object(**names), {"$ref": "http://127.0.0.1:9/", "pattern": "("}) == []


@pytest.mark.parametrize(
    "standard", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_the_standard_may_be_named(standard: str) -> None:
    assert check_schema({"$schema": standard, **an_object(a={"type": "string"})}) == []


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_regular_expression_never_takes_long(pattern: str) -> None:
    text = "a" * 50_000 + "!"
    schemas = [*places({"pattern": pattern}), {"type": "object", "patternProperties": {pattern: {"type": "integer"}}}]
    with soon(5):
        for schema in schemas:
            assert check_schema(schema) == []
            check_answer(schema, {"a": text, text: "x"})
    assert check_answer(an_object(a={"pattern": r"^((a)+)+$"}), {"a": text}) != []
    assert check_answer(an_object(a={"pattern": r"^((a)+)+$"}), {"a": text[:-1]}) == []


def test_large_regular_expressions_are_bounded_together() -> None:
    large = an_object(**{f"p{n}": {"pattern": f"[01]*1[01]{{300}}{n}$"} for n in range(100)})
    assert "regular expressions" in messages(large)
    many = {"type": "object", "allOf": [{"$ref": "#/$defs/x"}] * 200, "$defs": {"x": {"pattern": "^a*$"}}}
    assert "regular expressions" in messages(many)
    usual = an_object(**{f"p{n}": {"pattern": rf"^\d{{4}}-\d{{2}}-\d{{2}} {n}$"} for n in range(100)})
    assert check_schema(usual) == []


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", r"(a)\1", "(", "[", "(a{1000}){1000}", "a" * 2_000])
def test_a_regular_expression_that_cannot_be_matched_quickly_is_refused(pattern: str) -> None:
    for schema in places({"pattern": pattern}):
        assert "can be matched quickly" in messages(schema)
    assert "can be matched quickly" in messages({"type": "object", "patternProperties": {pattern: {}}})


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = an_object(a=schema)
    return schema


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("400 levels", deep(400), "nested too deep"),
    ("100 levels", deep(100), "nested too deep"),
    ("a surrogate", an_object(a={"description": "\ud800"}), "surrogate"),
    ("a surrogate in a name", an_object(**{"\ud800": {}}), "surrogate"),
    ("a large integer", an_object(a={"maximum": 10**40}), "beyond 64 bits"),
    ("not a number", an_object(a={"const": float("nan")}), "not a number"),
    ("4 MB", an_object(a={"description": "x" * 4_000_000}), "longer than 64 KB"),
    ("4 MB of parts", an_object(**{f"p{n}": {"type": "string"} for n in range(150_000)}), "longer than 64 KB"),
    ("many parts", an_object(a={"enum": [[]] * 10_000}), "more than 5000 parts"),
    ("many errors", an_object(**{f"p{n}": 5 for n in range(4_000)}), "is not of types"),
    (
        "500 references",
        {**an_object(**{f"p{n}": {"$ref": "#/$defs/x"} for n in range(500)}), "$defs": {"x": {"title": "x" * 5_000}}},
        "references expanded",
    ),
    (
        "a chain of references",
        {
            **an_object(a={"$ref": "#/$defs/d0"}),
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


@pytest.mark.parametrize(("schema", "message"), [pytest.param(*case[1:], id=case[0]) for case in HOSTILE])
def test_a_hostile_schema_is_refused_at_once(schema: dict[str, Any], message: str) -> None:
    with soon(), pytest.raises(InvalidInputError, match=message):
        AgentFactory().build(AGENT, schema)


def test_what_doubles_the_time_is_bounded() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    for _ in range(22):
        schema = {"unevaluatedProperties": False, "if": schema, "then": True}
    with soon():
        assert "unevaluated" in messages({"type": "object", "allOf": [schema]})


def test_very_many_errors_do_not_take_long() -> None:
    schema = an_object(a={"items": {"allOf": [{"type": "string"}] * 2_000}})
    assert check_schema(schema) == []
    with soon():
        problems = check_answer(schema, {"a": [1] * 2_000})
    assert problems[0].message == '1 is not of type "string"'


@pytest.mark.parametrize("answer", [{"a": "\ud800"}, {"\ud800": 1}, {"a": 10**40}, deep(1_000)])
def test_an_answer_that_json_cannot_hold_is_not_taken(answer: dict[str, Any]) -> None:
    assert check_answer({"type": "object"}, answer) != []


def test_references_are_written_out_for_the_model_wherever_they_stand() -> None:
    for schema in places({"$ref": "#/$defs/person", "description": "Who."}):
        schema.setdefault("$defs", {})["person"] = {"type": "object", "properties": {"name": {"type": "string"}}}
        assert "$ref" not in str(expand_references(schema))
        assert "Who." in str(expand_references(schema))
        AgentFactory().build(AGENT, schema)


def test_every_choice_is_named() -> None:
    schema = an_object(a={"enum": ["north", "east", "south", "west", None, 5]})
    problem = check_answer(schema, {"a": "up"})[0]
    assert problem.message == '"up" is not one of "north", "east", "south", "west", null, 5'


def test_a_usual_schema_is_checked_and_built_quickly() -> None:
    schema = parse_agent(COMPLETE, "x").output_schema
    with soon(1):
        for n in range(100):
            assert check_schema({**schema, "title": str(n)}) == []
            assert check_answer({**schema, "title": str(n)}, {"answer": "It is out."}) == []


def test_an_agent_is_built_once() -> None:
    factory, other = AgentFactory(), an_object(a={"type": "integer"})
    assert factory.build(AGENT) is factory.build(parse_agent(minimal(), "x"))
    assert factory.build(AGENT, other) is factory.build(AGENT, an_object(a={"type": "integer"}))
    assert factory.build(AGENT, other) is not factory.build(AGENT)


def test_the_schemas_of_callers_push_out_nobodys_agent() -> None:
    factory = AgentFactory()
    own, first = factory.build(AGENT), factory.build(AGENT, an_object(a={"title": "first"}))
    for n in range(40):
        factory.build(AGENT, an_object(a={"title": str(n)}))
    assert factory.build(AGENT) is own
    assert factory.build(AGENT, an_object(a={"title": "first"})) is not first


def test_what_is_kept_is_bounded_by_its_size() -> None:
    factory = AgentFactory()
    first = factory.build(AGENT, an_object(a={"title": "first"}))
    for n in range(20):
        factory.build(AGENT, an_object(a={"title": f"{n}{'x' * 60_000}"}))
    assert factory.build(AGENT, an_object(a={"title": "first"})) is not first


def test_saved_agents_that_are_long_are_not_all_kept() -> None:
    factory = AgentFactory()
    first = factory.build(AGENT)
    for n in range(180):
        factory.build(AGENT.model_copy(update={"description": f"{n}{'x' * 99_000}"}))
    assert factory.build(AGENT) is not first
