"""Claims: the rows, edges and field values that a dream proposes. The ledger decides which become statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from rem.models import Edge, Entity


@dataclass(frozen=True, slots=True, order=True)
class RowRef:
    """A stored row."""

    type: str
    """Its table."""
    id: UUID


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """A row that a claim is based on."""

    ref: RowRef
    key: str
    """Key that LOOKUP finds it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowClaim:
    """A row that should exist, such as a moment. The fields that are set on the entity are the claim.

    A claim with mostly the same sources as an earlier one keeps the id and the name of its row.
    """

    entity: Entity
    sources: tuple[ClaimSource, ...]
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    is_named: bool = False
    """The name identifies the row (a person, a project): claims about several subjects then share one row.
    Otherwise the sources identify it: a moment with a new summary is still the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeClaim:
    """An edge that should lead from a row to a key. The ledger sets `edge.origin`."""

    src: RowRef
    edge: Edge
    sources: tuple[ClaimSource, ...]
    confidence: float = 1.0
    valid_from: datetime | None = None
    is_exclusive: bool = False
    """A row has one such edge at a time (works_at): a newer one ends the older, which stays on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldClaim:
    """The value that a field of a row should have. A part of the metadata is a field, too: `metadata.profile.about`."""

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
    """Number of statements that claims led to."""

    said: int = 0
    """New statements, and statements with a new value."""
    unchanged: int = 0
    ended: int = 0
    refused: int = 0
    """Claims that were not stored, because the owner deleted or changed the same statement before."""
    vanished: int = 0
    """Claims that were not stored, because a source was deleted."""
    rows: dict[str, int] = field(default_factory=dict)
    """New statements by kind."""

    def add(self, other: Changes) -> None:
        """Add the counts of `other` to these."""
        for name in ("said", "unchanged", "ended", "refused", "vanished"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.rows.items():
            self.rows[kind] = self.rows.get(kind, 0) + count
