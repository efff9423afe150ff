"""`/moments`: events, by time."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator

from rem.api.dependencies import RemDep, ScopeDep
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, WindowDep
from rem.api.row_lookup import find_row
from rem.db.conditions import And, Compare, Condition, IsNull, Or
from rem.models import Moment
from rem.models.field_types import UtcDateTime

router = APIRouter(prefix="/moments", tags=["moments"])


def _require_date_format(value: object) -> object:
    """Refuse numbers, which pydantic would read as seconds since 1970."""
    if isinstance(value, str) and not re.match(r"\d{4}-\d\d-\d\d", value):
        raise ValueError("must be a time such as 2026-05-01 or 2026-05-01T12:00:00Z")
    return value


Time = Annotated[UtcDateTime, BeforeValidator(_require_date_format)]


@router.get("", summary="List moments")
async def list_moments(
    rem: RemDep,
    scope: ScopeDep,
    window: WindowDep,
    since: Annotated[Time | None, Query(description="Only moments that ended at this time or later.")] = None,
    until: Annotated[Time | None, Query(description="Only moments that began before this time.")] = None,
    category: Annotated[str | None, Query(description="Only of this category.")] = None,
    moment_type: Annotated[str | None, Query(description="Only of this type.")] = None,
) -> Page[Moment]:
    """List the moments that the caller may see, newest first; moments without a time come last."""
    conditions: list[Condition] = []
    if since is not None:
        without_end = And([IsNull("ends_timestamp"), Compare("starts_timestamp", ">=", since)])
        conditions.append(Or([Compare("ends_timestamp", ">=", since), without_end]))
    if until is not None:
        conditions.append(Compare("starts_timestamp", "<", until))
    filters = {"category": category, "moment_type": moment_type}
    conditions += [Compare(field, "=", value) for field, value in filters.items() if value is not None]
    moments = await rem.for_user(scope).store.find(
        Moment,
        And(conditions),
        order_by="-starts_timestamp, -created_at",
        limit=window.fetch_limit,
        offset=window.offset,
    )
    return Page[Moment].model_construct(**window.slice_page(moments))


@router.get("/{key:path}", summary="Get a moment", responses=error_responses(404))
async def get_moment(
    rem: RemDep, scope: ScopeDep, key: Annotated[str, Path(description="The moment's key or id.")]
) -> Moment:
    """Return one moment by its key or id."""
    return await find_row(rem.for_user(scope).store, Moment, key)
