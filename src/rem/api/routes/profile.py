"""`/profile` and `/storage`: the row that stands for the caller, and how much the caller has stored."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, Field

from rem.administration import measure_storage
from rem.api.dependencies import RemDep, ScopeDep
from rem.api.routes.entities import EntityView, to_view
from rem.dreams.profiles.user_row import find_user_rows
from rem.models import User

router = APIRouter(tags=["entities"])


class Profile(BaseModel):
    """What REM knows about the caller as a person."""

    row: EntityView | None = Field(description="The row of `users` for the caller; null if there is none yet.")
    is_dreamt: bool = Field(description="A dream made the row.")


class TableStorage(BaseModel):
    """The caller's own rows of one table."""

    live: int
    deleted: int = Field(description="Rows that can be restored.")
    bytes: int


class Storage(BaseModel):
    """How much the caller has stored."""

    tables: dict[str, TableStorage]


@router.get("/profile", summary="Get the caller's profile")
async def get_profile(rem: RemDep, scope: ScopeDep) -> Profile:
    """Return the row that stands for the caller. Correct it with `PATCH /entities/users/{id}`: dreams keep that."""
    store = rem.for_user(scope).store
    rows = [row for row in await find_user_rows(store) if not row.is_deleted]
    if not rows:
        return Profile(row=None, is_dreamt=False)
    return Profile(row=to_view(await store.get(User, rows[0].id)), is_dreamt=rows[0].is_dreamt)


@router.get("/storage", summary="Measure the caller's memory")
async def get_storage(rem: RemDep, scope: ScopeDep) -> Storage:
    """Count the caller's own rows and their bytes, by table, without the search index."""
    tables = await measure_storage(rem.database, scope)
    return Storage(tables={name: TableStorage(**asdict(counts)) for name, counts in tables.items()})
