"""`/feedback`: what people think of answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rem.api.dependencies import ContextDep, JsonBody, RemDep, resolve_session
from rem.api.openapi_errors import error_responses
from rem.api.pages import Page, WindowDep
from rem.api.routes.messages import find_readable_message, with_message_session
from rem.app import Rem
from rem.context import AgentContext
from rem.errors import InvalidInputError, NotFoundError
from rem.models import Feedback
from rem.models.field_types import check_text

router = APIRouter(prefix="/feedback", tags=["feedback"])

Text = Annotated[str, AfterValidator(check_text)]


class CreateFeedbackRequest(BaseModel):
    """A rating of a conversation, or of one message in it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "message_id": "session-550e8400-e29b-41d4-a716-446655440000-msg-1",
                "rating": 1,
                "categories": ["helpful"],
                "comment": "It found what I had forgotten.",
            }
        },
    )

    session_id: Annotated[Text, Field(min_length=1)] | None = Field(
        default=None, description="The conversation, by id or name; that of the message if not given."
    )
    message_id: Annotated[Text, Field(min_length=1)] | None = Field(default=None, description="By id or key.")
    rating: int | None = Field(
        default=None, ge=-1, le=5, strict=True, description="-1 and 1 for thumbs, 1 to 5 for stars."
    )
    categories: list[Annotated[Text, Field(max_length=255)]] = Field(default_factory=list, max_length=100)
    comment: Text | None = Field(default=None, max_length=100_000)
    trace_id: Text | None = Field(default=None, max_length=255, description="Of the trace that the answer belongs to.")
    span_id: Text | None = Field(default=None, max_length=255)


class FeedbackView(BaseModel):
    """A stored rating."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    session_id: UUID | None
    message_id: UUID | None
    rating: int | None
    categories: list[str]
    comment: str | None
    trace_id: str | None
    span_id: str | None
    created_at: datetime


@router.post(
    "", status_code=201, summary="Rate an answer", responses=error_responses(404, 409), dependencies=[JsonBody]
)
async def give_feedback(rem: RemDep, context: ContextDep, new: CreateFeedbackRequest) -> FeedbackView:
    """Rate a conversation that the caller may read, or one message in it. The rating is the caller's own."""
    if new.rating is None and not new.categories and not (new.comment or "").strip():
        raise InvalidInputError("Say something: give a rating, categories or a comment.")
    if new.session_id is not None:
        context = await resolve_session(rem, context, new.session_id)
    elif new.message_id is not None:
        context = with_message_session(context, new.message_id)
    session_id, message_id = await _rated(rem, context, new)
    given = new.model_dump(exclude={"session_id", "message_id"}, exclude_none=True)
    stored = await rem.store(context.scope).upsert(Feedback(session_id=session_id, message_id=message_id, **given))
    return FeedbackView.model_validate(stored)


async def _rated(rem: Rem, context: AgentContext, new: CreateFeedbackRequest) -> tuple[UUID, UUID | None]:
    """The conversation that is rated and the message, both of which the caller may read."""
    memory = rem.memory(context.scope)
    session = None if new.session_id is None else await memory.get_session(UUID(context.session_id))
    if new.message_id is None:
        if session is None:
            raise InvalidInputError("Say what you rate: give a message_id or a session_id.")
        return session.id, None
    message = await find_readable_message(rem, context, new.message_id)
    if session is None:
        # A message of a conversation that was deleted is not rated, either.
        session = await memory.get_session(message.session_id)
    elif message.session_id != session.id:
        raise NotFoundError(f"The session {session.id} has no message {new.message_id!r}.")
    return session.id, message.id


@router.get("", summary="List ratings")
async def list_feedback(
    rem: RemDep,
    context: ContextDep,
    window: WindowDep,
    session_id: Annotated[str | None, Query(min_length=1, description="Only of this conversation.")] = None,
) -> Page[FeedbackView]:
    """The caller's own ratings, the newest first."""
    where = {}
    if session_id is not None:
        context = await resolve_session(rem, context, session_id)
        where["session_id"] = UUID(context.session_id)
    rows = await rem.store(context.scope).find(Feedback, where, limit=window.fetch_limit, offset=window.offset)
    own = [FeedbackView.model_validate(row) for row in rows]
    return Page[FeedbackView].model_validate(window.slice_page(own))
