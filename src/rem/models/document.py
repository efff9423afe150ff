"""Documents: immutable texts with an optional embedding."""

from __future__ import annotations

from pydantic import field_validator

from rem.models.entity import Entity
from rem.models.field_types import Vector


class Document(
    Entity,
    table="documents",
    key_fields=("id",),
    key_expression="id::text",
    summary="content",
    search=("content",),
):
    """An immutable text with an optional embedding. A new version is a new document."""

    content: str
    embedding: Vector | None = None
    embedding_model: str | None = None

    @field_validator("content")
    @classmethod
    def _refuse_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("is empty")
        return value
