"""AgentSchema: an agent that a document defines, and the document again."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from rem.agents.uri_pattern import check_uri_pattern, matches_uri_pattern
from rem.tools.registry import TOOLS

KNOWN_TOOLS = tuple(TOOLS)
"""The tools that an agent may be given."""
BUILT_IN = "built in"
DATABASE = "database"
READ_RESOURCE = "read_resource"
_LONGEST_SUMMARY = 160
_MOST_LISTED = 16
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")

AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$", max_length=64)]


class _Part(BaseModel):
    """Part of a document. A misspelt field is an error: silently it would mean the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ToolRef(_Part):
    """A tool that the agent may call. The description, if given, stands before the tool's own."""

    name: str
    description: str | None = Field(default=None, min_length=1, max_length=10_000)
    mcp_server: Literal["rem"] = "rem"

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in KNOWN_TOOLS:
            raise ValueError(f"there is no tool {value!r}.{did_you_mean(value, KNOWN_TOOLS)}")
        return value


class ResourceRef(_Part):
    """Resources that the agent may read: those whose address matches the pattern, such as `rem://sessions/.*`."""

    uri_pattern: str = Field(min_length=1, max_length=500)

    @field_validator("uri_pattern")
    @classmethod
    def _readable(cls, value: str) -> str:
        check_uri_pattern(value)
        return value


class AgentExtra(_Part):
    """What a document says of the agent beside its prompt and its output: `json_schema_extra`."""

    kind: Literal["agent", "evaluator"] = "agent"
    name: AgentName
    version: Version = "1.0.0"
    tools: list[ToolRef] = Field(default_factory=list)
    resources: list[ResourceRef] = Field(default_factory=list, max_length=50)
    structured_output: bool = False
    model: str | None = Field(default=None, min_length=1, max_length=200)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    request_limit: int | None = Field(default=None, ge=1, le=1000)
    total_tokens_limit: int | None = Field(default=None, ge=1, le=10**12)
    retries: int = Field(default=2, ge=0, le=10)
    rag: bool | None = None

    @field_validator("tools")
    @classmethod
    def _each_once(cls, value: list[ToolRef]) -> list[ToolRef]:
        names = [tool.name for tool in value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is listed more than once")
        return value


class AgentDocument(_Part):
    """An agent as it is written: a JSON schema whose description is the system prompt."""

    type: Literal["object"] = "object"
    title: str | None = Field(default=None, max_length=200)
    description: str = Field(max_length=100_000)
    properties: dict[str, Any] = Field(default_factory=dict)
    required: list[str] = Field(default_factory=list)
    additional_properties: bool | dict[str, Any] | None = Field(default=None, alias="additionalProperties")
    defs: dict[str, Any] = Field(default_factory=dict, alias="$defs")
    json_schema_extra: AgentExtra

    @field_validator("description")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: it is the system prompt, so say what the agent does")
        return value


class AgentSchema(AgentExtra):
    """An agent. `source` is where it was found: "built in", the path of a file, or "database"."""

    title: str | None = None
    description: str
    properties: dict[str, Any] = Field(default_factory=dict)
    required: list[str] = Field(default_factory=list)
    additional_properties: bool | dict[str, Any] | None = None
    defs: dict[str, Any] = Field(default_factory=dict)
    source: str = BUILT_IN

    @classmethod
    def from_document(cls, document: AgentDocument, source: str) -> AgentSchema:
        """The agent that a checked document defines."""
        outer = {name: getattr(document, name) for name in _OUTER}
        inner = {name: getattr(document.json_schema_extra, name) for name in AgentExtra.model_fields}
        return cls(**outer, **inner, source=source)

    @model_validator(mode="after")
    def _has_output(self) -> AgentSchema:
        if self.structured_output and not self.properties:
            raise ValueError("structured_output needs properties")
        return self

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of a structured answer."""
        schema: dict[str, Any] = {"type": "object", "properties": self.properties, "required": self.required}
        if self.additional_properties is not None:
            schema["additionalProperties"] = self.additional_properties
        if self.defs:
            schema["$defs"] = self.defs
        return schema

    @property
    def tool_names(self) -> list[str]:
        """The tools that the agent may call. Who may read some resources may call `read_resource`."""
        names = [tool.name for tool in self.tools]
        return [*names, READ_RESOURCE] if self.resources and READ_RESOURCE not in names else names

    @property
    def summary(self) -> str:
        """What the agent is, in one line: the first sentence of its prompt."""
        first = _SENTENCE_END.split(" ".join(self.description.split()), maxsplit=1)[0]
        return first if len(first) <= _LONGEST_SUMMARY else f"{first[: _LONGEST_SUMMARY - 1].rstrip()}…"

    def may_read(self, uri: str) -> bool:
        """Whether the agent may read a resource: one that its patterns match; any, if it has the tool and none."""
        if not self.resources:
            return READ_RESOURCE in self.tool_names
        return any(matches_uri_pattern(resource.uri_pattern, uri) for resource in self.resources)

    def as_document(self) -> dict[str, Any]:
        """The document again, without what is said by default."""
        document: dict[str, Any] = {"type": "object"}
        if self.title is not None:
            document["title"] = self.title
        document |= {"description": self.description, "properties": self.properties}
        document |= {name: value for name, value in self.output_schema.items() if name not in document and value != []}
        extra = self.model_dump(mode="json", include=set(AgentExtra.model_fields), exclude_defaults=True)
        ordered = {"kind": self.kind, "name": self.name, "version": self.version}
        document["json_schema_extra"] = ordered | {name: value for name, value in extra.items() if name not in ordered}
        return document

    def as_yaml(self) -> str:
        """The document again, as YAML."""
        text: str = yaml.dump(self.as_document(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
        return text


_OUTER = ("title", "description", "properties", "required", "additional_properties", "defs")


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, as people do, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def did_you_mean(word: str, choices: tuple[str, ...] | list[str]) -> str:
    """A sentence that proposes the choice that a word is nearly, or lists them if it is like none and they are few."""
    from difflib import get_close_matches

    near = get_close_matches(word.lower()[:200], choices, n=1, cutoff=0.6)
    if near:
        return f" Did you mean {near[0]}?"
    return f" There are {', '.join(choices)}." if 0 < len(choices) <= _MOST_LISTED else ""
