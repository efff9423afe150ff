"""NearDuplicates: whether a moment would say what another one says already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query
from rem.dreaming.moments.episodes import cosine_of_counts
from rem.dreaming.words import all_words, content_words
from rem.embeddings import is_blank
from rem.retrieval.indexer import as_text
from rem.retrieval.passage import LONGEST_TITLE

if TYPE_CHECKING:
    from rem.dreaming.night import Night
    from rem.embeddings import Vector

TOO_ALIKE = 0.94
"""As cosine. No two moments of an owner may be above 0.95: vectors are stored rounded."""
_TOO_ALIKE_BY_WORDS = 0.9
_NEAR = 0.6
"""What is stored is compared by name and summary; only what is so near is compared by the summary alone as well."""
_VERY_NEAR, _LEAST_IN_COMMON = 0.75, 0.6
"""Of these, as cosines, what is nearer or has more content words in common. Among what people say in LoCoMo, and the
same with words exchanged, all that is too alike has; it is one in three of what is near."""
_LOOKED_AT = 8
_LATEST = 2000


@dataclass(frozen=True, slots=True)
class _Told:
    """A moment as it is compared."""

    id: UUID
    summary: str
    words: Counter[str]
    whole: Vector | None = None
    """Name and summary, as the index has them (retrieval/passage.py)."""
    alone: Vector | None = None
    """The summary, without the date in the name."""


class NearDuplicates:
    """The moments of an owner, those of this night included, to be compared by meaning; by words if nothing embeds."""

    def __init__(self, night: Night) -> None:
        self._night = night
        self._tonight = _Tonight()
        self._latest: dict[UUID, _Told] | None = None
        self._last: tuple[str, str, _Told] | None = None

    async def find(self, name: str, summary: str, without: Collection[UUID] = ()) -> UUID | None:
        """The moment that a summary repeats most closely, if it repeats one; of those that are stored, not one of those
        to leave out."""
        told = await self._told(UUID(int=0), name, summary)
        found = self._tonight.nearest(told)
        if told.whole is None:
            found += [(cosine_of_counts(told.words, other.words), other.id) for other in await self._by_words(without)]
            limit = _TOO_ALIKE_BY_WORDS
        else:
            found += await self._stored(told, without)
            limit = TOO_ALIKE
        alike, moment_id = max(found, default=(0.0, None), key=lambda pair: pair[0])
        return moment_id if alike > limit else None

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
            return cosine_of_counts(_count(one), _count(other)) > _TOO_ALIKE_BY_WORDS
        return float(vectors[0] @ vectors[1]) > TOO_ALIKE

    async def _told(self, moment_id: UUID, name: str, summary: str) -> _Told:
        if self._last is not None and self._last[:2] == (name, summary):
            # Whoever looked for it adds it next.
            return replace(self._last[2], id=moment_id)
        whole = f"{name[:LONGEST_TITLE]}\n{summary}"
        vectors = await self._night.embed([whole, summary]) if not is_blank(summary) else None
        given = (vectors[0], vectors[1]) if vectors is not None else ()
        told = _Told(moment_id, summary, _count(summary), *given)
        self._last = name, summary, told
        return told

    async def _stored(self, told: _Told, without: Collection[UUID]) -> list[tuple[float, UUID]]:
        """The nearest moments that are stored, with how alike they are."""
        if told.whole is None or told.alone is None:
            return []
        user_id = self._night.scope.user_id
        nearest: dict[UUID, float] = {}
        for moment_id, alike in await self._rows(
            "nearest_moments", user_id or "", as_text(told.whole), list(without), len(told.whole), _LOOKED_AT
        ):
            nearest[moment_id] = max(alike, nearest.get(moment_id, 0.0))
        close = [moment_id for moment_id, alike in nearest.items() if alike > _NEAR]
        rows = await self._rows("moments_by_id", user_id, close) if close else []
        for moment_id in set(close) - {row["id"] for row in rows}:
            del nearest[moment_id]
        known = [row for row in rows if _may_be_alike(told.summary, row["summary"], nearest[row["id"]])]
        vectors = await self._night.embed([row["summary"] for row in known]) or []
        for row, vector in zip(known, vectors, strict=True):
            nearest[row["id"]] = max(nearest[row["id"]], float(vector @ told.alone))
        return [(alike, moment_id) for moment_id, alike in nearest.items()]

    async def _by_words(self, without: Collection[UUID]) -> list[_Told]:
        if self._latest is None:
            rows = await self._rows("latest_moments", self._night.scope.user_id, _LATEST)
            self._latest = {row["id"]: _Told(row["id"], row["summary"], _count(row["summary"])) for row in rows}
        tonight = self._tonight.ids
        return [told for told in self._latest.values() if told.id not in without and told.id not in tonight]

    async def _rows(self, name: str, *parameters: Any) -> list[Any]:
        async with self._night.store.executor.connection() as connection:
            statement = query("moments_dream", name)
            return list(await connection.fetch(statement, self._night.scope.tenant_id, *parameters))


class _Tonight:
    """Moments that no index knows yet. On a first night they are many, so that they lie in one table of numbers."""

    def __init__(self) -> None:
        self._place_of: dict[UUID, int] = {}
        self._told: list[_Told | None] = []
        self._wholes: Any = None
        self._alones: Any = None

    @property
    def ids(self) -> Collection[UUID]:
        """Which they are."""
        return self._place_of.keys()

    def put(self, told: _Told) -> None:
        """Add one, in place of what was said of it before."""
        self.drop(told.id)
        place = self._place_of[told.id] = len(self._told)
        self._told.append(told)
        if told.whole is not None and told.alone is not None:
            self._wholes = _with_row(self._wholes, place, told.whole)
            self._alones = _with_row(self._alones, place, told.alone)

    def drop(self, moment_id: UUID) -> None:
        """Remove one, if it is there."""
        place = self._place_of.pop(moment_id, None)
        if place is None:
            return
        self._told[place] = None
        if self._wholes is not None:
            self._wholes[place] = self._alones[place] = 0

    def nearest(self, told: _Told) -> list[tuple[float, UUID]]:
        """The one that is most alike to a text, with how much; empty if there is none."""
        if told.whole is None or self._wholes is None:
            alike = [(cosine_of_counts(told.words, other.words), other.id) for other in self._told if other]
            return [max(alike, key=lambda pair: pair[0])] if alike else []
        import numpy as np

        count = len(self._told)
        likeness = np.maximum(self._wholes[:count] @ told.whole, self._alones[:count] @ told.alone)
        best = self._told[int(likeness.argmax())]
        return [(float(likeness.max()), best.id)] if best is not None else []


def _with_row(table: Any, place: int, vector: Vector) -> Any:
    """A table of vectors with one more; it grows by doubling."""
    import numpy as np

    if table is None or place >= len(table):
        larger = np.zeros((max(64, 2 * place), len(vector)), dtype=np.float32)
        if table is not None:
            larger[: len(table)] = table
        table = larger
    table[place] = vector
    return table


def _may_be_alike(one: str, other: str, nearness: float) -> bool:
    """Whether it is worth to compare two summaries by meaning."""
    if is_blank(other) or nearness > _VERY_NEAR:
        return not is_blank(other)
    words = [Counter(content_words(text)) for text in (one, other)]
    return not all(words) or cosine_of_counts(*words) >= _LEAST_IN_COMMON


def _count(text: str) -> Counter[str]:
    return Counter(all_words(text))
