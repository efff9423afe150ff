"""Parse the YAML of an agent. Errors name file, line and field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rem.agents.evaluation import Evaluation, find_evaluation_issues
from rem.agents.json_schema import check_schema, format_path
from rem.agents.schema import AgentDocument, AgentExtra, AgentSchema, ResourceRef, ToolRef
from rem.agents.schema_references import Path
from rem.db.yaml import BoundedLoader
from rem.errors import InvalidAgentError
from rem.models.field_types import to_json_value
from rem.text import collapse_spaces, did_you_mean

MAX_AGENT_BYTES = 256 * 1024
"""Length of the YAML of an agent."""
MAX_DEPTH = 50
MAX_VALUES = 20_000
"""The nodes of more values are built without a pause, and other requests wait meanwhile."""


@dataclass(frozen=True, slots=True)
class AgentIssue:
    """One error in the definition of an agent."""

    message: str
    field: str = ""
    line: int | None = None

    def format(self, source: str) -> str:
        """Return the error with its position: `agents/x.yaml, line 7: json_schema_extra.name: is missing`."""
        position = source if self.line is None else f"{source}, line {self.line}"
        return ": ".join(part for part in (position, self.field, self.message) if part)


_TOO_LONG = AgentIssue(f"is longer than {MAX_AGENT_BYTES // 1024} KB: shorten the description")


@dataclass(frozen=True, slots=True)
class ParsedAgent:
    """The agent of a YAML document, or its errors and its name, if it has one."""

    schema: AgentSchema | None
    issues: list[AgentIssue] = field(default_factory=list)
    name: str | None = None


def parse_agent(text: str, source: str) -> AgentSchema:
    """Return the agent of a YAML document. Raise InvalidAgentError, which names every error with line and field."""
    return _require_schema(read_agent(text, source), source)


def parse_agent_document(document: Mapping[str, Any], source: str) -> AgentSchema:
    """Return the agent of a stored document. Raise InvalidAgentError, which names every error with its field."""
    return _require_schema(_validate(dict(document), source, {}), source)


def describe_issues(issues: list[AgentIssue], source: str) -> str:
    """Return the errors with their positions, one in each line."""
    return "\n".join(issue.format(source) for issue in issues)


def _require_schema(parsed: ParsedAgent, source: str) -> AgentSchema:
    if parsed.schema is None:
        raise InvalidAgentError(describe_issues(parsed.issues, source))
    return parsed.schema


def read_agent(text: str, source: str) -> ParsedAgent:
    """Parse a YAML document. Return the agent, or all of its errors."""
    try:
        value, lines = _load(text)
    except _YamlError as error:
        return ParsedAgent(None, [error.issue])
    if not isinstance(value, dict):
        message = "is empty" if value is None else "must be a mapping"
        return ParsedAgent(
            None, [AgentIssue(f"{message}: write description, properties and json_schema_extra", line=1)]
        )
    return _validate(value, source, lines)


def read_agent_bytes(content: bytes, source: str) -> ParsedAgent:
    """Parse the content of a file. Of a file over MAX_AGENT_BYTES its first MAX_AGENT_BYTES + 1 bytes are enough."""
    if len(content) > MAX_AGENT_BYTES:
        return ParsedAgent(None, [_TOO_LONG])
    try:
        return read_agent(content.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return ParsedAgent(None, [AgentIssue("is not UTF-8 text: save it as UTF-8", line=line)])


class _YamlError(Exception):
    """The text is not one plain YAML document."""

    def __init__(self, message: str, line: int | None = None, path: Path = ()) -> None:
        super().__init__(message)
        self.issue = AgentIssue(message, format_path(path), line)


def _load(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the value of a YAML text, and the line of every node."""
    if len(text) > MAX_AGENT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_AGENT_BYTES:
        raise _YamlError(_TOO_LONG.message)
    try:
        _refuse_unsafe_yaml(text)
        loader = BoundedLoader(text)
        try:
            root = loader.get_single_node()
            return (None, {}) if root is None else _NodeReader(loader).read(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise _YamlError(
            f"not valid YAML: {error.problem or error.context}", mark.line + 1 if mark else None
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _YamlError(f"not valid YAML: {collapse_spaces(str(error))}") from error


def _refuse_unsafe_yaml(text: str) -> None:
    """Refuse aliases, which can expand to gigabytes, tags, which may create any object, depth, and many values."""
    depth = values = 0
    for event in yaml.parse(text, Loader=BoundedLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _YamlError("YAML anchors and aliases (&name, *name) are not supported: write the value out", line)
        if getattr(event, "tag", None):
            raise _YamlError(f"the YAML tag {event.tag} is not supported: leave it out", line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _YamlError(f"is nested more than {MAX_DEPTH} levels deep", line)
        values += isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if values > MAX_VALUES:
            raise _YamlError(f"has more than {MAX_VALUES:,} values", line)


class _NodeReader:
    """Converts YAML nodes into plain JSON, and records the line of every node."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lines: dict[Path, int] = {}

    def read(self, root: Any) -> tuple[Any, dict[Path, int]]:
        return self._read_node(root, ()), self._lines

    def _read_node(self, node: Any, path: Path) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._read_node(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._read_scalar(node, path)

    def _read_mapping(self, node: Any, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._read_scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise _YamlError("a field's name must be text: quote it", line, path)
            if key in values:
                raise _YamlError("is given more than once", line, (*path, key))
            # The line of a field is the line of its name. The value may start on the next line.
            self._lines[(*path, key)] = line
            values[key] = self._read_node(value_node, (*path, key))
        return values

    def _read_scalar(self, node: Any, path: Path) -> Any:
        value, line = self._loader.construct_object(node), node.start_mark.line + 1
        if value is not None and not isinstance(value, str | bool | int | float):
            raise _YamlError(f"{node.value} is a {type(value).__name__} to YAML: quote it", line, path)
        try:
            return to_json_value(value)
        except ValueError as error:
            raise _YamlError(str(error), line, path) from error


def _validate(value: dict[str, Any], source: str, lines: dict[Path, int]) -> ParsedAgent:
    extra = value.get("json_schema_extra")
    name = extra.get("name") if isinstance(extra, dict) else None
    issues = _check_output_schema(value, lines)
    try:
        document = AgentDocument.model_validate(value)
    except ValidationError as error:
        issues += [_make_issue(detail, lines) for detail in error.errors()]
    if issues:
        # Two checks may report the same field.
        unique = {issue.field: issue for issue in reversed(issues)}
        in_order = sorted(unique.values(), key=lambda issue: (issue.line or 0, issue.field))
        return ParsedAgent(None, in_order, name if isinstance(name, str) else None)
    return ParsedAgent(AgentSchema.from_document(document, source), name=document.json_schema_extra.name)


def _check_output_schema(value: dict[str, Any], lines: dict[Path, int]) -> list[AgentIssue]:
    """Return the errors in the parts of the document that describe the answer."""
    parts = ("properties", "required", "additionalProperties", "$defs")
    schema: dict[str, Any] = {name: value[name] for name in parts if name in value}
    errors = [(issue.path, issue.message) for issue in check_schema({"type": "object", **schema})]
    extra = value.get("json_schema_extra")
    if isinstance(extra, dict) and extra.get("structured_output") is True and not value.get("properties"):
        message = "needs properties: they describe the answer"
        errors.append((("json_schema_extra", "structured_output"), message))
    errors += find_evaluation_issues(value)
    return [AgentIssue(message, format_path(path), _find_line(path, lines)) for path, message in errors]


def _make_issue(detail: ErrorDetails, lines: dict[Path, int]) -> AgentIssue:
    # After the field pydantic names the member of the union that it tried.
    path = tuple(part for part in detail["loc"] if part not in ("bool", "dict[str,any]"))
    return AgentIssue(_describe_error(detail, path), format_path(path), _find_line(path, lines))


def _find_line(path: Path, lines: dict[Path, int]) -> int | None:
    """Return the line of a field, or the line of its parent if the field is missing."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


_FIELDS_OF_PARENT: dict[str, list[str]] = {
    "": [field.alias or name for name, field in AgentDocument.model_fields.items()],
    "json_schema_extra": list(AgentExtra.model_fields),
    "tools": list(ToolRef.model_fields),
    "resources": list(ResourceRef.model_fields),
    "evaluation": list(Evaluation.model_fields),
}
_PATTERN_MESSAGES = {
    "name": "must be in kebab case: small letters and digits, joined by hyphens, such as query-agent",
    "version": 'must be a version such as "1.0.0"',
}
_TYPE_MESSAGES = {
    "string_type": "must be text: quote it",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "missing": "is missing",
}


def _describe_error(detail: ErrorDetails, path: Path) -> str:
    error_type, last = detail["type"], str(path[-1]) if path else ""
    if error_type == "extra_forbidden":
        return _describe_unknown_field(path)
    if error_type == "string_pattern_mismatch" and last in _PATTERN_MESSAGES:
        return _PATTERN_MESSAGES[last]
    if error_type == "model_type" and len(path) > 1 and path[-2] in ("tools", "resources"):
        return f"must be a mapping: write - {'name' if path[-2] == 'tools' else 'uri_pattern'}: …"
    if error_type in _TYPE_MESSAGES:
        return _TYPE_MESSAGES[error_type]
    message = detail["msg"].removeprefix("Value error, ")
    return message.replace("Input should", "must").replace("String should", "must").replace("List should", "must")


def _describe_unknown_field(path: Path) -> str:
    parents = [str(part) for part in path[:-1] if isinstance(part, str)]
    fields = _FIELDS_OF_PARENT.get(parents[-1] if parents else "", [])
    other_parent = next((parent for parent, names in _FIELDS_OF_PARENT.items() if path[-1] in names), None)
    if other_parent == "json_schema_extra" and not parents:
        return "belongs under json_schema_extra"
    return f"there is no such field.{did_you_mean(str(path[-1]), fields)}"
