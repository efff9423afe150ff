"""AgentSchema: the definition of an agent, and its conversion from and to a document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints, field_validator, model_validator

from rem.agents.evaluation import Evaluation
from rem.agents.uri_pattern import check_uri_pattern, matches_uri_pattern
from rem.models.approval import RiskLevel
from rem.settings import OutputModeSetting
from rem.text import collapse_spaces, did_you_mean, split_sentences
from rem.tools.registry import AGENT_TOOLS

KNOWN_TOOLS = tuple(AGENT_TOOLS)
"""The tools that an agent may have."""
BUILT_IN = "built in"
DATABASE = "database"
READ_RESOURCE = "read_resource"
MAX_SUMMARY_CHARS = 160

AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$", max_length=64)]


class _DocumentPart(BaseModel):
    """A part of a document. An unknown field is an error: ignoring a misspelt field would silently use the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ToolRef(_DocumentPart):
    """A tool that the agent may call. The description, if given, replaces the tool's own."""

    name: str
    description: str | None = Field(default=None, min_length=1, max_length=10_000)
    mcp_server: Literal["rem"] = "rem"

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if value not in KNOWN_TOOLS:
            raise ValueError(f"there is no tool {value!r}.{did_you_mean(value, KNOWN_TOOLS)}")
        return value


class ResourceRef(_DocumentPart):
    """Resources that the agent may read: their address matches the pattern, such as `rem://sessions/.*`."""

    uri_pattern: str = Field(min_length=1, max_length=500)

    @field_validator("uri_pattern")
    @classmethod
    def _check_pattern(cls, value: str) -> str:
        check_uri_pattern(value)
        return value


class AgentExtra(_DocumentPart):
    """The options of an agent beside its prompt and its output schema: `json_schema_extra`."""

    kind: Literal["agent", "evaluator"] = "agent"
    name: AgentName
    version: Version = "1.0.0"
    tools: list[ToolRef] = Field(default_factory=list)
    resources: list[ResourceRef] = Field(default_factory=list, max_length=50)
    structured_output: bool = False
    output_mode: OutputModeSetting | None = None
    model: str | None = Field(default=None, min_length=1, max_length=200)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    request_limit: int | None = Field(default=None, ge=1, le=1000)
    total_tokens_limit: int | None = Field(default=None, ge=1, le=10**12)
    retries: int = Field(default=2, ge=0, le=10)
    enable_rag: bool | None = None
    """Add earlier messages to each question. None: as MEMORY__RAG__ENABLED says."""
    rag_top_k: int | None = Field(default=None, ge=1, le=50)
    rag_min_similarity: float | None = Field(default=None, ge=0, le=1)
    consent: list[Annotated[RiskLevel, Strict(False)]] = Field(default=[RiskLevel.IRREVERSIBLE])
    """The risk levels of tools that the agent may call only with the consent of the user."""
    evaluation: Evaluation = Evaluation()
    """How an evaluator judges; only for `kind: evaluator`."""

    @field_validator("consent")
    @classmethod
    def _require_irreversible(cls, value: list[RiskLevel]) -> list[RiskLevel]:
        """Refuse a list that lets an agent do something for good without asking: a model may write agents."""
        if RiskLevel.IRREVERSIBLE not in value:
            raise ValueError("must contain irreversible, which always needs the consent of the user")
        if RiskLevel.REVERSIBLE in value:
            raise ValueError("must not contain reversible: what changes nothing is done at once")
        return value

    @field_validator("tools")
    @classmethod
    def _refuse_duplicates(cls, value: list[ToolRef]) -> list[ToolRef]:
        names = [tool.name for tool in value]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(f"{duplicate} is listed more than once")
        return value


class AgentDocument(_DocumentPart):
    """An agent as users write it: a JSON schema whose description is the system prompt."""

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
    def _refuse_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty: it is the system prompt, so describe what the agent does")
        return value


class AgentSchema(AgentExtra):
    """The definition of an agent. `source` is BUILT_IN, DATABASE or the path of a file."""

    title: str | None = None
    description: str
    properties: dict[str, Any] = Field(default_factory=dict)
    required: list[str] = Field(default_factory=list)
    additional_properties: bool | dict[str, Any] | None = None
    defs: dict[str, Any] = Field(default_factory=dict)
    source: str = BUILT_IN

    @classmethod
    def from_document(cls, document: AgentDocument, source: str) -> AgentSchema:
        """Return the agent of a validated document."""
        outer = {name: getattr(document, name) for name in _OUTER_FIELDS}
        inner = {name: getattr(document.json_schema_extra, name) for name in AgentExtra.model_fields}
        return cls(**outer, **inner, source=source)

    @model_validator(mode="after")
    def _check_structured_output(self) -> AgentSchema:
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
        """The tools that the agent may call. An agent with resources may call `read_resource`."""
        names = [tool.name for tool in self.tools]
        return [*names, READ_RESOURCE] if self.resources and READ_RESOURCE not in names else names

    @property
    def consent_levels(self) -> frozenset[RiskLevel]:
        """The risk levels of tools that need the consent of the user."""
        return frozenset(self.consent)

    @property
    def summary(self) -> str:
        """The first sentence of the prompt, with at most MAX_SUMMARY_CHARS characters."""
        first = split_sentences(collapse_spaces(self.description))[0]
        return first if len(first) <= MAX_SUMMARY_CHARS else f"{first[: MAX_SUMMARY_CHARS - 1].rstrip()}…"

    def may_read(self, uri: str) -> bool:
        """Return whether the agent may read the resource at `uri`.

        It may read resources that match its patterns; without patterns, all if it has the tool `read_resource`.
        """
        if not self.resources:
            return READ_RESOURCE in self.tool_names
        return any(matches_uri_pattern(resource.uri_pattern, uri) for resource in self.resources)

    def as_document(self) -> dict[str, Any]:
        """Return the document of the agent, without default values."""
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
        """Return the document of the agent as YAML."""
        return dump_yaml(self.as_document())


_OUTER_FIELDS = ("title", "description", "properties", "required", "additional_properties", "defs")


def dump_yaml(value: Any) -> str:
    """Return a JSON value as YAML, with texts of several lines as blocks."""
    text: str = yaml.dump(value, Dumper=_BlockTextDumper, sort_keys=False, allow_unicode=True, width=120)
    return text


class _BlockTextDumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and uses no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_BlockTextDumper.add_representer(str, _represent_text)
