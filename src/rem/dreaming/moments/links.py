"""Moment links: each moment with the one before it, and with what it was made from, so that TRAVERSE walks there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query
from rem.dreaming.claims import Claim, ClaimSource, EdgeClaim, FieldClaim, RowRef
from rem.dreaming.moments.writer import DREAM
from rem.dreaming.owner_queries import rewrite_owner_filter
from rem.models import Edge

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun


@dataclass(frozen=True, slots=True)
class _LinkedMoment:
    """A moment in time."""

    id: UUID
    key: str
    starts: datetime
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
    def is_dreamt(self) -> bool:
        return self.origin == f"dream:{DREAM}"


async def link_moments(night: DreamRun) -> None:
    """Link the moments that are new or have changed, and those that come right after one."""
    chain = _MomentChain(night)
    moments = await chain.unlinked()
    fresh = {moment.id for moment in moments}
    for moment in moments:
        after = await chain.after(moment)
        if after is not None and after.id not in fresh:
            # First the one after it: what is marked as seen must be done.
            await chain.link(after)
        await chain.link(moment)


class _MomentChain:
    """An owner's moments in the order of time."""

    def __init__(self, night: DreamRun) -> None:
        self._night = night

    async def unlinked(self) -> list[_LinkedMoment]:
        return [_LinkedMoment(*row) for row in await self._rows("unlinked_moments", self._night.settings.max_sources)]

    async def after(self, moment: _LinkedMoment) -> _LinkedMoment | None:
        rows = await self._rows("moment_after", moment.starts, moment.key)
        return _LinkedMoment(*rows[0]) if rows else None

    async def link(self, moment: _LinkedMoment) -> None:
        """Say what a dreamt moment follows and comes from. One of the owner's own is left as it is."""
        if not moment.is_dreamt:
            await self._night.mark_seen(DREAM, moment.ref)
            return
        claims: list[Claim] = []
        before = await self._rows("moment_before", moment.starts, moment.key)
        for moment_id, key in before:
            sources = (moment.source, ClaimSource(RowRef("moments", moment_id), key))
            claims.append(FieldClaim(entity=moment.ref, field="previous_moment_keys", value=[key], sources=sources))
            claims.append(_edge(moment, "follows", key, "moments", sources))
        await self._night.store_claims(DREAM, moment.ref, [*claims, *await self._origins(moment)])

    async def _origins(self, moment: _LinkedMoment) -> list[Claim]:
        """The conversation, texts or file that a moment was made from."""
        claims: list[Claim] = []
        if moment.session_id is not None:
            # By its id, which a session keeps when it gets another name.
            session = ClaimSource(RowRef("sessions", moment.session_id), str(moment.session_id))
            claims.append(_edge(moment, "part_of", session.key, "sessions", (moment.source, session)))
        if moment.resource_ids:
            for resource_id, key in await self._rows("texts_by_id", moment.resource_ids):
                text = ClaimSource(RowRef("resources", resource_id), key)
                claims.append(_edge(moment, "derived_from", key, "resources", (moment.source, text)))
        return claims

    async def _rows(self, name: str, *parameters: Any) -> list[Any]:
        scope = self._night.scope
        async with self._night.store.executor.connection() as connection:
            statement = rewrite_owner_filter(query("dream_moments", name), scope.user_id)
            return list(await connection.fetch(statement, scope.tenant_id, scope.user_id, *parameters))


def _edge(moment: _LinkedMoment, rel_type: str, dst: str, dst_type: str, sources: tuple[ClaimSource, ...]) -> EdgeClaim:
    edge = Edge(dst=dst, rel_type=rel_type, properties={"dst_entity_type": dst_type})
    return EdgeClaim(src=moment.ref, edge=edge, sources=sources)
