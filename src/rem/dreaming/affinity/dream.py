"""Affinity: the dream that draws edges between memories that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.db.sql import fill, identifier, query
from rem.dreaming.affinity.neighbours import TYPES, Neighbours, Thing, things_of
from rem.dreaming.claim import Claim, EdgeClaim, Ref
from rem.dreaming.owner import owned
from rem.dreaming.words import content_words
from rem.models import Edge

if TYPE_CHECKING:
    from rem.dreaming.night import Night

DREAM = "affinity"
_ALIKE, _DISTINCT = 0.5, 0.45
"""From these cosines on, whole and without what all memories have in common, two memories are taken to be related.
Found by reading pairs of moments of LoCoMo and LongMemEval: below, friends who talk of anything look related."""
_WORTH_ASKING, _DISTINCT_ENOUGH = 0.4, 0.25
"""From these on a mind is asked."""
_MOST_EDGES = 3
_LEAST_WORDS = 4
"""Content words: what has fewer is near to anything."""
_MOST_POINTING = 50
_LONGEST_REASON = 300
_READ_BY_MIND = 2000
_AGENT = "affinity-judge"


class Affinity:
    """Says which memories belong together, by readable keys, so that TRAVERSE walks from one to the other."""

    name = DREAM

    async def dream(self, night: Night) -> None:
        """Look at what is new or changed among texts, moments and knowledge."""
        neighbours = await Neighbours.of(night)
        if neighbours is None:
            # Words alone would connect whatever uses the same phrase.
            night.notes.append("affinity: nothing is embedded, so there is nothing to compare by meaning.")
            return
        kinship = _Kinship(night, neighbours)
        for table in TYPES:
            await night.each(DREAM, await kinship.new_in(table), kinship.look_at)


class _Kinship:
    """One night's comparisons."""

    def __init__(self, night: Night, neighbours: Neighbours) -> None:
        self._night = night
        self._neighbours = neighbours

    async def new_in(self, table: str) -> list[Ref]:
        """The rows of a table that the dream has not seen in this version."""
        statement = fill(query("affinity", "new_subjects"), table=identifier(table))
        rows = await self._rows(statement, self._night.settings.max_sources)
        return [Ref(table, row[0]) for row in rows]

    async def look_at(self, ref: Ref) -> None:
        """Say what a row is related to; and first, of those that were related to it, whether they still are."""
        pointing = await self._rows(query("affinity", "pointing_at"), ref.id, _MOST_POINTING)
        for kind, row_id in pointing:
            await self._say(Ref(kind, row_id))
        await self._say(ref)

    async def _say(self, ref: Ref) -> None:
        subjects = await things_of(self._night, [ref])
        claims = await self._claims(subjects[0]) if subjects else []
        await self._night.say(DREAM, ref, claims)

    async def _claims(self, subject: Thing) -> list[Claim]:
        if not _says_enough(subject):
            return []
        asks = self._night.mind is not None and not subject.is_part
        least = (_WORTH_ASKING, _DISTINCT_ENOUGH) if asks else (_ALIKE, _DISTINCT)
        near = await self._neighbours.nearest(subject, *least)
        chosen = [(other, alike) for other, alike in near if _says_enough(other)][:_MOST_EDGES]
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

    async def _judged(self, subject: Thing, other: Thing) -> Edge | None:
        """The relation that a mind sees between two memories; None if they do not belong together."""
        if subject.digest == other.digest:
            return _edge(other, "same_as", 1.0)
        answer = await self._night.think(_AGENT, _as_text(subject, other))
        relation, strength = str(answer.get("relation") or "none"), float(answer.get("strength") or 0)
        if relation == "none" or strength <= 0:
            return None
        reason = str(answer.get("reason") or "").replace("\0", " ").encode("utf-8", "replace").decode()
        return _edge(other, relation, min(strength, 1.0), reason=reason[:_LONGEST_REASON])

    async def _pointing_back(self, subject: Thing, ids: list[UUID]) -> set[UUID]:
        rows = await self._rows(query("affinity", "already_from"), subject.ref.id, ids) if ids else []
        return {row[0] for row in rows}

    async def _rows(self, statement: str, *parameters: Any) -> list[Any]:
        scope = self._night.scope
        async with self._night.store.executor.connection() as connection:
            statement = owned(statement, scope.user_id)
            return list(await connection.fetch(statement, scope.tenant_id, scope.user_id, *parameters))


def _edge_by_likeness(subject: Thing, other: Thing, alike: float) -> Edge:
    if subject.digest == other.digest:
        return _edge(other, "same_as", 1.0)
    return _edge(other, "related_to", round(min(alike, 1.0), 3))


def _edge(other: Thing, rel_type: str, weight: float, **properties: str) -> Edge:
    return Edge(
        dst=other.key, rel_type=rel_type, weight=weight, properties={"dst_entity_type": other.ref.type, **properties}
    )


def _as_text(subject: Thing, other: Thing) -> str:
    """Two memories as lines of JSON, so that nothing inside of one can look like the end of it."""
    lines = [
        orjson.dumps({"memory": place, "key": thing.key, "text": thing.text[:_READ_BY_MIND]}).decode()
        for place, thing in (("first", subject), ("second", other))
    ]
    return "\n".join(("The two memories, one in a line:", "<memories>", *lines, "</memories>"))


def _says_enough(thing: Thing) -> bool:
    return len(set(content_words(thing.text))) >= _LEAST_WORDS
