"""Edges of the graph: from the entity that holds the edge to the entity with a given key."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rem.models.field_types import JsonObject, Label, check_text


class Edge(BaseModel):
    """A link to another entity. The target may be stored later than the edge.

    `dst` is the label of the target, for example "sarah-chen" or "users/sarah@example.com". `origin` names the writer
    of the edge: writing an entity replaces the edges of the same origin and keeps all others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dst: Label
    rel_type: str = "related_to"
    weight: float = Field(default=1.0, allow_inf_nan=False)
    origin: str = Field(default="user", min_length=1, max_length=255)
    properties: JsonObject = Field(default_factory=dict)

    @field_validator("dst", "rel_type", "origin")
    @classmethod
    def _check_not_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return check_text(value)

    @field_validator("properties")
    @classmethod
    def _check_target_type(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("dst_entity_type", ""), str):
            raise ValueError("dst_entity_type must be the name of a table")
        return value
