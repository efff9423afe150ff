"""Affinity: the dream that draws edges between memories that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.db.sql import fill, identifier, query
from rem.dreaming.affinity.neighbours import TYPES, ComparedRow, Neighbours, fetch_compared_rows
from rem.dreaming.claims import Claim, EdgeClaim, RowRef
from rem.dreaming.owner_queries import rewrite_owner_filter
from rem.dreaming.text.words import extract_content_words
from rem.models import Edge

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

DREAM = "affinity"
_ALIKE, _DISTINCT = 0.5, 0.45
"""From these cosines on, whole and without what all memories have in common, two memories are taken to be related.
Found by reading pairs of moments of LoCoMo and LongMemEval: below, friends who talk of anything look related."""
_WORTH_ASKING, _DISTINCT_ENOUGH = 0.4, 0.25
"""From these on a mind is asked."""
MAX_EDGES_PER_ROW = 3
MIN_CONTENT_WORDS = 4
"""Content words: what has fewer is near to anything."""
_MOST_POINTING = 50
_LONGEST_REASON = 300
_READ_BY_MIND = 2000
_AGENT = "affinity-judge"


class AffinityDream:
    """Says which memories belong together, by readable keys, so that TRAVERSE walks from one to the other."""

    name = DREAM

    async def dream(self, night: DreamRun) -> None:
        """Look at what is new or changed among texts, moments and knowledge."""
        neighbours = await Neighbours.load(night)
        if neighbours is None:
            # Words alone would connect whatever uses the same phrase.
            night.notes.append("affinity: nothing is embedded, so there is nothing to compare by meaning.")
            return
        kinship = _AffinityRun(night, neighbours)
        for table in TYPES:
            await night.process_each(DREAM, await kinship.new_in(table), kinship.look_at)


class _AffinityRun:
    """One night's comparisons."""

    def __init__(self, night: DreamRun, neighbours: Neighbours) -> None:
        self._night = night
        self._neighbours = neighbours

    async def new_in(self, table: str) -> list[RowRef]:
        """The rows of a table that the dream has not seen in this version."""
        statement = fill(query("dream_affinity", "new_subjects"), table=identifier(table))
        rows = await self._rows(statement, self._night.settings.max_sources)
        return [RowRef(table, row[0]) for row in rows]

    async def look_at(self, ref: RowRef) -> None:
        """Say what a row is related to; and first, of those that were related to it, whether they still are."""
        pointing = await self._rows(query("dream_affinity", "pointing_at"), ref.id, _MOST_POINTING)
        for kind, row_id in pointing:
            await self._say(RowRef(kind, row_id))
        await self._say(ref)

    async def _say(self, ref: RowRef) -> None:
        subjects = await fetch_compared_rows(self._night, [ref])
        claims = await self._claims(subjects[0]) if subjects else []
        await self._night.store_claims(DREAM, ref, claims)

    async def _claims(self, subject: ComparedRow) -> list[Claim]:
        if not _has_enough_words(subject):
            return []
        asks = self._night.mind is not None and not subject.is_part
        least = (_WORTH_ASKING, _DISTINCT_ENOUGH) if asks else (_ALIKE, _DISTINCT)
        near = await self._neighbours.find_nearest(subject, *least)
        chosen = [(other, alike) for other, alike in near if _has_enough_words(other)][:MAX_EDGES_PER_ROW]
        known = await self._pointing_back(subject, [other.ref.id for other, _ in chosen])
        claims: list[Claim] = []
        for other, alike in chosen:
            if other.ref.id in known:
                # TRAVERSE walks an edge in both directions.
                continue
            edge = await self._judged(subject, other) if asks else _edge_by_likeness(subject, other, alike)
            if edge is not None:
                sources = (subject.source, other.source)
                claims.append(EdgeClaim(src=subject.ref, edge=edge, sources=sources, confidence=min(alike, 1.0)))
        return claims

    async def _judged(self, subject: ComparedRow, other: ComparedRow) -> Edge | None:
        """The relation that a mind sees between two memories; None if they do not belong together."""
        if subject.digest == other.digest:
            return _edge(other, "same_as", 1.0)
        answer = await self._night.ask_model(_AGENT, _format_pair(subject, other))
        relation, strength = str(answer.get("relation") or "none"), float(answer.get("strength") or 0)
        if relation == "none" or strength <= 0:
            return None
        reason = str(answer.get("reason") or "").replace("\0", " ").encode("utf-8", "replace").decode()
        return _edge(other, relation, min(strength, 1.0), reason=reason[:_LONGEST_REASON])

    async def _pointing_back(self, subject: ComparedRow, ids: list[UUID]) -> set[UUID]:
        rows = await self._rows(query("dream_affinity", "already_from"), subject.ref.id, ids) if ids else []
        return {row[0] for row in rows}

    async def _rows(self, statement: str, *parameters: Any) -> list[Any]:
        scope = self._night.scope
        async with self._night.store.executor.connection() as connection:
            statement = rewrite_owner_filter(statement, scope.user_id)
            return list(await connection.fetch(statement, scope.tenant_id, scope.user_id, *parameters))


def _edge_by_likeness(subject: ComparedRow, other: ComparedRow, alike: float) -> Edge:
    if subject.digest == other.digest:
        return _edge(other, "same_as", 1.0)
    return _edge(other, "related_to", round(min(alike, 1.0), 3))


def _edge(other: ComparedRow, rel_type: str, weight: float, **properties: str) -> Edge:
    return Edge(
        dst=other.key, rel_type=rel_type, weight=weight, properties={"dst_entity_type": other.ref.type, **properties}
    )


def _format_pair(subject: ComparedRow, other: ComparedRow) -> str:
    """Two memories as lines of JSON, so that nothing inside of one can look like the end of it."""
    lines = [
        orjson.dumps({"memory": place, "key": thing.key, "text": thing.text[:_READ_BY_MIND]}).decode()
        for place, thing in (("first", subject), ("second", other))
    ]
    return "\n".join(("The two memories, one in a line:", "<memories>", *lines, "</memories>"))


def _has_enough_words(thing: ComparedRow) -> bool:
    return len(set(extract_content_words(thing.text))) >= MIN_CONTENT_WORDS
