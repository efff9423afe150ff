"""NearDuplicates: whether a moment would say what another one says already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query
from rem.embeddings import is_blank
from rem.retrieval.indexer import vector_to_text
from rem.text import compute_word_cosine, split_words

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun
    from rem.embeddings import Vector

MAX_COSINE = 0.94
"""As cosine. No two moments of an owner may be above 0.95: vectors are stored rounded."""
_TOO_ALIKE_BY_WORDS = 0.9
_NEARLY = 0.88
"""What is so near may be too alike with its name."""
_NEAR = 0.6
"""What is so near to one with a name in its vector may be too alike without."""
_LOOKED_AT = 8
_LATEST = 2000


@dataclass(frozen=True, slots=True)
class _ComparedMoment:
    """A moment as it is compared: by its summary."""

    id: UUID
    name: str
    summary: str
    words: Counter[str]
    vector: Vector | None = None

    @property
    def with_name(self) -> str:
        """As whoever reads the moment sees it."""
        return f"{self.name}\n{self.summary}"


class NearDuplicates:
    """The moments of an owner, those of this night included, to be compared by meaning; by words if nothing embeds."""

    def __init__(self, night: DreamRun) -> None:
        self._night = night
        self._tonight = _NewMoments()
        self._latest: dict[UUID, _ComparedMoment] | None = None
        self._last: _ComparedMoment | None = None

    async def find(self, name: str, summary: str, without: Collection[UUID] = ()) -> UUID | None:
        """The moment that a summary repeats most closely, if it repeats one; of those that are stored, not one of those
        to leave out."""
        same = await self._in_same_words(summary, without)
        if same is not None:
            return same
        told = await self._told(UUID(int=0), name, summary)
        if told.vector is None:
            others = [*self._tonight.all, *await self._by_words(without)]
            return _nearest([(compute_word_cosine(told.words, one.words), one) for one in others], _TOO_ALIKE_BY_WORDS)
        found = [*self._tonight.nearest(told.vector), *await self._stored(told.vector, without)]
        return _nearest(found, MAX_COSINE) or _nearest(
            await self._with_names(told, [other for alike, other in found if alike > _NEARLY]), MAX_COSINE
        )

    async def add(self, moment_id: UUID, name: str, summary: str) -> None:
        """Remember a moment that was said tonight."""
        self._tonight.put(await self._told(moment_id, name, summary))

    def forget(self, moment_id: UUID) -> None:
        """Leave out a moment that is no more, or is about to be said anew."""
        self._tonight.drop(moment_id)
        if self._latest is not None:
            self._latest.pop(moment_id, None)

    async def are_alike(self, one: str, other: str) -> bool:
        """Whether two summaries say the same."""
        if one == other:
            return True
        vectors = await self._night.embed([one, other]) if not (is_blank(one) or is_blank(other)) else None
        if vectors is None:
            return compute_word_cosine(_count_words(one), _count_words(other)) > _TOO_ALIKE_BY_WORDS
        return float(vectors[0] @ vectors[1]) > MAX_COSINE

    async def _told(self, moment_id: UUID, name: str, summary: str) -> _ComparedMoment:
        if self._last is not None and (self._last.name, self._last.summary) == (name, summary):
            # Whoever looked for it adds it next.
            return replace(self._last, id=moment_id)
        vectors = await self._night.embed([summary]) if not is_blank(summary) else None
        self._last = _ComparedMoment(moment_id, name, summary, _count_words(summary), vectors[0] if vectors else None)
        return self._last

    async def _in_same_words(self, summary: str, without: Collection[UUID]) -> UUID | None:
        """A stored moment with just this summary: the vector of one with a long name may be far from it. What was said
        tonight is compared as it is by now."""
        if is_blank(summary):
            return None
        others = [*without, *self._tonight.ids]
        rows = await self._rows("same_moment", self._night.scope.user_id, summary, others)
        return rows[0]["id"] if rows else None

    async def _stored(self, vector: Vector, without: Collection[UUID]) -> list[tuple[float, _ComparedMoment]]:
        """The nearest moments that are stored, with how alike they are."""
        user_id = self._night.scope.user_id
        rows = await self._rows(
            "nearest_moments", user_id, user_id or "", vector_to_text(vector), list(without), len(vector), _LOOKED_AT
        )
        found = [(row["alike"], _stored_one(row)) for row in rows if row["is_exact"]]
        others = [_stored_one(row) for row in rows if not row["is_exact"] and row["alike"] > _NEAR]
        vectors = await self._night.embed([one.summary for one in others]) or []
        return found + [(float(other @ vector), one) for one, other in zip(others, vectors, strict=True)]

    async def _with_names(
        self, told: _ComparedMoment, others: Collection[_ComparedMoment]
    ) -> list[tuple[float, _ComparedMoment]]:
        """How alike some moments are to one, their names included."""
        vectors = await self._night.embed([one.with_name for one in (told, *others)]) if others else None
        if not vectors:
            return []
        return [(float(vectors[0] @ vector), one) for vector, one in zip(vectors[1:], others, strict=True)]

    async def _by_words(self, without: Collection[UUID]) -> list[_ComparedMoment]:
        if self._latest is None:
            rows = await self._rows("latest_moments", self._night.scope.user_id, _LATEST)
            self._latest = {row["id"]: _stored_one(row) for row in rows}
        tonight = self._tonight.ids
        return [told for told in self._latest.values() if told.id not in without and told.id not in tonight]

    async def _rows(self, name: str, *parameters: Any) -> list[Any]:
        async with self._night.store.executor.connection() as connection:
            statement = query("dream_moments", name)
            return list(await connection.fetch(statement, self._night.scope.tenant_id, *parameters))


class _NewMoments:
    """Moments that no index knows yet. On a first night they are many, so that they lie in one table of numbers."""

    def __init__(self) -> None:
        self._place_of: dict[UUID, int] = {}
        self._told: list[_ComparedMoment | None] = []
        self._vectors: Any = None

    @property
    def ids(self) -> Collection[UUID]:
        """Which they are."""
        return self._place_of.keys()

    @property
    def all(self) -> list[_ComparedMoment]:
        """All of them."""
        return [told for told in self._told if told is not None]

    def put(self, told: _ComparedMoment) -> None:
        """Add one, in place of what was said of it before."""
        self.drop(told.id)
        place = self._place_of[told.id] = len(self._told)
        self._told.append(told)
        if told.vector is not None:
            self._vectors = _append_row(self._vectors, place, told.vector)

    def drop(self, moment_id: UUID) -> None:
        """Remove one, if it is there."""
        place = self._place_of.pop(moment_id, None)
        if place is None:
            return
        self._told[place] = None
        if self._vectors is not None and place < len(self._vectors):
            self._vectors[place] = 0

    def nearest(self, vector: Vector) -> list[tuple[float, _ComparedMoment]]:
        """The ones that are most alike to a text, with how much."""
        if self._vectors is None:
            return []
        import numpy as np

        likeness = self._vectors[: len(self._told)] @ vector
        places = np.argsort(-likeness)[:_LOOKED_AT]
        return [(float(likeness[place]), told) for place in places if (told := self._told[int(place)]) is not None]


def _nearest(found: Collection[tuple[float, _ComparedMoment]], limit: float) -> UUID | None:
    alike, told = max(found, default=(0.0, None), key=lambda pair: pair[0])
    return told.id if told is not None and alike > limit else None


def _stored_one(row: Any) -> _ComparedMoment:
    return _ComparedMoment(row["id"], row["name"], row["summary"], _count_words(row["summary"]))


def _append_row(table: Any, place: int, vector: Vector) -> Any:
    """A table of vectors with one more; it grows by doubling."""
    import numpy as np

    if table is None or place >= len(table):
        larger = np.zeros((max(64, 2 * place), len(vector)), dtype=np.float32)
        if table is not None:
            larger[: len(table)] = table
        table = larger
    table[place] = vector
    return table


def _count_words(text: str) -> Counter[str]:
    return Counter(split_words(text))
