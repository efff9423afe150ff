"""AffinityDream: draws edges between rows whose texts are close in meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.db.sql import fill, query
from rem.dreams.claims import Claim, ClaimSource, EdgeClaim, RowRef
from rem.dreams.text.words import extract_content_words
from rem.models import Edge
from rem.search.searchable_rows import visible_owners
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun

DREAM_NAME = "affinity"
AGENT = "affinity-judge"
COMPARED_TABLES = ("resources", "moments", "ontologies")
MIN_COSINE, MIN_CENTRED_COSINE = 0.45, 0.4
"""From these cosines on, two rows are related: of the vectors themselves, and without the mean of all memories. Found
by reading pairs of moments of LoCoMo and LongMemEval: below, any two chats of the same friends look related. Related
texts are less similar by `rem-embed-2` than by all-MiniLM-L6-v2, for which they were .5 and .45."""
MIN_COSINE_TO_ASK, MIN_CENTRED_COSINE_TO_ASK = 0.4, 0.25
"""From these cosines on, a model decides."""
MAX_EDGES_PER_ROW = 3
MIN_CONTENT_WORDS = 4
"""A text with fewer is near to anything."""
MAX_AFFECTED_ROWS = 50
"""Rows with an edge to a changed row that are compared again."""
MAX_REASON_CHARS = 300
MAX_MODEL_TEXT_CHARS = 2000
MAX_TEXT_CHARS = 3000
MAX_PASSAGES_PER_ROW = 3
MAX_CANDIDATES = 24
SAMPLE_PASSAGES = 500
"""Passages from which the mean of all memories is estimated."""
SAMPLE_PRIOR_PASSAGES = 20
"""The mean of few passages says little: with so many, it has half of its weight."""
MAX_SCANNED_PASSAGES = 20_000
"""Up to so many passages are all compared, as SEARCH does it; more are found by the index."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A row with the text that is compared."""

    ref: RowRef
    key: str
    text: str
    digest: str
    origins: frozenset[str]
    """Files, addresses, sessions and texts that it comes from."""
    is_chunk: bool
    """It is a chunk of a file."""

    @property
    def source(self) -> ClaimSource:
        """The row as source of a claim."""
        return ClaimSource(self.ref, self.key)

    @property
    def has_enough_words(self) -> bool:
        """Return whether it has enough content words to be compared."""
        return len(set(extract_content_words(self.text))) >= MIN_CONTENT_WORDS

    def shares_origin(self, other: ComparedRow) -> bool:
        """Return whether both come from the same file, address or session, so that an edge would say nothing new."""
        return bool(self.origins & other.origins)


class AffinityDream:
    """Derives edges between related rows, for TRAVERSE."""

    name = DREAM_NAME

    async def derive(self, run: DreamRun) -> None:
        """Compare the new and changed texts, moments and ontology entries with all others."""
        neighbours = await Neighbours.load(run)
        if neighbours is None:
            # Words alone would connect all texts that use the same phrase.
            run.notes.append("affinity: nothing is embedded, so there is nothing to compare by meaning.")
            return
        affinities = _AffinityRun(run, neighbours)
        for table in COMPARED_TABLES:
            await run.process_each(DREAM_NAME, await affinities.fetch_new_rows(table), affinities.process_row)


class _AffinityRun:
    """Derives the edges of one run."""

    def __init__(self, run: DreamRun, neighbours: Neighbours) -> None:
        self._run = run
        self._neighbours = neighbours

    async def fetch_new_rows(self, table: str) -> list[RowRef]:
        """Return the rows of a table that the dream has not seen in their current version."""
        rows = await self._run.fetch_owned("dreams/affinity", "new_rows", self._run.settings.max_sources, table=table)
        return [RowRef(table, row["id"]) for row in rows]

    async def process_row(self, ref: RowRef) -> None:
        """Store the edges of a row; before that, check the rows that have an edge to it."""
        affected = await self._run.fetch_owned("dreams/affinity", "rows_with_edge_to", ref.id, MAX_AFFECTED_ROWS)
        for table, row_id in affected:
            await self._store_edges(RowRef(table, row_id))
        await self._store_edges(ref)

    async def _store_edges(self, ref: RowRef) -> None:
        rows = await fetch_compared_rows(self._run, [ref])
        await self._run.store_claims(DREAM_NAME, ref, await self._claim_edges(rows[0]) if rows else [])

    async def _claim_edges(self, row: ComparedRow) -> list[Claim]:
        if not row.has_enough_words:
            return []
        asks_model = self._run.model is not None and not row.is_chunk
        limits = (MIN_COSINE_TO_ASK, MIN_CENTRED_COSINE_TO_ASK) if asks_model else (MIN_COSINE, MIN_CENTRED_COSINE)
        neighbours = await self._neighbours.find_nearest(row, *limits)
        nearest = [(other, cosine) for other, cosine in neighbours if other.has_enough_words][:MAX_EDGES_PER_ROW]
        linked_ids = await self._find_linked(row, [other.ref.id for other, _ in nearest])
        claims: list[Claim] = []
        for other, cosine in nearest:
            if other.ref.id in linked_ids:
                # TRAVERSE follows the other's edge in both directions.
                continue
            edge = await self._ask_relation(row, other) if asks_model else _make_edge_by_cosine(row, other, cosine)
            if edge is not None:
                sources = (row.source, other.source)
                claims.append(EdgeClaim(src=row.ref, edge=edge, sources=sources, confidence=min(cosine, 1.0)))
        return claims

    async def _ask_relation(self, row: ComparedRow, other: ComparedRow) -> Edge | None:
        """Return the edge with the relation that the model names, or None if it sees none."""
        if row.digest == other.digest:
            return _make_edge(other, "same_as", 1.0)
        answer = await self._run.ask_model(AGENT, _format_pair(row, other))
        relation, strength = str(answer.get("relation") or "none"), float(answer.get("strength") or 0)
        if relation == "none" or strength <= 0:
            return None
        reason = clean_text(str(answer.get("reason") or ""), " ")[:MAX_REASON_CHARS]
        return _make_edge(other, relation, min(strength, 1.0), reason=reason)

    async def _find_linked(self, row: ComparedRow, ids: list[UUID]) -> set[UUID]:
        """Return those of some rows that have an edge to a row."""
        rows = await self._run.fetch_owned("dreams/affinity", "linked_rows", row.ref.id, ids) if ids else []
        return {row["entity_id"] for row in rows}


class Neighbours:
    """Finds the rows nearest in meaning among those that an owner sees."""

    def __init__(self, run: DreamRun, model_id: int, dimension: int, uses_index: bool, mean: str) -> None:
        self._run = run
        self._model_id = model_id
        self._dimension = dimension
        self._uses_index = uses_index
        self._mean = mean

    @classmethod
    async def load(cls, run: DreamRun, max_scanned_passages: int = MAX_SCANNED_PASSAGES) -> Neighbours | None:
        """Return the neighbours for the owner of a run, or None if nothing is embedded.

        With more passages than `max_scanned_passages`, the vector index is used.
        """
        owner = run.scope.tenant_id, visible_owners(run.scope), list(COMPARED_TABLES)
        async with run.store.executor.connection() as connection:
            model = await connection.fetchrow(query("dreams/affinity", "embedding_model"), *owner)
            if model is None:
                return None
            (sample,) = await connection.fetch(
                query("dreams/affinity", "mean_vector"), *owner, model["id"], SAMPLE_PASSAGES
            )
        count = sample["count"]
        weight = count / (count + SAMPLE_PRIOR_PASSAGES)
        mean = (
            [float(number) * weight for number in sample["mean"][1:-1].split(",")]
            if count
            else [0.0] * model["dimension"]
        )
        return cls(run, model["id"], model["dimension"], model["passages"] > max_scanned_passages, str(mean))

    async def find_nearest(
        self, row: ComparedRow, min_cosine: float, min_centred_cosine: float
    ) -> list[tuple[ComparedRow, float]]:
        """Return the rows of other origins within both limits, with their cosines, nearest first."""
        cosines = {
            RowRef(near["entity_type"], near["entity_id"]): float(near["cosine"])
            for near in await self._fetch_nearest(row.ref)
            if near["cosine"] >= min_cosine and near["centred_cosine"] >= min_centred_cosine
        }
        others = await fetch_compared_rows(self._run, list(cosines))
        nearest = [(other, cosines[other.ref]) for other in others if not other.shares_origin(row)]
        return sorted(nearest, key=lambda pair: (-round(pair[1], 3), pair[0].ref.type, pair[0].key))

    async def _fetch_nearest(self, ref: RowRef) -> list[Any]:
        scope = self._run.scope
        parameters = (
            *(scope.tenant_id, visible_owners(scope), list(COMPARED_TABLES), ref.id, ref.type, self._model_id),
            *(MAX_PASSAGES_PER_ROW, MAX_CANDIDATES, self._mean),
        )
        template = query("dreams/affinity", "nearest_rows")
        if not self._uses_index:
            statement = fill(template, model="$6", cast="")
            async with self._run.store.executor.connection() as connection:
                return list(await connection.fetch(statement, *parameters))
        # The index is on vectors of one model and dimension, which have to be literals in the query.
        statement = fill(template, model=str(int(self._model_id)), cast=f"::halfvec({int(self._dimension)})")
        async with self._run.store.transaction() as store, store.executor.connection() as connection:
            await connection.execute(query("dreams/affinity", "use_iterative_scan"))
            return list(await connection.fetch(statement, *parameters))


async def fetch_compared_rows(run: DreamRun, refs: Sequence[RowRef]) -> list[ComparedRow]:
    """Return those of some rows that the owner of a run sees, with their texts."""
    if not refs:
        return []
    tables, ids = sorted({ref.type for ref in refs}), [ref.id for ref in refs]
    rows = await run.fetch_owned("dreams/affinity", "compared_rows", tables, ids, MAX_TEXT_CHARS)
    compared = [
        ComparedRow(
            RowRef(row["type"], row["id"]),
            row["key"],
            row["text"],
            row["digest"],
            frozenset(row["origins"]),
            row["is_chunk"],
        )
        for row in rows
    ]
    wanted = set(refs)
    return [row for row in compared if row.ref in wanted]


def _make_edge_by_cosine(row: ComparedRow, other: ComparedRow, cosine: float) -> Edge:
    if row.digest == other.digest:
        return _make_edge(other, "same_as", 1.0)
    return _make_edge(other, "related_to", round(min(cosine, 1.0), 3))


def _make_edge(other: ComparedRow, rel_type: str, weight: float, **properties: str) -> Edge:
    return Edge(
        dst=other.key, rel_type=rel_type, weight=weight, properties={"dst_entity_type": other.ref.type, **properties}
    )


def _format_pair(row: ComparedRow, other: ComparedRow) -> str:
    """Return two rows as lines of JSON: no text inside can look like the end of a row."""
    lines = [
        orjson.dumps({"memory": position, "key": each.key, "text": each.text[:MAX_MODEL_TEXT_CHARS]}).decode()
        for position, each in (("first", row), ("second", other))
    ]
    return "\n".join(("The two memories, one in a line:", "<memories>", *lines, "</memories>"))
