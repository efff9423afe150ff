"""Rows that a path names, by key or by id."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from rem.context import parse_uuid
from rem.db.store import Store
from rem.errors import ConflictError, NotFoundError
from rem.models import Entity

T = TypeVar("T", bound=Entity)


async def find_row(store: Store, model: type[T], name: str) -> T:
    """The row with this id or key; the user's own before a shared one."""
    entity_id = parse_uuid(name)
    if entity_id is not None:
        try:
            return await store.get(model, entity_id)
        except NotFoundError:
            # What looks like an id may be a key all the same.
            pass
    table = model.entity_type.table
    for row in await store.lookup(name, table=table):
        if isinstance(row, model):
            return row
    raise NotFoundError(f"{table} has no {name!r}.")


async def find_own_row(store: Store, model: type[T], name: str) -> T:
    """The row with this id or key, which the scope may also change."""
    row = await find_row(store, model, name)
    if row.user_id != store.scope.user_id:
        raise ConflictError(
            f"{row.key or row.id} is shared in the workspace and not yours: you can read it, and store one of your own."
        )
    return row


async def find_deleted_row(store: Store, model: type[T], name: str) -> T:
    """The scope's own deleted row with this id or key, the last if several were deleted."""
    entity_id = parse_uuid(name)
    where: dict[str, UUID | str] = {"id": entity_id} if entity_id else {"key": await store.normalize_key(name)}
    rows = await store.find(model, where, order_by="-deleted_at", with_deleted=True)
    gone = [row for row in rows if row.deleted_at is not None and row.user_id == store.scope.user_id]
    if not gone:
        raise NotFoundError(f"{model.entity_type.table} has no deleted {name!r}.")
    return max(gone, key=lambda row: row.deleted_at or row.updated_at)
