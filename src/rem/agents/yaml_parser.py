"""From the YAML of an agent to its schema; what is wrong is named with file, line and field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rem.agents.json_schema import check_schema, format_path
from rem.agents.schema import AgentDocument, AgentExtra, AgentSchema, ResourceRef, ToolRef, did_you_mean
from rem.agents.schema_references import Path
from rem.db.yaml import BoundedLoader
from rem.errors import InvalidAgentError
from rem.models.field_types import to_json_value

MAX_AGENT_BYTES = 256 * 1024
"""How long the text of an agent may be, in bytes."""
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class AgentIssue:
    """One thing that is wrong with an agent."""

    message: str
    field: str = ""
    line: int | None = None

    def at(self, source: str) -> str:
        """The problem with its place: `agents/x.yaml, line 7: json_schema_extra.name: is missing`."""
        place = source if self.line is None else f"{source}, line {self.line}"
        return ": ".join(part for part in (place, self.field, self.message) if part)


_TOO_LONG = AgentIssue(f"is longer than {MAX_AGENT_BYTES // 1024} KB: shorten the description")


@dataclass(frozen=True, slots=True)
class ParsedAgent:
    """What came of reading an agent: the agent, or what is wrong with it and, if it says so, what it is called."""

    schema: AgentSchema | None
    problems: list[AgentIssue] = field(default_factory=list)
    name: str | None = None


def parse_agent(text: str, source: str) -> AgentSchema:
    """The agent that a YAML document defines; an InvalidAgentError names every problem with its line and field."""
    return _required(read_agent(text, source), source)


def parse_agent_document(document: Mapping[str, Any], source: str) -> AgentSchema:
    """The agent that a document defines which is stored already, so that there are no lines."""
    return _required(_checked(dict(document), source, {}), source)


def describe_issues(problems: list[AgentIssue], source: str) -> str:
    """The problems, a line for each."""
    return "\n".join(problem.at(source) for problem in problems)


def _required(read: ParsedAgent, source: str) -> AgentSchema:
    if read.schema is None:
        raise InvalidAgentError(describe_issues(read.problems, source))
    return read.schema


def read_agent(text: str, source: str) -> ParsedAgent:
    """The agent that a YAML document defines, or all that is wrong with it."""
    try:
        value, lines = _load(text)
    except _YamlError as error:
        return ParsedAgent(None, [error.problem])
    if not isinstance(value, dict):
        message = "is empty" if value is None else "must be a mapping"
        return ParsedAgent(
            None, [AgentIssue(f"{message}: write description, properties and json_schema_extra", line=1)]
        )
    return _checked(value, source, lines)


def read_agent_bytes(content: bytes, source: str) -> ParsedAgent:
    """The same of what a file holds; of a file that is too long, the beginning is enough."""
    if len(content) > MAX_AGENT_BYTES:
        return ParsedAgent(None, [_TOO_LONG])
    try:
        return read_agent(content.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return ParsedAgent(None, [AgentIssue("is not UTF-8 text: save it as UTF-8", line=line)])


class _YamlError(Exception):
    """The text is not the YAML of one plain document."""

    def __init__(self, message: str, line: int | None = None, path: Path = ()) -> None:
        super().__init__(message)
        self.problem = AgentIssue(message, format_path(path), line)


def _load(text: str) -> tuple[Any, dict[Path, int]]:
    """The value of a YAML text, and the line of everything in it."""
    if len(text) > MAX_AGENT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_AGENT_BYTES:
        raise _YamlError(_TOO_LONG.message)
    try:
        _refuse_explosives(text)
        loader = BoundedLoader(text)
        try:
            root = loader.get_single_node()
            return (None, {}) if root is None else _Reader(loader).read(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise _YamlError(
            f"not valid YAML: {error.problem or error.context}", mark.line + 1 if mark else None
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _YamlError(f"not valid YAML: {' '.join(str(error).split())}") from error


def _refuse_explosives(text: str) -> None:
    """Aliases let a few lines stand for gigabytes, tags mean what only their author knows, and depth costs stack."""
    depth = 0
    for event in yaml.parse(text, Loader=BoundedLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _YamlError("YAML anchors and aliases (&name, *name) are not supported: write the value out", line)
        if getattr(event, "tag", None):
            raise _YamlError(f"the YAML tag {event.tag} is not supported: leave it out", line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise _YamlError(f"is nested more than {_DEEPEST} levels deep", line)


class _Reader:
    """Makes plain JSON of the nodes of a document and remembers where each part stands."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lines: dict[Path, int] = {}

    def read(self, root: Any) -> tuple[Any, dict[Path, int]]:
        return self._value(root, ()), self._lines

    def _value(self, node: Any, path: Path) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise _YamlError("a field's name must be text: quote it", line, path)
            if key in values:
                raise _YamlError("is given more than once", line, (*path, key))
            # The line of a field is that of its name: its value may begin on the next.
            self._lines[(*path, key)] = line
            values[key] = self._value(value_node, (*path, key))
        return values

    def _scalar(self, node: Any, path: Path) -> Any:
        value, line = self._loader.construct_object(node), node.start_mark.line + 1
        if value is not None and not isinstance(value, str | bool | int | float):
            raise _YamlError(f"{node.value} is a {type(value).__name__} to YAML: quote it", line, path)
        try:
            return to_json_value(value)
        except ValueError as error:
            raise _YamlError(str(error), line, path) from error


def _checked(value: dict[str, Any], source: str, lines: dict[Path, int]) -> ParsedAgent:
    extra = value.get("json_schema_extra")
    name = extra.get("name") if isinstance(extra, dict) else None
    problems = _output_problems(value, lines)
    try:
        document = AgentDocument.model_validate(value)
    except ValidationError as error:
        problems += [_problem(detail, lines) for detail in error.errors()]
    if problems:
        # Two checks may have stumbled over the same field.
        once = {problem.field: problem for problem in reversed(problems)}
        return ParsedAgent(None, sorted(once.values(), key=_place), name if isinstance(name, str) else None)
    return ParsedAgent(AgentSchema.from_document(document, source), name=document.json_schema_extra.name)


def _place(problem: AgentIssue) -> tuple[int, str]:
    return problem.line or 0, problem.field


def _output_problems(value: dict[str, Any], lines: dict[Path, int]) -> list[AgentIssue]:
    """What is wrong with what the document says of the answer."""
    parts = ("properties", "required", "additionalProperties", "$defs")
    schema: dict[str, Any] = {name: value[name] for name in parts if name in value}
    found = [(problem.path, problem.message) for problem in check_schema({"type": "object", **schema})]
    extra = value.get("json_schema_extra")
    if isinstance(extra, dict) and extra.get("structured_output") is True and not value.get("properties"):
        message = "needs properties: they say what the answer looks like"
        found.append((("json_schema_extra", "structured_output"), message))
    return [AgentIssue(message, format_path(path), _line(path, lines)) for path, message in found]


def _problem(detail: ErrorDetails, lines: dict[Path, int]) -> AgentIssue:
    # Behind the field pydantic names the alternative of a union that it tried.
    path = tuple(part for part in detail["loc"] if part not in ("bool", "dict[str,any]"))
    return AgentIssue(_message(detail, path), format_path(path), _line(path, lines))


def _line(path: Path, lines: dict[Path, int]) -> int | None:
    """The line of a field, or of what it is missing from."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


_FIELDS: dict[str, list[str]] = {
    "": [field.alias or name for name, field in AgentDocument.model_fields.items()],
    "json_schema_extra": list(AgentExtra.model_fields),
    "tools": list(ToolRef.model_fields),
    "resources": list(ResourceRef.model_fields),
}
_PATTERNS = {
    "name": "must be in kebab case: small letters and digits, joined by hyphens, such as query-agent",
    "version": 'must be a version such as "1.0.0"',
}
_TYPES = {
    "string_type": "must be text: quote it",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "missing": "is missing",
}


def _message(detail: ErrorDetails, path: Path) -> str:
    kind, last = detail["type"], str(path[-1]) if path else ""
    if kind == "extra_forbidden":
        return _unknown_field(path)
    if kind == "string_pattern_mismatch" and last in _PATTERNS:
        return _PATTERNS[last]
    if kind == "model_type" and len(path) > 1 and path[-2] in ("tools", "resources"):
        return f"must be a mapping: write - {'name' if path[-2] == 'tools' else 'uri_pattern'}: …"
    if kind in _TYPES:
        return _TYPES[kind]
    message = detail["msg"].removeprefix("Value error, ")
    return message.replace("Input should", "must").replace("String should", "must").replace("List should", "must")


def _unknown_field(path: Path) -> str:
    parents = [str(part) for part in path[:-1] if isinstance(part, str)]
    fields = _FIELDS.get(parents[-1] if parents else "", [])
    elsewhere = next((place for place, names in _FIELDS.items() if path[-1] in names), None)
    if elsewhere == "json_schema_extra" and not parents:
        return "belongs under json_schema_extra"
    return f"there is no such field.{did_you_mean(str(path[-1]), fields)}"
