"""MomentWriter: decides which drafts become moments of their own and which join one that there is, and says them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query
from rem.dreaming.claims import ClaimSource, RowClaim, RowRef
from rem.dreaming.moments.near_duplicates import NearDuplicates
from rem.dreaming.owner_queries import rewrite_owner_filter
from rem.models import Moment

if TYPE_CHECKING:
    from rem.dreaming.moments.draft import MomentDraft
    from rem.dreaming.run import DreamRun

DREAM = "moments"
MAX_MOMENT_SOURCES = 500
"""Of one moment: what is said every morning needs no more evidence."""
_LAST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ExistingMoment:
    """A moment as it is said by now."""

    statement_id: UUID
    moment_id: UUID
    value: dict[str, Any]
    confidence: float
    subject: RowRef

    @property
    def summary(self) -> str:
        """What it says."""
        return str(self.value.get("summary") or "")


@dataclass(frozen=True, slots=True)
class LocatedSource:
    """A source, and what was looked at when it was found: for a message its session."""

    source: ClaimSource
    place_id: UUID


class MomentWriter:
    """The moments of one owner during one night."""

    def __init__(self, night: DreamRun) -> None:
        self._night = night
        self._duplicates = NearDuplicates(night)
        self.has_unsettled = False
        """Whether something that was seen before has to be looked at again."""

    async def fetch_existing(self, subject_id: UUID, start: int = 0, end: int | None = None) -> list[ExistingMoment]:
        """The moments of a subject; of a session, those that begin from an index on and before another."""
        if start <= 0 and end is None:
            rows = await self._rows("moments_of_subject", subject_id)
        else:
            rows = await self._rows("moments_of_stretch", subject_id, start, _LAST if end is None else end)
        return [_to_existing(row) for row in rows]

    async def write(
        self,
        subject: RowRef,
        drafts: Sequence[MomentDraft],
        replaced: Sequence[ExistingMoment],
        own_ids: Collection[UUID],
        seen_index: int | None = None,
        stretch: tuple[int, int] | None = None,
    ) -> None:
        """Let drafts stand in place of what was said of a subject. `own_ids` are the rows that the drafts could be made
        from; other sources of a moment have joined it. Of a session it is told how far it is seen, and what was looked
        at for that."""
        sources = await self._sources_of(replaced)
        kept = await self._settled(drafts, replaced, sources)
        await self._carry_over(subject, kept, replaced, sources, set(own_ids))
        claims = [draft.to_claim() for draft in kept]
        only = [one.statement_id for one in replaced]
        changes = await self._night.store_claims(
            DREAM, subject, claims, only=only, seen_index=seen_index, stretch=stretch
        )
        if changes.refused or changes.vanished:
            await self._check(subject, kept)

    async def _settled(
        self,
        drafts: Sequence[MomentDraft],
        replaced: Sequence[ExistingMoment],
        sources: dict[UUID, list[LocatedSource]],
    ) -> list[MomentDraft]:
        """The drafts that are moments of their own. The others have joined one that says the same."""
        left_out = {one.moment_id for one in replaced}
        for moment_id in left_out:
            self._duplicates.forget(moment_id)
        free = list(replaced)
        kept: dict[UUID, MomentDraft] = {}
        for draft in drafts:
            twin = await self._duplicates.find(draft.name, draft.summary, left_out)
            if twin in kept:
                _add_sources(kept[twin].sources, draft.sources)
                kept[twin].resource_ids = list(dict.fromkeys([*kept[twin].resource_ids, *draft.resource_ids]))
                continue
            if twin is not None and await self._join(twin, draft):
                continue
            earlier = _find_same_moment(draft, free, sources)
            if earlier is not None:
                free.remove(earlier)
                draft.id = earlier.moment_id
                draft.name = str(earlier.value["name"])
            kept[draft.id] = draft
            await self._duplicates.add(draft.id, draft.name, draft.summary)
        return list(kept.values())

    async def _carry_over(
        self,
        subject: RowRef,
        kept: Sequence[MomentDraft],
        replaced: Sequence[ExistingMoment],
        sources: dict[UUID, list[LocatedSource]],
        own_ids: set[UUID],
    ) -> None:
        """Keep what has joined a moment as long as it says the same; else let it be looked at again."""
        by_id = {draft.id: draft for draft in kept}
        homeless: set[UUID] = set()
        for one in replaced:
            joined = [placed for placed in sources[one.statement_id] if placed.source.ref.id not in own_ids]
            if not joined:
                continue
            draft = by_id.get(one.moment_id)
            if draft is not None and await self._duplicates.are_alike(draft.summary, one.summary):
                _add_sources(draft.sources, [placed.source for placed in joined])
                places = {placed.place_id for placed in joined}
                draft.occurrences = len({subject.id, *places})
                await self._keep_words(draft, one, places)
            else:
                homeless |= {placed.source.ref.id for placed in joined}
        if homeless:
            self.has_unsettled = True
            await self._execute("look_again", sorted(homeless))

    async def _keep_words(self, draft: MomentDraft, one: ExistingMoment, places: set[UUID]) -> None:
        """Leave a moment the words of what joined it last."""
        worded_in = next((place for place in places if str(place) == one.value["metadata"].get("worded_in")), None)
        if worded_in is None:
            return
        said = Moment.model_validate(one.value)
        draft.worded_in, draft.summary = worded_in, said.summary
        draft.topics, draft.emotions, draft.persons = said.topic_tags, said.emotion_tags, said.present_persons
        await self._duplicates.add(draft.id, draft.name, draft.summary)

    async def _join(self, moment_id: UUID, draft: MomentDraft) -> bool:
        """Let a draft's sources speak for a moment that says the same; False if there is no such moment any more."""
        rows = await self._rows("statement_of_moment", moment_id)
        if not rows:
            # It may be the owner's own: then there is nothing to add to it.
            is_there = bool(await self._rows("moments_by_id", [moment_id]))
            if not is_there:
                self._duplicates.forget(moment_id)
            return is_there
        one = _to_existing(rows[0])
        placed = (await self._sources_of([one]))[one.statement_id]
        known = {source.source.ref.id for source in placed}
        if draft.source_ids <= known or len(known) >= MAX_MOMENT_SOURCES:
            return True
        united = [source.source for source in placed]
        _add_sources(united, draft.sources)
        places = {source.place_id for source in placed} | {draft.place_id}
        moment = Moment.model_validate({**one.value, "id": moment_id})
        if len(places) > 1:
            moment.metadata = {**moment.metadata, "occurrences": len(places)}
        await self._word_anew(moment, draft, one.subject)
        claim = RowClaim(
            entity=moment, sources=tuple(united), confidence=one.confidence, valid_from=moment.starts_timestamp
        )
        changes = await self._night.store_claims(DREAM, one.subject, [claim], only=[one.statement_id], marks=False)
        if changes.vanished:
            # Something that it was made from has lapsed: it is gone, and the rest of that is looked at again.
            self._duplicates.forget(moment_id)
            self.has_unsettled = True
            await self._execute("look_again", sorted(known))
        return not changes.vanished

    async def _word_anew(self, moment: Moment, draft: MomentDraft, subject: RowRef) -> None:
        """Give a moment the words of what joins it, if that is later and tells something else, such as another figure;
        but not if yet another moment says just that."""
        is_later = moment.starts_timestamp is None or draft.starts > moment.starts_timestamp
        if not is_later or draft.summary == moment.summary or draft.place_id == subject.id:
            return
        self._duplicates.forget(moment.id)
        if await self._duplicates.find(moment.name, draft.summary, {moment.id}) is None:
            moment.summary = draft.summary
            moment.topic_tags, moment.emotion_tags = draft.topics, draft.emotions
            moment.present_persons = draft.persons
            moment.metadata = {**moment.metadata, "worded_in": str(draft.place_id)}
        await self._duplicates.add(moment.id, moment.name, moment.summary)

    async def _check(self, subject: RowRef, kept: Sequence[MomentDraft]) -> None:
        """Forget what was not said after all, because its owner took it back."""
        start = min((draft.first_index or 0 for draft in kept), default=0)
        said = {one.moment_id for one in await self.fetch_existing(subject.id, start)} if kept else set()
        for draft in kept:
            if draft.id not in said:
                self._duplicates.forget(draft.id)

    async def _sources_of(self, standing: Sequence[ExistingMoment]) -> dict[UUID, list[LocatedSource]]:
        found: dict[UUID, list[LocatedSource]] = {one.statement_id: [] for one in standing}
        if standing:
            async with self._night.store.executor.connection() as connection:
                rows = await connection.fetch(
                    query("dream_moments", "sources_of"), self._night.scope.tenant_id, list(found)
                )
            for row in rows:
                source = ClaimSource(RowRef(row["source_type"], row["source_id"]), row["key"])
                found[row["statement_id"]].append(LocatedSource(source, row["place_id"]))
        return found

    async def _rows(self, name: str, *parameters: Any) -> list[Any]:
        scope = self._night.scope
        async with self._night.store.executor.connection() as connection:
            statement = rewrite_owner_filter(query("dream_moments", name), scope.user_id)
            return list(await connection.fetch(statement, scope.tenant_id, scope.user_id, *parameters))

    async def _execute(self, name: str, *parameters: Any) -> None:
        async with self._night.store.executor.connection() as connection:
            await connection.execute(query("dream_moments", name), self._night.scope.tenant_id, *parameters)


def _to_existing(row: Any) -> ExistingMoment:
    subject = RowRef(row["subject_type"], row["subject_id"])
    return ExistingMoment(row["id"], row["entity_id"], row["value"], row["confidence"], subject)


def _find_same_moment(
    draft: MomentDraft, free: Sequence[ExistingMoment], sources: dict[UUID, list[LocatedSource]]
) -> ExistingMoment | None:
    """The moment that was made from mostly the same rows, as the ledger will see it."""
    own = draft.source_ids
    best, most = None, 0
    for one in free:
        theirs = {placed.source.ref.id for placed in sources[one.statement_id]}
        common = len(own & theirs)
        if common > most and common * 2 >= min(len(own), len(theirs)):
            best, most = one, common
    return best


def _add_sources(sources: list[ClaimSource], more: Sequence[ClaimSource]) -> None:
    known = {source.ref for source in sources}
    sources.extend(source for source in more if source.ref not in known)
