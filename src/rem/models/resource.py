"""Resources: texts, or chunks of a long document."""

from __future__ import annotations

from pydantic import Field

from rem.models.entity import Entity
from rem.models.field_types import JsonList, Label, UtcDateTime

REMEMBERED_ORIGIN = "tool:remember"
"""The origin of statements that REM was told to remember."""


class Resource(Entity, table="resources", summary="content", search=("content",)):
    """A text with a readable name. The chunks of a long document share a `uri` and have an `ordinal`."""

    name: Label
    uri: str | None = None
    ordinal: int = Field(default=0, ge=0, lt=2**31)
    content: str = ""
    category: str | None = None
    timestamp: UtcDateTime | None = None
    related_entities: JsonList = Field(default_factory=list)
