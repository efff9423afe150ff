"""Feedback: a rating of an answer by a person."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from rem.models.entity import Entity


class Feedback(Entity, table="feedbacks", key_fields=("id",), key_expression="id::text", summary="comment"):
    """A rating of a session or of one message: -1 and 1 for thumbs, 1 to 5 for stars."""

    session_id: UUID | None = None
    message_id: UUID | None = None
    rating: int | None = Field(default=None, ge=-1, le=5)
    categories: list[str] = Field(default_factory=list)
    comment: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
