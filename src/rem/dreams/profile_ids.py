"""Ids of the row and the progress of a user's profile, which are the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, UUID, uuid5

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.store import Store


def make_profile_row_id(store: Store) -> UUID:
    """Return the id of the row that a dream makes for a user who has none.

    No other user can compute it, and take it first.
    """
    return store.executor.derived_ids.make("profile", store.scope.tenant_id, store.scope.user_id)


def make_progress_id(scope: Scope) -> UUID:
    """Return the id under which the progress of a profile is stored, with or without a row.

    No user can write progress, so the id needs no secret.
    """
    return uuid5(NAMESPACE_URL, "\n".join(("rem", "progress", scope.tenant_id, scope.user_id or "")))
