"""Neighbours: which other memories are nearest in meaning to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rem.db.sql import fill, query
from rem.dreaming.claims import ClaimSource, RowRef
from rem.retrieval.searchable_rows import visible_owners

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

TYPES = ("resources", "moments", "ontologies")
_READ_OF_TEXT = 3000
_PASSAGES_OF_SUBJECT = 3
_LOOKED_AT = 24
_SAMPLE = 500
_FEW = 20
_FEW_ENOUGH = 20_000
"""Passages: so many are all looked at, as SEARCH does it."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A memory as it is compared."""

    ref: RowRef
    key: str
    text: str
    digest: str
    belongs_to: frozenset[str]
    """Files, addresses, conversations and texts that it comes from."""
    is_part: bool
    """Whether it is a part of a file."""

    @property
    def source(self) -> ClaimSource:
        """The memory as where a claim comes from."""
        return ClaimSource(self.ref, self.key)

    def belongs_with(self, other: ComparedRow) -> bool:
        """Whether both come from the same place, so that their likeness tells nothing."""
        return bool(self.belongs_to & other.belongs_to)


class Neighbours:
    """What one scope sees, by meaning."""

    def __init__(self, night: DreamRun, model: int, dimension: int, has_few: bool, middle: str) -> None:
        self._night = night
        self._model = model
        self._dimension = dimension
        self._has_few = has_few
        self._middle = middle

    @classmethod
    async def load(cls, night: DreamRun, few_enough: int = _FEW_ENOUGH) -> Neighbours | None:
        """Those of a night's owner; None if nothing was ever embedded. With more passages an index finds them."""
        owner = night.scope.tenant_id, visible_owners(night.scope), list(TYPES)
        async with night.store.executor.connection() as connection:
            model = await connection.fetchrow(query("dream_affinity", "model"), *owner)
            if model is None:
                return None
            sample = await connection.fetch(query("dream_affinity", "middle"), *owner, model[0], _SAMPLE)
        middle, count = sample[0]
        # Of a few memories the middle tells nothing yet.
        share = count / (count + _FEW)
        vector = [float(number) * share for number in middle[1:-1].split(",")] if count else [0.0] * model[1]
        return cls(night, model[0], model[1], model[2] <= few_enough, str(vector))

    async def find_nearest(
        self, subject: ComparedRow, least: float, least_distinct: float
    ) -> list[tuple[ComparedRow, float]]:
        """The memories that are at least so near to one, also without what all have in common, and come from elsewhere;
        the nearest first."""
        rows = [
            row
            for row in await self._nearest_rows(subject.ref)
            if row["similarity"] >= least and row["distinction"] >= least_distinct
        ]
        similarity = {RowRef(row["entity_type"], row["entity_id"]): float(row["similarity"]) for row in rows}
        things = await fetch_compared_rows(self._night, list(similarity))
        near = [(thing, similarity[thing.ref]) for thing in things if not thing.belongs_with(subject)]
        return sorted(near, key=lambda pair: (-round(pair[1], 3), pair[0].ref.type, pair[0].key))

    async def _nearest_rows(self, ref: RowRef) -> list[Any]:
        scope = self._night.scope
        parameters = (scope.tenant_id, visible_owners(scope), list(TYPES), ref.id, ref.type, self._model)
        limits = (_PASSAGES_OF_SUBJECT, _LOOKED_AT, self._middle)
        nearest = query("dream_affinity", "nearest")
        if self._has_few:
            statement = fill(nearest, model="$6", cast="")
            async with self._night.store.executor.connection() as connection:
                return list(await connection.fetch(statement, *parameters, *limits))
        # The index is over vectors of one model and length, which must stand in the statement.
        statement = fill(nearest, model=str(int(self._model)), cast=f"::halfvec({int(self._dimension)})")
        async with self._night.store.transaction() as store, store.executor.connection() as connection:
            await connection.execute(query("dream_affinity", "scan_on"))
            return list(await connection.fetch(statement, *parameters, *limits))


async def fetch_compared_rows(night: DreamRun, refs: Sequence[RowRef]) -> list[ComparedRow]:
    """Memories that a night's owner sees, as they are compared."""
    if not refs:
        return []
    types, ids = sorted({ref.type for ref in refs}), [ref.id for ref in refs]
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(
            query("dream_affinity", "things"), night.scope.tenant_id, night.scope.user_id, types, ids, _READ_OF_TEXT
        )
    wanted = set(refs)
    things = [_to_compared_row(row) for row in rows]
    return [thing for thing in things if thing.ref in wanted]


def _to_compared_row(row: Any) -> ComparedRow:
    ref = RowRef(row["type"], row["id"])
    return ComparedRow(ref, row["key"], row["text"], row["digest"], frozenset(row["belongs_to"]), row["is_part"])
