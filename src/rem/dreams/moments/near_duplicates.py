"""NearDuplicates: finds the moment that a new summary would repeat, by meaning or, without embeddings, by words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.search.embedding_validation import is_blank
from rem.search.indexer import vector_to_text
from rem.text import compute_word_cosine, split_words

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun
    from rem.search.embedder import Vector

MAX_COSINE = 0.94
"""No two moments of an owner may be above 0.95 (see the audit). Stored vectors are rounded, hence the distance."""
MAX_WORD_COSINE = 0.9
"""The same without embeddings."""
MIN_COSINE_TO_COMPARE_NAMES = 0.88
"""A summary as near as this may be too near together with its name."""
MIN_COSINE_TO_EMBED = 0.6
"""A stored vector that contains the name may be as far as this although the summaries are too near."""
MAX_CANDIDATES = 8
MAX_MOMENTS_BY_WORDS = 2000
"""Latest moments that are compared by words."""


@dataclass(frozen=True, slots=True)
class _ComparedMoment:
    """A moment with the word counts and the vector of its summary."""

    id: UUID
    name: str
    summary: str
    word_counts: Counter[str]
    vector: Vector | None = None

    @property
    def text_with_name(self) -> str:
        """Name and summary, as a reader sees them."""
        return f"{self.name}\n{self.summary}"


class NearDuplicates:
    """Compares summaries with the moments of an owner, those of this run included."""

    def __init__(self, run: DreamRun) -> None:
        self._run = run
        self._new = _NewMoments()
        self._latest: dict[UUID, _ComparedMoment] | None = None
        self._last: _ComparedMoment | None = None

    async def find(self, name: str, summary: str, excluded: Collection[UUID] = ()) -> UUID | None:
        """Return the id of the moment that a summary repeats most closely, or None if it repeats none.

        Stored moments in `excluded` are not compared.
        """
        same = await self._find_same_text(summary, excluded)
        if same is not None:
            return same
        moment = await self._to_compared(UUID(int=0), name, summary)
        if moment.vector is None:
            others = [*self._new.moments, *await self._fetch_latest(excluded)]
            cosines = [(compute_word_cosine(moment.word_counts, other.word_counts), other) for other in others]
            return _select_nearest(cosines, MAX_WORD_COSINE)
        candidates = [*self._new.find_nearest(moment.vector), *await self._find_stored(moment.vector, excluded)]
        return _select_nearest(candidates, MAX_COSINE) or _select_nearest(
            await self._compare_with_names(
                moment, [other for cosine, other in candidates if cosine > MIN_COSINE_TO_COMPARE_NAMES]
            ),
            MAX_COSINE,
        )

    async def add(self, moment_id: UUID, name: str, summary: str) -> None:
        """Add a moment of this run."""
        self._new.put(await self._to_compared(moment_id, name, summary))

    def remove(self, moment_id: UUID) -> None:
        """Remove a moment that is gone, or is about to be replaced."""
        self._new.remove(moment_id)
        if self._latest is not None:
            self._latest.pop(moment_id, None)

    async def are_duplicates(self, summary: str, other: str) -> bool:
        """Return whether two summaries say the same."""
        if summary == other:
            return True
        vectors = await self._run.embed([summary, other]) if not (is_blank(summary) or is_blank(other)) else None
        if vectors is None:
            return compute_word_cosine(_count_words(summary), _count_words(other)) > MAX_WORD_COSINE
        return float(vectors[0] @ vectors[1]) > MAX_COSINE

    async def _to_compared(self, moment_id: UUID, name: str, summary: str) -> _ComparedMoment:
        if self._last is not None and (self._last.name, self._last.summary) == (name, summary):
            # `find` is usually followed by `add` with the same text.
            return replace(self._last, id=moment_id)
        vectors = await self._run.embed([summary]) if not is_blank(summary) else None
        self._last = _ComparedMoment(moment_id, name, summary, _count_words(summary), vectors[0] if vectors else None)
        return self._last

    async def _find_same_text(self, summary: str, excluded: Collection[UUID]) -> UUID | None:
        """Return a stored moment with exactly this summary: with a long name its vector may be far away.

        Moments of this run are left out; they are compared with their new summaries.
        """
        if is_blank(summary):
            return None
        rows = await self._run.fetch_owned(
            "dreams/moments/moments", "moment_with_summary", summary, [*excluded, *self._new.ids]
        )
        return rows[0]["id"] if rows else None

    async def _find_stored(self, vector: Vector, excluded: Collection[UUID]) -> list[tuple[float, _ComparedMoment]]:
        """Return the nearest stored moments with their cosines."""
        rows = await self._run.fetch_owned(
            "dreams/moments/moments",
            "nearest_moments",
            self._run.scope.user_id or "",
            vector_to_text(vector),
            list(excluded),
            len(vector),
            MAX_CANDIDATES,
        )
        exact = [(row["cosine"], _from_row(row)) for row in rows if row["is_exact"]]
        others = [_from_row(row) for row in rows if not row["is_exact"] and row["cosine"] > MIN_COSINE_TO_EMBED]
        vectors = await self._run.embed([moment.summary for moment in others]) or []
        return exact + [(float(other @ vector), moment) for moment, other in zip(others, vectors, strict=True)]

    async def _compare_with_names(
        self, moment: _ComparedMoment, others: Collection[_ComparedMoment]
    ) -> list[tuple[float, _ComparedMoment]]:
        """Return the cosines of some moments to one, names included."""
        vectors = await self._run.embed([each.text_with_name for each in (moment, *others)]) if others else None
        if not vectors:
            return []
        return [(float(vectors[0] @ vector), other) for vector, other in zip(vectors[1:], others, strict=True)]

    async def _fetch_latest(self, excluded: Collection[UUID]) -> list[_ComparedMoment]:
        """Return the latest stored moments, for the comparison by words."""
        if self._latest is None:
            rows = await self._run.fetch_owned("dreams/moments/moments", "latest_moments", MAX_MOMENTS_BY_WORDS)
            self._latest = {row["id"]: _from_row(row) for row in rows}
        new_ids = self._new.ids
        return [moment for moment in self._latest.values() if moment.id not in excluded and moment.id not in new_ids]


class _NewMoments:
    """Moments of this run, which are not in the index yet. A first run has many, so their vectors are one matrix."""

    def __init__(self) -> None:
        self._positions: dict[UUID, int] = {}
        self._moments: list[_ComparedMoment | None] = []
        self._vectors: Any = None

    @property
    def ids(self) -> Collection[UUID]:
        """Ids of the moments."""
        return self._positions.keys()

    @property
    def moments(self) -> list[_ComparedMoment]:
        """All moments."""
        return [moment for moment in self._moments if moment is not None]

    def put(self, moment: _ComparedMoment) -> None:
        """Add a moment, in place of its earlier version."""
        self.remove(moment.id)
        position = self._positions[moment.id] = len(self._moments)
        self._moments.append(moment)
        if moment.vector is not None:
            self._vectors = _put_row(self._vectors, position, moment.vector)

    def remove(self, moment_id: UUID) -> None:
        """Remove a moment, if it is there."""
        position = self._positions.pop(moment_id, None)
        if position is None:
            return
        self._moments[position] = None
        if self._vectors is not None and position < len(self._vectors):
            self._vectors[position] = 0

    def find_nearest(self, vector: Vector) -> list[tuple[float, _ComparedMoment]]:
        """Return the nearest moments with their cosines."""
        if self._vectors is None:
            return []
        import numpy as np

        cosines = self._vectors[: len(self._moments)] @ vector
        positions = np.argsort(-cosines)[:MAX_CANDIDATES]
        return [
            (float(cosines[position]), moment)
            for position in positions
            if (moment := self._moments[int(position)]) is not None
        ]


def _select_nearest(candidates: Collection[tuple[float, _ComparedMoment]], limit: float) -> UUID | None:
    """Return the id of the moment with the highest cosine, if that is above the limit."""
    cosine, moment = max(candidates, default=(0.0, None), key=lambda pair: pair[0])
    return moment.id if moment is not None and cosine > limit else None


def _from_row(row: Any) -> _ComparedMoment:
    return _ComparedMoment(row["id"], row["name"], row["summary"], _count_words(row["summary"]))


def _put_row(matrix: Any, position: int, vector: Vector) -> Any:
    """Return a matrix with a vector in the row `position`. It grows by doubling."""
    import numpy as np

    if matrix is None or position >= len(matrix):
        larger = np.zeros((max(64, 2 * position), len(vector)), dtype=np.float32)
        if matrix is not None:
            larger[: len(matrix)] = matrix
        matrix = larger
    matrix[position] = vector
    return matrix


def _count_words(text: str) -> Counter[str]:
    return Counter(split_words(text))
