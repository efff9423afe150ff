"""`/sessions`: conversations, and with whom they are shared."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Body, Depends, Path, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from rem.api.dependencies import ContextDep, JsonBody, RemDep, ScopeDep, resolve_session
from rem.api.openapi_errors import error_responses
from rem.api.pages import Page, WindowDep
from rem.api.routes.messages import MessageView
from rem.context import Scope, resolve_user_id
from rem.errors import InvalidInputError, NotFoundError
from rem.forgetting.expiry import expire
from rem.memory.manager import MemoryManager
from rem.models import Session, SharedSession
from rem.models.field_types import Label, UtcDateTime, check_text

router = APIRouter(tags=["sessions"], dependencies=[JsonBody])

Text = Annotated[str, AfterValidator(check_text)]
Name = Annotated[Label, AfterValidator(check_text)]


class SessionView(BaseModel):
    """A conversation."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "example": {
                "id": "550e8400-e29b-41d4-a716-446655440000",
                "name": "Planning the launch",
                "title": "Planning the launch",
                "user_id": "edabafbb-61ad-51d6-9fd8-e976c892a731",
                "mode": "normal",
                "description": None,
                "agent_schema": "rem",
                "message_count": 12,
                "total_tokens": 1830,
                "metadata": {},
                "tags": [],
                "created_at": "2026-11-15T09:30:00Z",
                "updated_at": "2026-11-15T10:05:00Z",
                "expires_at": None,
            }
        },
    )

    id: UUID
    name: str | None
    title: str | None = Field(default=None, description="The name, else how the conversation began.")
    user_id: str | None = Field(description="The owner.")
    mode: str
    description: str | None
    agent_schema: str | None
    message_count: int
    total_tokens: int
    metadata: dict[str, Any]
    tags: list[str]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = Field(default=None, description="When it lapses, with all its messages.")


class CreateSessionRequest(BaseModel):
    """A conversation that is to be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "Planning the launch"}})

    id: UUID | None = Field(default=None, description="One of the client's own choice.")
    name: Name | None = None
    description: Text | None = None
    agent: Text | None = Field(default=None, description="The agent that it is with.")
    mode: Text = "normal"
    system_prompt: Text | None = Field(default=None, description="Becomes the first message.")
    metadata: dict[str, Any] = Field(default_factory=dict)


class UpdateSessionRequest(BaseModel):
    """Another name, or when it lapses. What is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "The launch"}, "minProperties": 1})

    name: Name | None = Field(default=None, description="null takes the name away.")
    expires_at: UtcDateTime | None = Field(
        default=None, description="When it lapses, with all its messages, also later ones; null means never."
    )

    @field_validator("expires_at", mode="before")
    @classmethod
    def _is_written_out(cls, value: object) -> object:
        """A number would be taken for seconds since 1970, which nobody means who writes 7."""
        if value is not None and not (isinstance(value, str) and "-" in value[1:]):
            raise ValueError("must be a date and time such as 2030-01-31T12:00:00Z, or null")
        return value


class CloneSessionRequest(BaseModel):
    """How a conversation is copied."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = Field(default=None, description="The name of the copy.")
    up_to: int | None = Field(
        default=None, ge=0, lt=2**31, strict=True, description="The last message that is copied, by index."
    )


class ShareSessionRequest(BaseModel):
    """With whom a conversation is shared."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"user": "bob@example.com"}})

    user: Annotated[Text, Field(min_length=1, max_length=320)] = Field(description="An e-mail address or an id.")


class ShareView(BaseModel):
    """A permission to read a conversation."""

    model_config = ConfigDict(from_attributes=True)

    session_id: UUID
    owner_user_id: str
    shared_with_user_id: str
    created_at: datetime


class ClearSessionResponse(BaseModel):
    """How much was deleted."""

    deleted: int


class _Place:
    """A conversation that the path names, in the memory of who asks."""

    def __init__(self, memory: MemoryManager, session_id: UUID) -> None:
        self.memory = memory
        self.session_id = session_id

    async def own(self) -> Session:
        """The session, which must be the caller's own: who may read another's may not change it."""
        session = await self.memory.get_session(self.session_id)
        if session.user_id != self.memory.scope.user_id:
            raise NotFoundError(f"There is no session {self.session_id} of this user.")
        return session


async def _place(
    rem: RemDep,
    context: ContextDep,
    session: Annotated[str, Path(description="The session's id or name.", min_length=1)],
) -> _Place:
    context = await resolve_session(rem, context, session)
    return _Place(rem.memory(context.scope), UUID(context.session_id))


async def _memory(rem: RemDep, scope: ScopeDep) -> MemoryManager:
    return rem.memory(scope)


PlaceDep = Annotated[_Place, Depends(_place)]
MemoryDep = Annotated[MemoryManager, Depends(_memory)]


@router.get("/sessions", summary="List the conversations")
async def list_sessions(memory: MemoryDep, window: WindowDep) -> Page[SessionView]:
    """The caller's conversations, those that were written to last first."""
    page = window.slice_page(await memory.list_sessions(window.fetch_limit, window.offset))
    return Page(data=await _titled(memory, page["data"]), has_more=page["has_more"])


@router.post("/sessions", status_code=201, summary="Begin a conversation", responses=error_responses(409))
async def create_session(
    rem: RemDep, context: ContextDep, response: Response, new: Annotated[CreateSessionRequest | None, Body()] = None
) -> SessionView:
    """Make a conversation. `POST /chat/completions` makes one by itself for an X-Session-Id that is new."""
    new = new or CreateSessionRequest()
    context = context.in_session(str(new.id or uuid4()))
    session = await rem.memory(context.scope).create_session(
        new.system_prompt,
        new.metadata,
        session_id=UUID(context.session_id),
        name=new.name,
        agent=new.agent,
        description=new.description,
        mode=new.mode,
    )
    response.headers["X-Session-Id"] = str(session.id)
    return _view(session)


@router.get("/shared-with-me", summary="List what others share")
async def shared_with_me(memory: MemoryDep, window: WindowDep) -> Page[SessionView]:
    """The conversations of others that the caller may read."""
    page = window.slice_page(await memory.list_shared_sessions(window.fetch_limit, window.offset))
    return Page(data=await _titled(memory, page["data"]), has_more=page["has_more"])


@router.get("/sessions/{session}", summary="Get a conversation", responses=error_responses(404))
async def get_session(place: PlaceDep) -> SessionView:
    """A conversation of the caller's own, or one that is shared with the caller."""
    (view,) = await _titled(place.memory, [await place.memory.get_session(place.session_id)])
    return view


@router.patch("/sessions/{session}", summary="Change a conversation", responses=error_responses(404, 409))
async def change_session(place: PlaceDep, change: UpdateSessionRequest) -> SessionView:
    """Give one of the caller's own conversations another name, or let it lapse."""
    if not change.model_fields_set:
        raise InvalidInputError("Say what is to change: name or expires_at.")
    async with place.memory.store.transaction() as store:
        memory = place.memory.with_store(store)
        session = await _Place(memory, place.session_id).own()
        if "name" in change.model_fields_set:
            session = await memory.rename_session(session.id, change.name)
        if "expires_at" in change.model_fields_set:
            await expire(store, [session], change.expires_at)
            session = session.model_copy(update={"expires_at": change.expires_at})
    return _view(session)


@router.delete("/sessions/{session}", status_code=204, summary="Delete a conversation", responses=error_responses(404))
async def delete_session(
    place: PlaceDep, erase: Annotated[bool, Query(description="For good, also what was deleted before.")] = False
) -> None:
    """Delete one of the caller's own conversations with its messages. It can be restored, unless it is erased."""
    await place.memory.delete_session(place.session_id, erase=erase)


@router.post("/sessions/{session}/restore", summary="Restore a conversation", responses=error_responses(404, 409))
async def restore_session(place: PlaceDep) -> SessionView:
    """Bring a deleted conversation back, with the messages that it had."""
    return _view(await place.memory.restore_session(place.session_id))


@router.get("/sessions/{session}/messages", summary="Read a conversation", responses=error_responses(404))
async def list_session_messages(
    place: PlaceDep,
    limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 100,
    after: Annotated[int, Query(ge=-1, lt=2**31, description="The index of the last message that is known.")] = -1,
) -> Page[MessageView]:
    """The messages of a conversation that the caller may read, in their order and word for word."""
    messages = await place.memory.get_messages(place.session_id, after=after, limit=limit + 1)
    views = [MessageView.model_validate(message) for message in messages[:limit]]
    return Page(data=views, has_more=len(messages) > limit)


@router.post("/sessions/{session}/clear", summary="Clear a conversation", responses=error_responses(404))
async def clear_session(place: PlaceDep) -> ClearSessionResponse:
    """Delete the messages of one of the caller's own conversations, and keep the conversation."""
    return ClearSessionResponse(deleted=await place.memory.clear_session(place.session_id))


@router.post(
    "/sessions/{session}/clone", status_code=201, summary="Copy a conversation", responses=error_responses(404, 409)
)
async def clone_session(
    place: PlaceDep, context: ContextDep, clone: Annotated[CloneSessionRequest | None, Body()] = None
) -> SessionView:
    """A new conversation of the caller's own with the same messages; also of one that another shares."""
    if context.user_id is None:
        raise InvalidInputError("A copy needs an owner: say who you are with X-User-Id.")
    clone = clone or CloneSessionRequest()
    return _view(await place.memory.clone_session(place.session_id, name=clone.name, up_to=clone.up_to))


@router.get("/sessions/{session}/share", summary="Who may read a conversation?", responses=error_responses(404))
async def list_shares(place: PlaceDep, window: WindowDep) -> Page[ShareView]:
    """With whom one of the caller's own conversations is shared."""
    session = await place.own()
    shares = await place.memory.store.find(
        SharedSession,
        {"session_id": session.id, "user_id": session.user_id},
        limit=window.fetch_limit,
        offset=window.offset,
    )
    return Page[ShareView].model_validate(window.slice_page([ShareView.model_validate(share) for share in shares]))


@router.post("/sessions/{session}/share", summary="Share a conversation", responses=error_responses(404, 409))
async def share_session(place: PlaceDep, share: ShareSessionRequest) -> ShareView:
    """Let another person of the workspace read one of the caller's own conversations, and nothing else."""
    receiver = Scope.for_user(share.user.strip()).user_id or ""
    return ShareView.model_validate(await place.memory.share_session(place.session_id, receiver))


@router.delete(
    "/sessions/{session}/share/{user}",
    status_code=204,
    summary="Stop sharing a conversation",
    responses=error_responses(404),
)
async def unshare_session(
    place: PlaceDep, user: Annotated[Text, Path(description="An e-mail address or an id.", min_length=1)]
) -> None:
    """Take back the permission to read one of the caller's own conversations."""
    if not await place.memory.unshare_session(place.session_id, user):
        raise NotFoundError(f"The session {place.session_id} is not shared with {resolve_user_id(user)}.")


async def _titled(memory: MemoryManager, sessions: list[Session]) -> list[SessionView]:
    titles = await memory.get_titles([session.id for session in sessions])
    return [_view(session).model_copy(update={"title": titles.get(session.id)}) for session in sessions]


def _view(session: Session) -> SessionView:
    return SessionView.model_validate(session).model_copy(update={"title": session.name})
