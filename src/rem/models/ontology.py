"""Ontologies: knowledge entries, and the agents that extract them from files."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import JsonObject, Label, UtcDateTime


class Ontology(Entity, table="ontologies", summary="content", search=("content",)):
    """An entry of the knowledge base, loaded by a user or extracted by an agent."""

    name: Label
    uri: str | None = None
    content: str = ""
    extracted_data: JsonObject = Field(default_factory=dict)
    confidence_score: float | None = Field(default=None, ge=0, le=1)
    agent_schema: str | None = None
    file_id: UUID | None = None
    extraction_timestamp: UtcDateTime | None = None


class OntologyConfig(Entity, table="ontology_configs", summary="agent_schema"):
    """Assigns an extraction agent to new files, by type, URI or tag."""

    name: Label
    agent_schema: str = Field(min_length=1)
    mime_type_pattern: str | None = None
    uri_pattern: str | None = None
    tag_filter: list[str] = Field(default_factory=list)
    priority: int = Field(default=100, ge=-(2**31), lt=2**31)
    enabled: bool = True
