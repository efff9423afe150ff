"""Schemas: agents and evaluators that are stored in the database."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import JsonObject, Label


class SchemaKind(StrEnum):
    """The purpose of a schema."""

    AGENT = "agent"
    EVALUATOR = "evaluator"


class Schema(Entity, table="schemas", summary="description", search=("description",)):
    """The definition of an agent or evaluator. `spec` is its YAML as an object."""

    name: Label
    version: str = "1.0.0"
    kind: SchemaKind = SchemaKind.AGENT
    spec: JsonObject = Field(default_factory=dict)
    description: str = ""
