"""Moments: episodes with a time span."""

from __future__ import annotations

from typing import Self
from uuid import UUID

from pydantic import Field, model_validator

from rem.models.entity import Entity
from rem.models.field_types import Label, UtcDateTime


class Moment(Entity, table="moments", summary="summary", search=("summary",)):
    """An episode: its time span, people, topics and summary."""

    name: Label
    moment_type: str | None = None
    category: str | None = None
    starts_timestamp: UtcDateTime | None = None
    ends_timestamp: UtcDateTime | None = None
    present_persons: list[str] = Field(default_factory=list)
    emotion_tags: list[str] = Field(default_factory=list)
    topic_tags: list[str] = Field(default_factory=list)
    summary: str = ""
    source_resource_ids: list[UUID] = Field(default_factory=list)
    source_session_id: UUID | None = None
    previous_moment_keys: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_order_of_times(self) -> Self:
        if self.starts_timestamp and self.ends_timestamp and self.ends_timestamp < self.starts_timestamp:
            raise ValueError("ends_timestamp: is before starts_timestamp")
        return self
