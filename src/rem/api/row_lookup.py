"""Find the row that a path names by its key or id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias, TypeVar
from uuid import UUID

from fastapi import Query

from rem.audit.entry import note_row
from rem.context import parse_uuid
from rem.db.store import Store
from rem.errors import ConflictError, NotFoundError
from rem.models import Entity

T = TypeVar("T", bound=Entity)
EraseOption: TypeAlias = Annotated[bool, Query(description="Erase it for good, even if it was deleted before.")]


async def find_row(store: Store, model: type[T], name: str) -> T:
    """Return the row whose id or key is `name`; the user's own before a shared one. Raise NotFoundError."""
    entity_id = parse_uuid(name)
    if entity_id is not None:
        try:
            row = await store.get(model, entity_id)
            note_row(model.entity_type.table, row.id)
            return row
        except NotFoundError:
            # A key may look like an id.
            pass
    table = model.entity_type.table
    for match in await store.lookup(name, table=table):
        if isinstance(match, model):
            note_row(table, match.id)
            return match
    raise NotFoundError(f"{table} has no {name!r}.")


async def find_own_row(store: Store, model: type[T], name: str) -> T:
    """Return the row whose id or key is `name`. Raise ConflictError if it is shared, because users cannot change it."""
    row = await find_row(store, model, name)
    if row.user_id != store.scope.user_id:
        raise ConflictError(
            f"{row.key or row.id} is shared in the workspace and not yours: you can read it, and store one of your own."
        )
    return row


async def delete_row(
    store: Store, model: type[T], name: str, *, erase: bool, check: Callable[[T], None] = lambda _row: None
) -> None:
    """Delete the scope's own row whose id or key is `name`; with `erase` for good, even if it was deleted before.

    `check` may refuse the row that was found, by raising an error.
    """
    async with store.transaction() as transaction:
        try:
            row = await find_own_row(transaction, model, name)
        except NotFoundError:
            if not erase:
                raise
            row = await find_deleted_row(transaction, model, name)
        check(row)
        await (transaction.erase(row) if erase else transaction.delete(row))


async def find_deleted_row(store: Store, model: type[T], name: str) -> T:
    """Return the scope's own deleted row whose id or key is `name`, the latest if several were deleted."""
    entity_id = parse_uuid(name)
    where: dict[str, UUID | str] = {"id": entity_id} if entity_id else {"key": await store.normalize_key(name)}
    rows = await store.find(model, where, order_by="-deleted_at", with_deleted=True)
    own_rows = [row for row in rows if row.deleted_at is not None and row.user_id == store.scope.user_id]
    if not own_rows:
        raise NotFoundError(f"{model.entity_type.table} has no deleted {name!r}.")
    latest = max(own_rows, key=lambda row: row.deleted_at or row.updated_at)
    note_row(model.entity_type.table, latest.id)
    return latest
