"""MomentWriter: decides which drafts are new moments and which join an existing one, and stores them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.dreams.claims import ClaimSource, RowClaim, RowRef
from rem.dreams.moments.near_duplicates import NearDuplicates
from rem.dreams.text.statements import mask_other_kinds
from rem.models import Moment

if TYPE_CHECKING:
    from rem.dreams.moments.draft import MomentDraft
    from rem.dreams.run import DreamRun

DREAM_NAME = "moments"
MAX_MOMENT_SOURCES = 500
"""A fact that is repeated every morning needs no more sources."""
MAX_MESSAGE_CHARS = 20_000
"""Characters of a message that are read."""
_MAX_INDEX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ExistingMoment:
    """The live statement of a moment."""

    statement_id: UUID
    moment_id: UUID
    value: dict[str, Any]
    confidence: float
    subject: RowRef

    @property
    def summary(self) -> str:
        """Its summary."""
        return str(self.value.get("summary") or "")


@dataclass(frozen=True, slots=True)
class LocatedSource:
    """A source with the session or file that contains it."""

    source: ClaimSource
    origin_id: UUID
    is_readable: bool = True
    """False for a question or an answer. A moment was made of such messages before they had kinds."""


class MomentWriter:
    """Stores the moments of one owner during one run."""

    def __init__(self, run: DreamRun) -> None:
        self._run = run
        self._duplicates = NearDuplicates(run)
        self.needs_another_pass = False
        """Rows that were read before have to be read again in this run."""

    async def fetch_existing(self, subject_id: UUID, start: int = 0, end: int | None = None) -> list[ExistingMoment]:
        """Return the moments of a subject; of a session, those that begin at a message from `start` to before `end`."""
        if start <= 0 and end is None:
            rows = await self._run.fetch_owned("dreams/moments/moments", "moments_of_subject", subject_id)
        else:
            last = _MAX_INDEX if end is None else end
            rows = await self._run.fetch_owned("dreams/moments/moments", "moments_of_range", subject_id, start, last)
        return [_to_existing(row) for row in rows]

    async def write(
        self,
        subject: RowRef,
        drafts: Sequence[MomentDraft],
        replaced: Sequence[ExistingMoment],
        own_ids: Collection[UUID],
        seen_index: int | None = None,
        seen_range: tuple[int, int] | None = None,
    ) -> None:
        """Store drafts in place of existing moments of a subject.

        `own_ids` are the rows of the subject that drafts can have as sources; any other source of an existing moment
        belongs to a subject that has joined it. `seen_index` and `seen_range` mark a session as seen.
        """
        sources = await self._fetch_sources(replaced)
        replaced = await self._end_outdated(subject, replaced, sources, set(own_ids))
        kept = await self._join_duplicates([self._hide_words(draft) for draft in drafts], replaced, sources)
        await self._keep_joined_sources(subject, kept, replaced, sources, set(own_ids))
        claims = [draft.to_claim() for draft in kept]
        only = [moment.statement_id for moment in replaced]
        changes = await self._run.store_claims(
            DREAM_NAME, subject, claims, only=only, seen_index=seen_index, seen_range=seen_range
        )
        if changes.refused or changes.vanished:
            await self._remove_unwritten(subject, kept)

    def _hide_words(self, draft: MomentDraft) -> MomentDraft:
        """Return the draft without words of its text in its name and tags, if texts are encrypted."""
        sealer = self._run.store.executor.sealer
        if sealer is None or not sealer.is_sealing:
            return draft
        return replace(draft, name=f"{draft.starts_at:%Y-%m-%d} {draft.moment_type}", topics=[])

    async def _end_outdated(
        self,
        subject: RowRef,
        moments: Sequence[ExistingMoment],
        sources: dict[UUID, list[LocatedSource]],
        own_ids: set[UUID],
    ) -> list[ExistingMoment]:
        """End the moments of messages that are no statements, and return the others.

        Otherwise their names, which consist of words of these messages, would stay.
        """
        outdated = [
            moment
            for moment in moments
            if any(_is_outdated(located, subject, own_ids) for located in sources[moment.statement_id])
        ]
        if not outdated:
            return list(moments)
        statement_ids = [moment.statement_id for moment in outdated]
        await self._run.store_claims(DREAM_NAME, subject, [], only=statement_ids, mark_seen=False)
        located_sources = [located for moment in outdated for located in sources[moment.statement_id]]
        joined_ids = {
            located.source.ref.id
            for located in located_sources
            if located.origin_id != subject.id and located.source.ref.id not in own_ids
        }
        if joined_ids:
            await self._rescan(joined_ids)
        for moment in outdated:
            self._duplicates.remove(moment.moment_id)
        return [moment for moment in moments if moment not in outdated]

    async def _join_duplicates(
        self,
        drafts: Sequence[MomentDraft],
        replaced: Sequence[ExistingMoment],
        sources: dict[UUID, list[LocatedSource]],
    ) -> list[MomentDraft]:
        """Return the drafts that are moments of their own. Let the others join the moment that they repeat."""
        replaced_ids = {moment.moment_id for moment in replaced}
        for moment_id in replaced_ids:
            self._duplicates.remove(moment_id)
        unmatched = list(replaced)
        kept: dict[UUID, MomentDraft] = {}
        for draft in drafts:
            duplicate_id = await self._duplicates.find(draft.name, draft.summary, replaced_ids)
            if duplicate_id in kept:
                first = kept[duplicate_id]
                _add_sources(first.sources, draft.sources)
                first.resource_ids = list(dict.fromkeys([*first.resource_ids, *draft.resource_ids]))
                continue
            if duplicate_id is not None and await self._join(duplicate_id, draft):
                continue
            earlier = _find_same_moment(draft, unmatched, sources)
            if earlier is not None:
                unmatched.remove(earlier)
                draft.id = earlier.moment_id
                draft.name = str(earlier.value["name"])
            kept[draft.id] = draft
            await self._duplicates.add(draft.id, draft.name, draft.summary)
        return list(kept.values())

    async def _keep_joined_sources(
        self,
        subject: RowRef,
        kept: Sequence[MomentDraft],
        replaced: Sequence[ExistingMoment],
        sources: dict[UUID, list[LocatedSource]],
        own_ids: set[UUID],
    ) -> None:
        """Add sources of other subjects to a draft that still says the same, or let these subjects be read again."""
        drafts_by_id = {draft.id: draft for draft in kept}
        orphan_ids: set[UUID] = set()
        for moment in replaced:
            joined = [located for located in sources[moment.statement_id] if located.source.ref.id not in own_ids]
            if not joined:
                continue
            draft = drafts_by_id.get(moment.moment_id)
            if draft is not None and await self._duplicates.are_duplicates(draft.summary, moment.summary):
                _add_sources(draft.sources, [located.source for located in joined])
                origin_ids = {located.origin_id for located in joined}
                draft.occurrences = len({subject.id, *origin_ids})
                await self._keep_wording(draft, moment, origin_ids)
            else:
                orphan_ids |= {located.source.ref.id for located in joined}
        if orphan_ids:
            await self._rescan(orphan_ids)

    async def _keep_wording(self, draft: MomentDraft, moment: ExistingMoment, origin_ids: set[UUID]) -> None:
        """Keep the wording of an existing moment, if it comes from a subject that has joined it."""
        worded_in = moment.value["metadata"].get("worded_in")
        origin_id = next((origin_id for origin_id in origin_ids if str(origin_id) == worded_in), None)
        if origin_id is None:
            return
        existing = Moment.model_validate(moment.value)
        draft.worded_in, draft.summary = origin_id, existing.summary
        draft.topics, draft.emotions, draft.people = (
            existing.topic_tags,
            existing.emotion_tags,
            existing.present_persons,
        )
        await self._duplicates.add(draft.id, draft.name, draft.summary)

    async def _join(self, moment_id: UUID, draft: MomentDraft) -> bool:
        """Add the sources of a draft to the moment that it repeats. Return False if that moment is gone."""
        rows = await self._run.fetch_owned("dreams/moments/moments", "statement_of_moment", moment_id)
        if not rows:
            # A moment that the owner wrote has no statement, and gets no sources.
            exists = bool(await self._run.fetch_owned("dreams/moments/moments", "moments_by_id", [moment_id]))
            if not exists:
                self._duplicates.remove(moment_id)
            return exists
        existing = _to_existing(rows[0])
        located = [each for each in (await self._fetch_sources([existing]))[existing.statement_id] if each.is_readable]
        known_ids = {each.source.ref.id for each in located}
        if draft.source_ids <= known_ids or len(known_ids) >= MAX_MOMENT_SOURCES:
            return True
        sources = [each.source for each in located]
        _add_sources(sources, draft.sources)
        origin_ids = {each.origin_id for each in located} | {draft.origin_id}
        moment = Moment.model_validate({**existing.value, "id": moment_id})
        if len(origin_ids) > 1:
            moment.metadata = {**moment.metadata, "occurrences": len(origin_ids)}
        await self._take_later_wording(moment, draft, existing.subject)
        claim = RowClaim(
            entity=moment, sources=tuple(sources), confidence=existing.confidence, valid_from=moment.starts_timestamp
        )
        changes = await self._run.store_claims(
            DREAM_NAME, existing.subject, [claim], only=[existing.statement_id], mark_seen=False
        )
        if changes.vanished:
            # A source has expired meanwhile, so the moment is gone, and the other sources have to be read again.
            self._duplicates.remove(moment_id)
            await self._rescan(known_ids)
        return not changes.vanished

    async def _take_later_wording(self, moment: Moment, draft: MomentDraft, subject: RowRef) -> None:
        """Give a moment the wording of a later draft that says something else, such as another number.

        Keep the old wording if yet another moment says just that.
        """
        is_later = moment.starts_timestamp is None or draft.starts_at > moment.starts_timestamp
        if not is_later or draft.summary == moment.summary or draft.origin_id == subject.id:
            return
        self._duplicates.remove(moment.id)
        if await self._duplicates.find(moment.name, draft.summary, {moment.id}) is None:
            moment.summary = draft.summary
            moment.topic_tags, moment.emotion_tags = draft.topics, draft.emotions
            moment.present_persons = draft.people
            moment.metadata = {**moment.metadata, "worded_in": str(draft.origin_id)}
        await self._duplicates.add(moment.id, moment.name, moment.summary)

    async def _remove_unwritten(self, subject: RowRef, kept: Sequence[MomentDraft]) -> None:
        """Remove drafts from the duplicates that were not stored, because the owner has refused them."""
        start = min((draft.first_index or 0 for draft in kept), default=0)
        existing = await self.fetch_existing(subject.id, start) if kept else []
        stored_ids = {moment.moment_id for moment in existing}
        for draft in kept:
            if draft.id not in stored_ids:
                self._duplicates.remove(draft.id)

    async def _rescan(self, source_ids: Collection[UUID]) -> None:
        """Let this dream read some sources again."""
        self.needs_another_pass = True
        await self._run.fetch("dreams/moments/moments", "rescan_sources", sorted(source_ids))

    async def _fetch_sources(self, moments: Sequence[ExistingMoment]) -> dict[UUID, list[LocatedSource]]:
        """Return the sources of moments by statement id."""
        sources: dict[UUID, list[LocatedSource]] = {moment.statement_id: [] for moment in moments}
        if moments:
            ids = list(sources)
            for row in await self._run.fetch("dreams/moments/moments", "sources_of_statements", ids, MAX_MESSAGE_CHARS):
                source = ClaimSource(RowRef(row["source_type"], row["source_id"]), row["key"])
                question = row["question"]
                is_readable = row["is_readable"] and (question is None or bool(mask_other_kinds(question).strip()))
                sources[row["statement_id"]].append(LocatedSource(source, row["origin_id"], is_readable))
        return sources


def _to_existing(row: Any) -> ExistingMoment:
    subject = RowRef(row["subject_type"], row["subject_id"])
    return ExistingMoment(row["id"], row["entity_id"], row["value"], row["confidence"], subject)


def _is_outdated(located: LocatedSource, subject: RowRef, own_ids: Collection[UUID]) -> bool:
    """Return whether a moment of a session has a source that dreams do not read any more."""
    is_own_message = subject.type == "sessions" and located.origin_id == subject.id
    return not located.is_readable or (is_own_message and located.source.ref.id not in own_ids)


def _find_same_moment(
    draft: MomentDraft, moments: Sequence[ExistingMoment], sources: dict[UUID, list[LocatedSource]]
) -> ExistingMoment | None:
    """Return the moment with mostly the same sources as a draft, by the same rule as the ledger."""
    best, most = None, 0
    for moment in moments:
        source_ids = {located.source.ref.id for located in sources[moment.statement_id]}
        common = len(draft.source_ids & source_ids)
        if common > most and common * 2 >= min(len(draft.source_ids), len(source_ids)):
            best, most = moment, common
    return best


def _add_sources(sources: list[ClaimSource], more: Sequence[ClaimSource]) -> None:
    """Append those of `more` that are not in `sources` yet."""
    known = {source.ref for source in sources}
    sources.extend(source for source in more if source.ref not in known)
