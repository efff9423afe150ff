"""Claims: what a dream wants to say, before the ledger has decided what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from rem.models import Edge, Entity


@dataclass(frozen=True, slots=True, order=True)
class RowRef:
    """A stored row."""

    type: str
    """Its table."""
    id: UUID


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """A row that a claim was made from."""

    ref: RowRef
    key: str
    """What LOOKUP finds it by, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowClaim:
    """That there is a row, such as a moment. The fields that are set on the entity are the claim.

    A claim that was made before from mostly the same sources keeps its row's id and name, however it is worded now.
    """

    entity: Entity
    sources: tuple[ClaimSource, ...]
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    is_named: bool = False
    """Whether its name is what it is (a person, a project): claims from several subjects speak for one row together.
    Otherwise its sources are: a moment that is worded anew is still the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeClaim:
    """That an edge leads from a row to a readable key. `edge.origin` is set by the ledger."""

    src: RowRef
    edge: Edge
    sources: tuple[ClaimSource, ...]
    confidence: float = 1.0
    valid_from: datetime | None = None
    is_exclusive: bool = False
    """Whether a row has one such edge at a time (works_at): a newer one ends the older, which stays on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldClaim:
    """What a field of a row should say. A part of the metadata (`metadata.profile.about`) is a field, too."""

    entity: RowRef
    field: str
    value: Any
    """JSON."""
    sources: tuple[ClaimSource, ...]
    confidence: float = 1.0
    valid_from: datetime | None = None


Claim: TypeAlias = RowClaim | EdgeClaim | FieldClaim


@dataclass(slots=True)
class Changes:
    """What became of claims."""

    said: int = 0
    """New, or new in what they say."""
    unchanged: int = 0
    ended: int = 0
    refused: int = 0
    """Not said, because the owner took them back before."""
    vanished: int = 0
    """Not said, because a source is gone."""
    rows: dict[str, int] = field(default_factory=dict)
    """New statements by kind."""

    def add(self, other: Changes) -> None:
        """Count what another one counted."""
        for name in ("said", "unchanged", "ended", "refused", "vanished"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.rows.items():
            self.rows[kind] = self.rows.get(kind, 0) + count


def new_row_id() -> UUID:
    """An id for a row that a dream makes."""
    return uuid4()
