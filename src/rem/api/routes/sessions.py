"""`/sessions`: create, read, change, clone, share and delete sessions."""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Body, Depends, Path, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from rem.api.dependencies import ContextDep, JsonBody, RemDep, ScopeDep, resolve_session
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, WindowDep
from rem.api.routes.messages import MessageView
from rem.api.row_lookup import EraseOption
from rem.audit.entry import note_row
from rem.context import Scope, resolve_user_id
from rem.errors import InvalidInputError, NotFoundError
from rem.forget.expiry import expire
from rem.models import Session, SharedSession
from rem.models.field_types import UtcDateTime, check_text
from rem.models.session import MAX_PROMPT_CHARS, SessionName
from rem.sessions.card_answers import CardAnswer, prepare_card_answer
from rem.sessions.export_import import export_sessions
from rem.sessions.manager import MemoryManager

router = APIRouter(tags=["sessions"], dependencies=[JsonBody])

EXPORT_TYPE = "application/x-ndjson"
StorableText = Annotated[str, AfterValidator(check_text)]
StorableSessionName = Annotated[SessionName, AfterValidator(check_text)]
SystemPrompt = Annotated[str, Field(max_length=MAX_PROMPT_CHARS), AfterValidator(check_text)]


class SessionView(BaseModel):
    """One session."""

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
                "system_prompt": None,
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
    title: str | None = Field(default=None, description="The name, or the beginning of the first message.")
    user_id: str | None = Field(description="The owner.")
    mode: str
    description: str | None
    agent_schema: str | None
    system_prompt: str | None = Field(description="Instructions for every turn of the session.")
    message_count: int
    total_tokens: int
    metadata: dict[str, Any]
    tags: list[str]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = Field(default=None, description="The time when the session and its messages expire.")


class CreateSessionRequest(BaseModel):
    """The fields of a new session."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "Planning the launch"}})

    id: UUID | None = Field(default=None, description="An id that the client chooses.")
    name: StorableSessionName | None = None
    description: StorableText | None = None
    agent: StorableText | None = Field(default=None, description="The agent of the session.")
    mode: StorableText = "normal"
    system_prompt: SystemPrompt | None = Field(default=None, description="Instructions for every turn of the session.")
    metadata: dict[str, Any] = Field(default_factory=dict)


class UpdateSessionRequest(BaseModel):
    """A new name, system prompt or expiry. Fields that are left out stay unchanged."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "The launch"}, "minProperties": 1})

    name: StorableSessionName | None = Field(default=None, description="The new name; null removes it.")
    system_prompt: SystemPrompt | None = Field(
        default=None, description="Instructions for every further turn of the session; null removes them."
    )
    expires_at: UtcDateTime | None = Field(
        default=None,
        description="The time when the session expires with all its messages, also later ones; null: never.",
    )

    @field_validator("expires_at", mode="before")
    @classmethod
    def _require_date_format(cls, value: object) -> object:
        """Refuse numbers, which pydantic would read as seconds since 1970."""
        if value is not None and not (isinstance(value, str) and "-" in value[1:]):
            raise ValueError("must be a date and time such as 2030-01-31T12:00:00Z, or null")
        return value


class CloneSessionRequest(BaseModel):
    """Options for copying a session."""

    model_config = ConfigDict(extra="forbid")

    name: StorableSessionName | None = Field(default=None, description="The name of the copy.")
    up_to: int | None = Field(
        default=None, ge=0, lt=2**31, strict=True, description="The index of the last message to copy."
    )


class ClearSessionRequest(BaseModel):
    """Which messages to delete."""

    model_config = ConfigDict(extra="forbid")

    from_index: int = Field(
        default=0, ge=0, lt=2**31, strict=True, description="The index of the first message to delete; default: all."
    )


class ShareSessionRequest(BaseModel):
    """The user to share a session with."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"user": "bob@example.com"}})

    user: Annotated[StorableText, Field(min_length=1, max_length=320)] = Field(
        description="An e-mail address or an id."
    )


class ShareView(BaseModel):
    """A permission to read a session."""

    model_config = ConfigDict(from_attributes=True)

    session_id: UUID
    owner_user_id: str
    shared_with_user_id: str
    created_at: datetime


class StartOverResponse(BaseModel):
    """The number of messages that agents are no longer given."""

    left_out: int


class ClearSessionResponse(BaseModel):
    """The number of deleted messages."""

    deleted: int


class _SessionTarget:
    """The session that the path names, and the memory of the caller."""

    def __init__(self, memory: MemoryManager, session_id: UUID) -> None:
        self.memory = memory
        self.session_id = session_id

    async def require_own(self) -> Session:
        """Return the session. Raise NotFoundError if the caller may read it, but is not its owner."""
        session = await self.memory.get_session(self.session_id)
        if session.user_id != self.memory.scope.user_id:
            raise NotFoundError(f"There is no session {self.session_id} of this user.")
        return session


async def _get_session_target(
    rem: RemDep,
    context: ContextDep,
    session: Annotated[str, Path(description="The session's id or name.", min_length=1)],
) -> _SessionTarget:
    context = await resolve_session(rem, context, session)
    note_row("sessions", UUID(context.session_id))
    return _SessionTarget(rem.for_user(context.scope).sessions, UUID(context.session_id))


async def _get_memory(rem: RemDep, scope: ScopeDep) -> MemoryManager:
    return rem.for_user(scope).sessions


SessionDep = Annotated[_SessionTarget, Depends(_get_session_target)]
MemoryDep = Annotated[MemoryManager, Depends(_get_memory)]


@router.get("/sessions", summary="List sessions")
async def list_sessions(
    memory: MemoryDep,
    window: WindowDep,
    q: Annotated[
        StorableText | None,
        Query(max_length=1000, description="Only sessions with this in their name, or with messages that fit it."),
    ] = None,
) -> Page[SessionView]:
    """List the caller's sessions, most recently used first."""
    text = (q or "").strip()
    window_of = (window.fetch_limit, window.offset)
    sessions = await (memory.find_sessions(text, *window_of) if text else memory.list_sessions(*window_of))
    page = window.slice_page(sessions)
    return Page(data=await _to_titled_views(memory, page["data"]), has_more=page["has_more"])


@router.post("/sessions", status_code=201, summary="Create a session", responses=error_responses(409))
async def create_session(
    rem: RemDep, context: ContextDep, response: Response, create: Annotated[CreateSessionRequest | None, Body()] = None
) -> SessionView:
    """Create a session. `POST /chat/completions` also creates one for a new X-Session-Id."""
    create = create or CreateSessionRequest()
    context = context.in_session(str(create.id or uuid4()))
    session = await rem.for_user(context.scope).sessions.create_session(
        create.system_prompt,
        create.metadata,
        session_id=UUID(context.session_id),
        name=create.name,
        agent=create.agent,
        description=create.description,
        mode=create.mode,
    )
    response.headers["X-Session-Id"] = str(session.id)
    return _to_view(session)


@router.get("/shared-with-me", summary="List shared sessions")
async def shared_with_me(memory: MemoryDep, window: WindowDep) -> Page[SessionView]:
    """List the sessions that other users share with the caller."""
    page = window.slice_page(await memory.list_shared_sessions(window.fetch_limit, window.offset))
    return Page(data=await _to_titled_views(memory, page["data"]), has_more=page["has_more"])


@router.get("/sessions/{session}", summary="Get a session", responses=error_responses(404))
async def get_session(target: SessionDep) -> SessionView:
    """Return one of the caller's own sessions, or one that is shared with the caller."""
    (view,) = await _to_titled_views(target.memory, [await target.memory.get_session(target.session_id)])
    return view


@router.patch("/sessions/{session}", summary="Change a session", responses=error_responses(404, 409))
async def change_session(target: SessionDep, change: UpdateSessionRequest) -> SessionView:
    """Rename one of the caller's own sessions, or set its system prompt or its expiry."""
    if not change.model_fields_set:
        raise InvalidInputError("Nothing to change: give name, system_prompt or expires_at.")
    async with target.memory.store.transaction() as store:
        memory = target.memory.with_store(store)
        session = await _SessionTarget(memory, target.session_id).require_own()
        if "name" in change.model_fields_set:
            session = await memory.rename_session(session.id, change.name)
        if "system_prompt" in change.model_fields_set:
            session = await memory.set_system_prompt(session.id, change.system_prompt)
        if "expires_at" in change.model_fields_set:
            await expire(store, [session], change.expires_at)
            session = session.model_copy(update={"expires_at": change.expires_at})
    return _to_view(session)


@router.delete("/sessions/{session}", status_code=204, summary="Delete a session", responses=error_responses(404))
async def delete_session(
    target: SessionDep,
    erase: EraseOption = False,
) -> None:
    """Delete one of the caller's own sessions with its messages. It can be restored, unless it is erased."""
    await target.memory.delete_session(target.session_id, erase=erase)


@router.post("/sessions/{session}/restore", summary="Restore a session", responses=error_responses(404, 409))
async def restore_session(target: SessionDep) -> SessionView:
    """Restore a deleted session with its messages."""
    return _to_view(await target.memory.restore_session(target.session_id))


@router.get("/sessions/{session}/messages", summary="Read a session", responses=error_responses(404))
async def list_session_messages(
    target: SessionDep,
    limit: Annotated[int, Query(ge=1, le=500, description="The maximum number of messages.")] = 100,
    after: Annotated[
        int, Query(ge=-1, lt=2**31, description="The index of the last message that the client has.")
    ] = -1,
    before: Annotated[
        int | None,
        Query(ge=0, lt=2**31, description="Return the last messages before this index, instead of the next ones."),
    ] = None,
) -> Page[MessageView]:
    """Return the messages of a session that the caller may read, in order and word for word.

    A page has fewer messages, but at least one, if they have more than 64 MiB together: `has_more` says so.
    """
    page = await target.memory.get_message_page(target.session_id, after=after, before=before, limit=limit)
    return Page(data=[MessageView.model_validate(message) for message in page.messages], has_more=page.has_more)


@router.get(
    "/sessions/{session}/export",
    summary="Export a session",
    response_class=Response,
    responses={200: {"content": {EXPORT_TYPE: {}}}, **error_responses(404)},
)
async def export_session(target: SessionDep) -> Response:
    """Return a session that the caller may read as one line of JSON, for `rem sessions import`."""
    stream = BytesIO()
    await export_sessions(target.memory, stream, [target.session_id])
    headers = {"Content-Disposition": f'attachment; filename="session-{target.session_id}.jsonl"'}
    return Response(stream.getvalue(), media_type=EXPORT_TYPE, headers=headers)


@router.post(
    "/sessions/{session}/actions",
    status_code=201,
    summary="Answer a card",
    responses=error_responses(404, 409),
)
async def submit_action(target: SessionDep, answer: CardAnswer) -> MessageView:
    """Check the answer to a card of the session, and store it as a message of the user.

    The agent reads it in its next turn. `POST /chat/completions` with `action_submit` lets it answer at once.
    """
    message = await prepare_card_answer(target.memory, target.session_id, answer)
    stored = await target.memory.save_message(target.session_id, message, create_session=False)
    (row,) = await target.memory.get_messages(target.session_id, after=stored.message_index - 1, limit=1)
    return MessageView.model_validate(row)


@router.post("/sessions/{session}/clear", summary="Clear a session", responses=error_responses(404))
async def clear_session(
    target: SessionDep, clear: Annotated[ClearSessionRequest | None, Body()] = None
) -> ClearSessionResponse:
    """Delete the messages of one of the caller's own sessions, all or from one on, and keep the session."""
    from_index = clear.from_index if clear else 0
    return ClearSessionResponse(deleted=await target.memory.clear_session(target.session_id, from_index=from_index))


@router.post("/sessions/{session}/start-over", summary="Start over in a session", responses=error_responses(404))
async def start_over(target: SessionDep) -> StartOverResponse:
    """Leave the messages so far out of what agents are given. They stay in the session, and a search finds them."""
    return StartOverResponse(left_out=await target.memory.start_over(target.session_id))


@router.post(
    "/sessions/{session}/clone", status_code=201, summary="Copy a session", responses=error_responses(404, 409)
)
async def clone_session(
    target: SessionDep, context: ContextDep, clone: Annotated[CloneSessionRequest | None, Body()] = None
) -> SessionView:
    """Create a session of the caller with the same messages, also from a session that another user shares."""
    if context.user_id is None:
        raise InvalidInputError("A copy needs an owner: identify yourself with X-User-Id.")
    clone = clone or CloneSessionRequest()
    return _to_view(await target.memory.clone_session(target.session_id, name=clone.name, up_to=clone.up_to))


@router.get("/sessions/{session}/share", summary="List the readers of a session", responses=error_responses(404))
async def list_shares(target: SessionDep, window: WindowDep) -> Page[ShareView]:
    """List the users with whom one of the caller's own sessions is shared."""
    session = await target.require_own()
    shares = await target.memory.store.find(
        SharedSession,
        {"session_id": session.id, "user_id": session.user_id},
        limit=window.fetch_limit,
        offset=window.offset,
    )
    return Page[ShareView].model_validate(window.slice_page([ShareView.model_validate(share) for share in shares]))


@router.post("/sessions/{session}/share", summary="Share a session", responses=error_responses(404, 409))
async def share_session(target: SessionDep, share: ShareSessionRequest) -> ShareView:
    """Allow another user of the workspace to read one of the caller's own sessions."""
    receiver = Scope.for_user(share.user.strip()).user_id or ""
    return ShareView.model_validate(await target.memory.share_session(target.session_id, receiver))


@router.delete(
    "/sessions/{session}/share/{user}",
    status_code=204,
    summary="Stop sharing a session",
    responses=error_responses(404),
)
async def unshare_session(
    target: SessionDep, user: Annotated[StorableText, Path(description="An e-mail address or an id.", min_length=1)]
) -> None:
    """Remove the permission to read one of the caller's own sessions."""
    if not await target.memory.unshare_session(target.session_id, user):
        raise NotFoundError(f"The session {target.session_id} is not shared with {resolve_user_id(user)}.")


async def _to_titled_views(memory: MemoryManager, sessions: list[Session]) -> list[SessionView]:
    titles = await memory.get_titles([session.id for session in sessions])
    return [_to_view(session).model_copy(update={"title": titles.get(session.id)}) for session in sessions]


def _to_view(session: Session) -> SessionView:
    return SessionView.model_validate(session).model_copy(update={"title": session.name})
