"""`/statements`: what dreams have derived, with its sources and its time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from rem.api.dependencies import RemDep, ScopeDep
from rem.api.openapi_errors import error_responses
from rem.api.routes.moments import Time
from rem.dreams.history import StatementRecord, list_statement_page

router = APIRouter(prefix="/statements", tags=["dreams"])


class StatementList(BaseModel):
    """The first of some statements: valid ones before ended ones, then the newest first."""

    data: list[StatementRecord]
    total: int = Field(description="The number of all statements.")
    hidden_links: int = Field(description="The number of links between related texts that were left out.")


@router.get("", summary="List statements", responses=error_responses(404))
async def list_statements(
    rem: RemDep,
    scope: ScopeDep,
    key: Annotated[
        str | None, Query(description="Only about the entity with this key, such as `ontologies/sarah-chen`.")
    ] = None,
    at: Annotated[Time | None, Query(description="Only those that were valid at this time.")] = None,
    with_links: Annotated[bool, Query(description="Also list the links between related texts.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000, description="The maximum number of statements.")] = 100,
) -> StatementList:
    """List what dreams have derived for the caller, also what was replaced since, each with its sources."""
    page = await list_statement_page(rem.for_user(scope).store, key, at=at, limit=limit, with_links=with_links)
    return StatementList(data=page.statements, total=page.total, hidden_links=page.hidden_links)
