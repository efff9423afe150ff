"""Versions of an entity, so that nobody overwrites a change that they have not seen."""

from __future__ import annotations

from fastapi import HTTPException

from rem.models import Entity


def revision_of(entity: Entity) -> str:
    """The ETag of an entity as it was read."""
    return f'"{entity.updated_at.isoformat()}"'


def check_revision(entity: Entity, if_match: str | None) -> None:
    """An error if the client knows another version of the entity than this."""
    if if_match is None:
        return
    known = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    if "*" not in known and revision_of(entity) not in known:
        raise stale()


def stale() -> HTTPException:
    """The error for who knows an older version."""
    return HTTPException(412, "It was changed since it was read: read it again.")
