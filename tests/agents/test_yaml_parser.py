"""Parse agents from YAML, with errors that name file, line and field."""

from __future__ import annotations

import pytest
import yaml

from rem.agents.yaml_parser import MAX_AGENT_BYTES, parse_agent, parse_agent_document, read_agent, read_agent_bytes
from rem.errors import InvalidAgentError
from tests.agents.sample_agents import COMPLETE, minimal


def refused(text: str) -> str:
    with pytest.raises(InvalidAgentError) as caught:
        parse_agent(text, "agents/x.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "line", "field", "message"),
    [
        (("name: search_rem", "name: serach_rem"), 37, "json_schema_extra.tools[0].name", "Did you mean search_rem?"),
        (("temperature: 0.2", "temprature: 0.2"), 30, "json_schema_extra.temprature", "Did you mean temperature?"),
        (("temperature: 0.2", "temperature: 3"), 30, "json_schema_extra.temperature", "less than or equal to 2"),
        (("retries: 3", "retries: three"), 34, "json_schema_extra.retries", "must be a whole number"),
        (("enable_rag: true", "enable_rag: maybe"), 35, "json_schema_extra.enable_rag", "must be true or false"),
        (("release-helper", "Release Helper"), 26, "json_schema_extra.name", "kebab case"),
        (('"2.1.0"', "2.1"), 27, "json_schema_extra.version", "quote it"),
        (('"2.1.0"', "latest"), 27, "json_schema_extra.version", '"1.0.0"'),
        (("kind: agent", "kind: robot"), 25, "json_schema_extra.kind", "'agent' or 'evaluator'"),
        (("minLength: 1", "minLength: -1"), 10, "properties.answer.minLength", "less than the minimum"),
        (("    type: string\n    minL", "    type: strng\n    minL"), 9, "properties.answer.type", "use one of array"),
        (("  - answer\n", "  - anser\n"), 16, "required[0]", "'anser' is not one of the properties"),
        (("#/$defs/person", "#/$defs/nobody"), 14, "properties.owner.$ref", "leads nowhere"),
        (("#/$defs/person", "https://example.com/x"), 14, "properties.owner.$ref", "leads nowhere"),
        (("name: {type: string}", 'name: {$ref: "#/$defs/person"}'), 14, "properties.owner.$ref", "itself"),
        (("rem://agents.*", "(a+)+"), 42, "json_schema_extra.resources[0].uri_pattern", "not supported"),
        (("mcp_server: rem", "mcp_server: other"), 39, "json_schema_extra.tools[0].mcp_server", "must be 'rem'"),
        (("- name: register_metadata", "- register_metadata"), 40, "json_schema_extra.tools[1]", "write - name:"),
        (("- name: register_metadata", "- name: search_rem"), 36, "json_schema_extra.tools", "more than once"),
        (("title: Release helper", "model: gpt-4o"), 2, "model", "belongs under json_schema_extra"),
        (("title: Release helper", "titel: Release helper"), 2, "titel", "Did you mean title?"),
        (("type: object\ntitle", "type: array\ntitle"), 1, "type", "must be 'object'"),
    ],
)
def test_error_names_file_line_and_field(change: tuple[str, str], line: int, field: str, message: str) -> None:
    assert change[0] in COMPLETE
    text = COMPLETE.replace(*change)
    problems = refused(text).splitlines()
    prefix = f"agents/x.yaml, line {line}: {field}: "
    assert any(problem.startswith(prefix) and message in problem for problem in problems), problems


def test_errors_are_ordered_by_line() -> None:
    text = COMPLETE.replace("retries: 3", "retries: -3").replace("temperature: 0.2", "temperature: hot")
    text = text.replace("    minLength: 1", "    minLength: long")
    assert [problem.split(":")[0] for problem in refused(text).splitlines()] == [
        "agents/x.yaml, line 10",
        "agents/x.yaml, line 30",
        "agents/x.yaml, line 34",
    ]


def test_missing_field_has_the_line_of_its_parent() -> None:
    problems = refused("properties: {}\njson_schema_extra:\n  kind: agent\n")
    assert "agents/x.yaml, line 1: description: is missing" in problems
    assert "agents/x.yaml, line 2: json_schema_extra.name: is missing" in problems


def test_structured_output_needs_properties() -> None:
    assert "line 4: json_schema_extra.structured_output: needs properties" in refused(
        minimal() + "  structured_output: true\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing but a comment\n", "is empty"),
        ("- a\n- b\n", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("a: [1, 2", "not valid YAML"),
        ("a: 1\n\tb: 2", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: \0", "not valid YAML"),
        ('description: "a\\0b"\n', "description: contains a NUL"),
        ("a: &x [1]\nb: *x\n", "line 1: YAML anchors and aliases"),
        ("a: 1\nb: !!python/object/apply:os.system [ls]\n", "line 2: the YAML tag"),
        ("a: !!str 1\n", "the YAML tag"),
        ("description: a\ndescription: b\n", "line 2: description: is given more than once"),
        ("properties:\n  a: {default: 2024-01-01}\n", "line 2: properties.a.default: 2024-01-01 is a date to YAML"),
        ("properties:\n  1: {}\n", "line 2: properties: a field's name must be text"),
        ("properties:\n  a: {default: .nan}\n", "line 2: properties.a.default: has nan"),
        ("[" * 100, "nested more than 50 levels"),
        ("a: {" * 100, "nested more than 50 levels"),
        ("- a\n" * 20_001, "has more than 20,000 values"),
        ("description: " + "x" * MAX_AGENT_BYTES, "is longer than 256 KB"),
        ("description: " + "é" * (MAX_AGENT_BYTES // 2), "is longer than 256 KB"),
    ],
)
def test_text_that_is_not_a_plain_document_is_rejected(text: str, message: str) -> None:
    assert message in refused(text)


def test_references_that_expand_too_much_are_rejected() -> None:
    definitions = "".join(
        f'  d{n}: {{properties: {{a: {{$ref: "#/$defs/d{n + 1}"}}, b: {{$ref: "#/$defs/d{n + 1}"}}}}}}\n'
        for n in range(30)
    )
    text = f'properties:\n  x: {{$ref: "#/$defs/d0"}}\n$defs:\n{definitions}  d30: {{type: string}}\n{minimal()}'
    assert "stands for too much" in refused(text)


@pytest.mark.parametrize("pattern", ["(a", "(?=a)b", "(a)\\\\1", "(a{1000}){1000}"])
def test_regular_expression_without_linear_match_is_rejected(pattern: str) -> None:
    text = f'properties:\n  a: {{type: string, pattern: "{pattern}"}}\n{minimal()}'
    assert "line 2: properties.a.pattern: is not a regular expression that can be matched quickly" in refused(text)


@pytest.mark.parametrize("keyword", ["$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor", "$schema"])
def test_references_to_other_documents_are_rejected(keyword: str) -> None:
    text = f"properties:\n  a: {{{keyword}: 'file:///etc/passwd'}}\n{minimal()}"
    assert f"line 2: properties.a.{keyword}: " in refused(text)
    with pytest.raises(InvalidAgentError):
        parse_agent_document(yaml.safe_load(text), "database")


def test_too_large_output_schema_is_rejected() -> None:
    properties = "".join(f"  p{n}: {{type: string, description: {'x' * 100}}}\n" for n in range(600))
    assert "is longer than 64 KB as JSON" in refused(f"properties:\n{properties}{minimal()}")


def test_file_that_is_not_utf8_is_rejected_with_its_line() -> None:
    read = read_agent_bytes("description: ok\nname: Zoë\n".encode("latin-1"), "x.yaml")
    assert read.issues[0].format("x.yaml") == "x.yaml, line 2: is not UTF-8 text: save it as UTF-8"


def test_byte_order_mark_is_accepted() -> None:
    assert read_agent_bytes(minimal().encode("utf-8-sig"), "x.yaml").schema is not None


def test_invalid_agent_keeps_its_name() -> None:
    assert read_agent(minimal("broken-one") + "  retries: -1\n", "x.yaml").name == "broken-one"


def test_json_is_accepted() -> None:
    assert parse_agent('{"description": "You.", "json_schema_extra": {"name": "from-json"}}', "x").name == "from-json"
