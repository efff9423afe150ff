"""Links: connects each moment with the previous one and with its sources, for TRAVERSE."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from rem.dreaming.claims import Claim, ClaimSource, EdgeClaim, FieldClaim, RowRef
from rem.dreaming.moments.writer import DREAM_NAME
from rem.models import Edge

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun


@dataclass(frozen=True, slots=True)
class _LinkedMoment:
    """A moment in the order of time."""

    id: UUID
    key: str
    starts_at: datetime
    origin: str
    session_id: UUID | None
    resource_ids: list[UUID]

    @property
    def ref(self) -> RowRef:
        return RowRef("moments", self.id)

    @property
    def source(self) -> ClaimSource:
        return ClaimSource(self.ref, self.key)

    @property
    def is_derived(self) -> bool:
        return self.origin == f"dream:{DREAM_NAME}"


async def link_moments(run: DreamRun) -> None:
    """Link the new and changed moments, and the moments that directly follow one of them."""
    chain = _MomentChain(run)
    moments = await chain.fetch_unlinked()
    unlinked_ids = {moment.id for moment in moments}
    for moment in moments:
        next_moment = await chain.fetch_next(moment)
        if next_moment is not None and next_moment.id not in unlinked_ids:
            # Before the moment itself, which is marked as seen when everything about it is done.
            await chain.link(next_moment)
        await chain.link(moment)


class _MomentChain:
    """The moments of an owner in the order of time."""

    def __init__(self, run: DreamRun) -> None:
        self._run = run

    async def fetch_unlinked(self) -> list[_LinkedMoment]:
        """Return the moments that have not been linked in their current version, earliest first."""
        rows = await self._run.fetch_owned("dream_moments", "unlinked_moments", self._run.settings.max_sources)
        return [_LinkedMoment(*row) for row in rows]

    async def fetch_next(self, moment: _LinkedMoment) -> _LinkedMoment | None:
        """Return the moment after a moment."""
        rows = await self._run.fetch_owned("dream_moments", "next_moment", moment.starts_at, moment.key)
        return _LinkedMoment(*rows[0]) if rows else None

    async def link(self, moment: _LinkedMoment) -> None:
        """Claim the edges of a derived moment. A moment that the owner wrote is left as it is."""
        if not moment.is_derived:
            await self._run.mark_seen(DREAM_NAME, moment.ref)
            return
        claims: list[Claim] = []
        previous = await self._run.fetch_owned("dream_moments", "previous_moment", moment.starts_at, moment.key)
        for moment_id, key in previous:
            sources = (moment.source, ClaimSource(RowRef("moments", moment_id), key))
            claims.append(FieldClaim(entity=moment.ref, field="previous_moment_keys", value=[key], sources=sources))
            claims.append(_claim_edge(moment, "follows", key, "moments", sources))
        await self._run.store_claims(DREAM_NAME, moment.ref, [*claims, *await self._claim_origins(moment)])

    async def _claim_origins(self, moment: _LinkedMoment) -> list[Claim]:
        """Return edges to the session or the texts that a moment comes from."""
        claims: list[Claim] = []
        if moment.session_id is not None:
            # By id, which a session keeps when it is renamed.
            session = ClaimSource(RowRef("sessions", moment.session_id), str(moment.session_id))
            claims.append(_claim_edge(moment, "part_of", session.key, "sessions", (moment.source, session)))
        if moment.resource_ids:
            texts = await self._run.fetch_owned("dream_moments", "texts_by_id", moment.resource_ids)
            for resource_id, key in texts:
                text = ClaimSource(RowRef("resources", resource_id), key)
                claims.append(_claim_edge(moment, "derived_from", key, "resources", (moment.source, text)))
        return claims


def _claim_edge(
    moment: _LinkedMoment, rel_type: str, dst: str, dst_type: str, sources: tuple[ClaimSource, ...]
) -> EdgeClaim:
    edge = Edge(dst=dst, rel_type=rel_type, properties={"dst_entity_type": dst_type})
    return EdgeClaim(src=moment.ref, edge=edge, sources=sources)
