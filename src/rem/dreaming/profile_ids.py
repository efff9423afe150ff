"""Ids of the row and the progress of a user's profile, which are the same in every run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, UUID, uuid5

if TYPE_CHECKING:
    from rem.context import Scope


def make_profile_row_id(scope: Scope) -> UUID:
    """Return the id for the row of a user who has none."""
    return _make_id(scope, "profile")


def make_progress_id(scope: Scope) -> UUID:
    """Return the id under which the progress of a profile is stored, with or without a row."""
    return _make_id(scope, "progress")


def _make_id(scope: Scope, purpose: str) -> UUID:
    return uuid5(NAMESPACE_URL, "\n".join(("rem", purpose, scope.tenant_id, scope.user_id or "")))
