"""`/feedback`: rate sessions and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rem.api.dependencies import ContextDep, JsonBody, RemDep, resolve_session
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, WindowDep
from rem.api.routes.messages import find_readable_message, with_message_session
from rem.app import Rem
from rem.context import AgentContext
from rem.errors import InvalidInputError, NotFoundError
from rem.models import Feedback
from rem.models.field_types import check_text

router = APIRouter(prefix="/feedback", tags=["feedback"])

StorableText = Annotated[str, AfterValidator(check_text)]


class CreateFeedbackRequest(BaseModel):
    """A rating of a session or of one of its messages."""

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

    session_id: Annotated[StorableText, Field(min_length=1)] | None = Field(
        default=None, description="The session, by id or name; default: the session of the message."
    )
    message_id: Annotated[StorableText, Field(min_length=1)] | None = Field(
        default=None, description="The message, by id or key."
    )
    rating: int | None = Field(
        default=None, ge=-1, le=5, strict=True, description="-1 and 1 for thumbs, 1 to 5 for stars."
    )
    categories: list[Annotated[StorableText, Field(max_length=255)]] = Field(default_factory=list, max_length=100)
    comment: StorableText | None = Field(default=None, max_length=100_000)
    trace_id: StorableText | None = Field(default=None, max_length=255, description="The trace of the answer.")
    span_id: StorableText | None = Field(default=None, max_length=255)


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
async def give_feedback(rem: RemDep, context: ContextDep, feedback: CreateFeedbackRequest) -> FeedbackView:
    """Rate a session that the caller may read, or one of its messages. The rating belongs to the caller."""
    if feedback.rating is None and not feedback.categories and not (feedback.comment or "").strip():
        raise InvalidInputError("The feedback is empty: give a rating, categories or a comment.")
    if feedback.session_id is not None:
        context = await resolve_session(rem, context, feedback.session_id)
    elif feedback.message_id is not None:
        context = with_message_session(context, feedback.message_id)
    session_id, message_id = await _resolve_rated(rem, context, feedback)
    fields = feedback.model_dump(exclude={"session_id", "message_id"}, exclude_none=True)
    stored = await rem.for_user(context.scope).store.upsert(
        Feedback(session_id=session_id, message_id=message_id, **fields)
    )
    return FeedbackView.model_validate(stored)


async def _resolve_rated(rem: Rem, context: AgentContext, feedback: CreateFeedbackRequest) -> tuple[UUID, UUID | None]:
    """Return the ids of the rated session and message. Raise an error if the caller may not read them."""
    memory = rem.for_user(context.scope).sessions
    session = None if feedback.session_id is None else await memory.get_session(UUID(context.session_id))
    if feedback.message_id is None:
        if session is None:
            raise InvalidInputError("The feedback needs a target: give a message_id or a session_id.")
        return session.id, None
    message = await find_readable_message(rem, context, feedback.message_id)
    if session is None:
        # This fails for a deleted session: its messages cannot be rated, either.
        session = await memory.get_session(message.session_id)
    elif message.session_id != session.id:
        raise NotFoundError(f"The session {session.id} has no message {feedback.message_id!r}.")
    return session.id, message.id


@router.get("", summary="List ratings")
async def list_feedback(
    rem: RemDep,
    context: ContextDep,
    window: WindowDep,
    session_id: Annotated[str | None, Query(min_length=1, description="Only ratings of this session.")] = None,
) -> Page[FeedbackView]:
    """List the caller's own ratings, newest first."""
    where = {}
    if session_id is not None:
        context = await resolve_session(rem, context, session_id)
        where["session_id"] = UUID(context.session_id)
    rows = await rem.for_user(context.scope).store.find(Feedback, where, limit=window.fetch_limit, offset=window.offset)
    views = [FeedbackView.model_validate(row) for row in rows]
    return Page[FeedbackView].model_validate(window.slice_page(views))
