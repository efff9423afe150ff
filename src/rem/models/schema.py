"""An agent or evaluator that is defined by a document."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import JsonObject, Label


class SchemaKind(StrEnum):
    """What a schema defines."""

    AGENT = "agent"
    EVALUATOR = "evaluator"


class Schema(Entity, table="schemas", summary="description", search=("description",)):
    """The YAML of an agent or evaluator."""

    name: Label
    version: str = "1.0.0"
    kind: SchemaKind = SchemaKind.AGENT
    spec: JsonObject = Field(default_factory=dict)
    description: str = ""
