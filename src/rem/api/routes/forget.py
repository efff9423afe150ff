"""`/forget`: show everything that is stored about a person or thing, and remove it for good."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rem.api.dependencies import JsonBody, RemDep, ScopeDep
from rem.api.openapi_errors import error_responses
from rem.audit.entry import get_current_entry
from rem.errors import ConflictError
from rem.forget.forget_plan import MAX_LABEL_CHARS
from rem.models.field_types import check_text

router = APIRouter(prefix="/forget", tags=["entities"])

EXAMPLE: dict[str, Any] = {"name": "Sarah Chen", "mentions": False}
Name = Annotated[str, AfterValidator(check_text), Field(min_length=1, max_length=MAX_LABEL_CHARS)]


class ForgetRequest(BaseModel):
    """A person, a thing or a text to forget."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": EXAMPLE})

    name: Name = Field(description="A name or a key.")
    mentions: bool = Field(default=False, strict=True, description="Also erase the messages and texts that name it.")


class ConfirmedForgetRequest(ForgetRequest):
    """A plan to forget that the caller has seen and confirms."""

    model_config = ConfigDict(json_schema_extra={"example": {**EXAMPLE, "fingerprint": "5f0c…"}})

    fingerprint: str = Field(description="The fingerprint of the preview: nothing is removed if it has changed since.")


class AffectedRowView(BaseModel):
    """A row that is erased or changed."""

    table: str
    id: UUID
    key: str
    fields: list[str] = Field(description="The fields that name it.")
    excerpt: str
    along: int = Field(description="The number of rows that are erased with it, such as the messages of a session.")
    stays: bool = Field(description="The row stays, without its words about it.")


class AffectedStatementView(BaseModel):
    """A statement of a dream that is retracted."""

    id: UUID
    says: str
    state: str


class ForgetPreview(BaseModel):
    """Everything that is stored about a person or thing."""

    fingerprint: str = Field(description="Send it back to remove exactly this.")
    is_empty: bool = Field(description="There is nothing to forget.")
    erased_count: int = Field(description="The number of rows that are erased, with those that go with others.")
    names: list[str]
    with_mentions: bool
    rows: list[AffectedRowView] = Field(description="Rows with the name. They are erased.")
    facts: list[AffectedRowView] = Field(
        description="Rows with an edge or a list item that names it. These are removed."
    )
    statements: list[AffectedStatementView]
    mentions: list[AffectedRowView] = Field(description="Texts that name it. They are erased only with `mentions`.")
    summaries: list[UUID] = Field(description="Sessions whose summary names it.")
    shared: list[str] = Field(description="Rows of the workspace with this name. They stay.")
    files: list[str] = Field(description="Files whose text is erased. The files themselves stay where they are.")


class ForgetResult(BaseModel):
    """What was removed."""

    erased: dict[str, int] = Field(description="The number of erased rows by table.")
    changed: int
    statements: int
    refused: list[str] = Field(description="Keys that dreams do not use again.")
    kept_mentions: int = Field(description="The number of texts that still name it.")
    left: list[str] = Field(description="What a second search still finds; empty after a complete removal.")
    is_gone: bool


@router.post("/preview", summary="Show what would be forgotten", dependencies=[JsonBody])
async def preview_forget(request: ForgetRequest, rem: RemDep, scope: ScopeDep) -> ForgetPreview:
    """List everything of the caller about a person or thing that `POST /forget` would remove. Change nothing."""
    plan = await rem.for_user(scope).plan_forget(request.name, mentions=request.mentions)
    values = {"fingerprint": plan.fingerprint, "is_empty": plan.is_empty, "erased_count": plan.erased_count}
    return ForgetPreview.model_validate({**plan.as_json(), **values})


@router.post("", summary="Forget everything about it", responses=error_responses(409), dependencies=[JsonBody])
async def forget(request: ConfirmedForgetRequest, rem: RemDep, scope: ScopeDep) -> ForgetResult:
    """Remove for good what a preview listed, all or nothing. If that has changed since, the answer is 409."""
    plan = await rem.for_user(scope).plan_forget(request.name, mentions=request.mentions)
    if plan.fingerprint != request.fingerprint:
        raise ConflictError(
            f"What is stored about {request.name} has changed since it was shown. Nothing was removed: look again."
        )
    entry = get_current_entry()
    if entry is not None:
        # The entry is stored with the removal, before the middleware knows the route.
        entry.operation = "POST /api/v1/forget"
    return ForgetResult.model_validate((await rem.for_user(plan.scope).forget(plan)).as_json())
