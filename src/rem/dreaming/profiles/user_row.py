"""UserRow: which of the people that an owner knows is the owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from rem.context import resolve_user_id
from rem.db.sql import query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rem.db.store import Store


@dataclass(frozen=True, slots=True)
class UserRow:
    """A row of an owner in `users` that stands for the owner."""

    id: UUID
    origin: str
    is_deleted: bool

    @property
    def is_dreamt(self) -> bool:
        """Whether a dream made it, because the owner had none."""
        return self.origin.startswith("dream:")


async def find_user_rows(store: Store) -> list[UserRow]:
    """The rows of a user that stand for that user, the one that counts first.

    The id of a user is made from the e-mail address, which nothing tells; so it is a row whose address gives the id,
    else one that is called like the id. What users wrote themselves comes before what was dreamt.
    """
    tenant_id, user_id = store.scope.tenant_id, store.scope.user_id
    if user_id is None:
        return []
    async with store.executor.connection() as connection:
        rows = await connection.fetch(query("dream_profiles", "own_rows"), tenant_id, user_id)
    own = [row for row in rows if row["is_named"] or _has_address(row, user_id)]
    own.sort(key=lambda row: (row["is_deleted"], row["origin"].startswith("dream:"), not _has_address(row, user_id)))
    return [UserRow(row["id"], row["origin"], row["is_deleted"]) for row in own]


async def load_user_record(store: Store, row_id: UUID) -> dict[str, Any] | None:
    """A row of a user's own as it is stored; None if it is gone."""
    scope = store.scope
    async with store.executor.connection() as connection:
        record: dict[str, Any] | None = await connection.fetchval(
            query("dream_profiles", "record"), scope.tenant_id, scope.user_id, row_id
        )
    return record


def make_profile_row_id(store: Store) -> UUID:
    """The id of the row that is made for a user who has none: always the same."""
    return _make_id(store, "profile")


def make_progress_id(store: Store) -> UUID:
    """What the progress of an owner's profile is kept by, whether there is a row or not."""
    return _make_id(store, "progress")


def _make_id(store: Store, purpose: str) -> UUID:
    scope = store.scope
    return uuid5(NAMESPACE_URL, "\n".join(("rem", purpose, scope.tenant_id, scope.user_id or "")))


def _has_address(row: Any, user_id: str) -> bool:
    addresses: Sequence[str | None] = (row["email"], row["name"])
    return any(address and "@" in address and resolve_user_id(address) == user_id for address in addresses)
