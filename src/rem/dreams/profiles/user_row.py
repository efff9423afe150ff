"""Find the row of `users` that stands for the memory's owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.context import resolve_user_id
from rem.db.sql import query
from rem.dreams.profile_ids import make_profile_row_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rem.db.store import Store


@dataclass(frozen=True, slots=True)
class UserRow:
    """A row of `users` that stands for its owner."""

    id: UUID
    origin: str
    is_deleted: bool

    @property
    def is_dreamt(self) -> bool:
        """Return whether a dream made it, because the owner had none."""
        return self.origin.startswith("dream:")


async def find_user_rows(store: Store) -> list[UserRow]:
    """Return the rows that stand for the store's user, the best one first.

    The user id is derived from the e-mail address. A row stands for the user if its address gives this id, if its name
    is the id, or if a dream made it for this user. Rows that users wrote come before dreamt rows, and deleted rows come
    last.
    """
    tenant_id, user_id = store.scope.tenant_id, store.scope.user_id
    if user_id is None:
        return []
    async with store.executor.connection() as connection:
        profile_id = make_profile_row_id(store)
        rows = await connection.fetch(query("dreams/profiles/profiles", "user_rows"), tenant_id, user_id, profile_id)
    own = [row for row in rows if row["is_named"] or _has_address(row, user_id)]
    own.sort(key=lambda row: (row["is_deleted"], row["origin"].startswith("dream:"), not _has_address(row, user_id)))
    return [UserRow(row["id"], row["origin"], row["is_deleted"]) for row in own]


async def load_user_record(store: Store, row_id: UUID) -> dict[str, Any] | None:
    """Return a row of the user as it is stored; None if it is deleted."""
    scope = store.scope
    async with store.executor.connection() as connection:
        record: dict[str, Any] | None = await connection.fetchval(
            query("dreams/profiles/profiles", "user_record"), scope.tenant_id, scope.user_id, row_id
        )
    return record


def _has_address(row: Any, user_id: str) -> bool:
    addresses: Sequence[str | None] = (row["email"], row["name"])
    return any(address and "@" in address and resolve_user_id(address) == user_id for address in addresses)
