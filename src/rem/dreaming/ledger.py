"""Ledger: turns claims into statements, each with its sources, and lets the tables say what the statements say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rem.dreaming.claims import Changes, Claim, EdgeClaim, FieldClaim, RowClaim, RowRef
from rem.dreaming.matcher import LiveStatement, StatementDraft, StatementMatcher, StatementSlot
from rem.dreaming.owner_queries import OwnerQueries

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store


class Ledger:
    """The statements of one owner, written by one run. To be used inside one transaction."""

    def __init__(self, store: Store, connection: Connection, run_id: UUID) -> None:
        self._owner = OwnerQueries(connection, store.scope.tenant_id, store.scope.user_id)
        self._run_id = run_id

    async def replace_statements(
        self,
        dream: str,
        subject: RowRef,
        claims: Sequence[Claim],
        *,
        keep: Collection[UUID] = (),
        only: Collection[UUID] | None = None,
    ) -> Changes:
        """Let what a dream says of a subject be these claims, and no others but the statements to keep.

        With `only`, these statements are replaced, and all others kept. What is said already is left as it is. What the
        owner took back is not said again, nor what has lost a source.
        """
        changes = Changes()
        claims = [replace(claim, valid_from=_to_storable_time(claim.valid_from)) for claim in claims]
        await self._owner.fetch("lock_subject", subject.id, table=subject.type)
        standing = await self._lock_sources(claims)
        whole = [
            _set_expiry(claim, standing)
            for claim in claims
            if claim.sources and all(source.ref in standing for source in claim.sources)
        ]
        changes.vanished = len(claims) - len(whole)
        live = await self._live(dream, subject, whole, keep, only)
        found = await StatementMatcher(self._owner, dream).match(whole, live) if whole else []
        drafts = [draft for draft in found if draft is not None]
        changes.refused = len(found) - len(drafts)
        await self._write(dream, subject, drafts, live, changes)
        return changes

    async def _lock_sources(self, claims: Iterable[Claim]) -> dict[RowRef, datetime | None]:
        """The sources that are still there, with when they lapse."""
        by_type: dict[str, set[UUID]] = defaultdict(set)
        for claim in claims:
            for source in claim.sources:
                by_type[source.ref.type].add(source.ref.id)
        standing: dict[RowRef, datetime | None] = {}
        for kind in sorted(by_type):
            for row_id, expires_at in await self._owner.fetch_owned("lock_sources", sorted(by_type[kind]), table=kind):
                standing[RowRef(kind, row_id)] = expires_at
        return standing

    async def _live(
        self,
        dream: str,
        subject: RowRef,
        claims: Iterable[Claim],
        keep: Collection[UUID],
        only: Collection[UUID] | None,
    ) -> list[LiveStatement]:
        """The statements that are to be replaced; first it is seen what the owner has changed since, or it would be
        written over."""
        which = "of_subject" if only is None else "among"
        parameters: tuple[Any, ...] = (dream, subject.type, subject.id) if only is None else (list(only),)
        touched = {claim.src for claim in claims if isinstance(claim, EdgeClaim)}
        touched |= {claim.entity for claim in claims if isinstance(claim, FieldClaim)}
        if touched or only is None or only:
            refs = [ref.type for ref in touched], [ref.id for ref in touched]
            await self._owner.fetch_owned(f"notice_{which}", *refs, *parameters)
        rows = await self._owner.fetch_owned(f"live_{which}", *parameters) if only is None or only else []
        return [
            LiveStatement(
                row["id"],
                row["kind"],
                RowRef(row["entity_type"], row["entity_id"]),
                row["name"],
                row["value"],
                row["confidence"],
                row["valid_from"],
                row["valid_to"],
                frozenset(row["source_ids"]),
            )
            for row in rows
            if row["id"] not in keep
        ]

    async def _write(
        self,
        dream: str,
        subject: RowRef,
        drafts: Sequence[StatementDraft],
        live: Sequence[LiveStatement],
        changes: Changes,
    ) -> None:
        """End what is not said any more, say what is new, and let the rows show it."""
        fresh: dict[tuple[StatementSlot, datetime | None], StatementDraft] = {}
        stays: set[UUID] = set()
        by_place: dict[StatementSlot, list[LiveStatement]] = defaultdict(list)
        for said in live:
            by_place[said.place].append(said)
        for draft in drafts:
            same = next((said for said in by_place[draft.place] if draft.equals_statement(said)), None)
            if same is not None:
                stays.add(same.id)
                changes.unchanged += 1
            else:
                fresh[draft.place, draft.since] = draft
        successors = {draft.place: draft for draft in fresh.values()}
        ended = [said for said in live if said.id not in stays]
        changes.ended = len(ended)
        await self._end({said.id: _find_end(said, successors.get(said.place)) for said in ended})
        said_now = await self._say(dream, subject, list(fresh.values()))
        changes.unchanged += len(fresh) - len(said_now)
        changes.said = len(said_now)
        for draft in said_now:
            changes.rows[draft.kind] = changes.rows.get(draft.kind, 0) + 1
        await self._show([*ended, *said_now], {said.entity for said in ended if said.kind == "row"})

    async def _show(self, changed: Sequence[LiveStatement | StatementDraft], ended_rows: Collection[RowRef]) -> None:
        """Let the rows say what the statements say by now."""
        rewritten = {one.entity for one in changed if one.kind != "edge"} - set(ended_rows)
        relinked = {one.entity for one in changed} - rewritten - set(ended_rows)
        await self._project("project_edges", relinked)
        await self._project("project", rewritten)
        # Last: a row that goes takes statements along, and edges that are not drawn yet would seem taken back.
        await self._project("project", ended_rows)

    async def _project(self, how: str, entities: Collection[RowRef]) -> None:
        if entities:
            inorder = sorted(entities)
            await self._owner.fetch(how, [ref.type for ref in inorder], [ref.id for ref in inorder])

    async def _end(self, statements: dict[UUID, datetime | None]) -> None:
        """End statements, with when what they say ceased to hold, if that is known."""
        if statements:
            await self._owner.fetch("end_statements", list(statements), list(statements.values()), self._run_id)

    async def _say(self, dream: str, subject: RowRef, drafts: Sequence[StatementDraft]) -> list[StatementDraft]:
        """Write statements down; those that were not on record yet."""
        said: list[StatementDraft] = []
        waiting: list[tuple[StatementDraft, datetime | None]] = []
        for draft in drafts:
            newer = None
            if draft.exclusive is not None:
                # It is held against what was said before it.
                await self._state(dream, subject, waiting)
                waiting = []
                newer = await self._end_older(draft, draft.exclusive)
                if await self._is_on_record(dream, subject, draft, draft.exclusive):
                    continue
            said.append(draft)
            waiting.append((draft, newer))
        await self._state(dream, subject, waiting)
        return said

    async def _state(
        self, dream: str, subject: RowRef, drafts: Sequence[tuple[StatementDraft, datetime | None]]
    ) -> None:
        """Write statements down in their order. What something newer has ended already comes with the end."""
        if not drafts:
            return
        ids = [uuid4() for _ in drafts]
        rows = [_to_row(statement_id, draft, newer) for statement_id, (draft, newer) in zip(ids, drafts, strict=True)]
        await self._owner.fetch_owned("state", self._run_id, dream, subject.type, subject.id, rows)
        sources = [
            (statement_id, source.ref)
            for statement_id, (draft, _) in zip(ids, drafts, strict=True)
            for source in draft.claim.sources
        ]
        refs = [ref.type for _, ref in sources], [ref.id for _, ref in sources]
        await self._owner.fetch("state_sources", [statement_id for statement_id, _ in sources], *refs)

    async def _is_on_record(self, dream: str, subject: RowRef, draft: StatementDraft, claim: EdgeClaim) -> bool:
        same = draft.entity.type, draft.entity.id, draft.name, draft.value, claim.valid_from, claim.edge.rel_type
        rows = await self._owner.fetch("is_on_record", dream, subject.id, *same)
        return bool(rows[0][0])

    async def _end_older(self, draft: StatementDraft, claim: EdgeClaim) -> datetime | None:
        """End what was true before this; when the contrary came up, if that is newer."""
        place = draft.entity.type, draft.entity.id, claim.edge.rel_type, draft.name
        others = await self._owner.fetch("exclusive_edges", *place)
        since = claim.valid_from
        newer: list[datetime] = [
            other["valid_from"] for other in others if since and other["valid_from"] and other["valid_from"] > since
        ]
        if newer:
            return min(newer)
        await self._end({other["id"]: since for other in others})
        return None


def _to_storable_time(at: datetime | None) -> datetime | None:
    """A time that PostgreSQL gives back as it was: the driver takes the first moment of year 1 for minus infinity."""
    return at if at is None or at.replace(tzinfo=None) > datetime.min else at + timedelta(microseconds=1)


def _find_end(said: LiveStatement, successor: StatementDraft | None) -> datetime | None:
    """When what a statement says ceased to hold: when what takes its place began to."""
    return successor.claim.valid_from if successor is not None and said.kind != "row" else None


def _to_row(statement_id: UUID, draft: StatementDraft, newer: datetime | None) -> dict[str, Any]:
    """A statement as it is stored."""
    claim = draft.claim
    return {
        "id": statement_id,
        "kind": draft.kind,
        "entity_type": draft.entity.type,
        "entity_id": draft.entity.id,
        "name": draft.name,
        "value": draft.value,
        "source_keys": [source.key for source in claim.sources],
        "confidence": claim.confidence,
        "valid_from": claim.valid_from,
        "valid_to": draft.valid_to if newer is None else newer,
        "state": "live" if newer is None else "ended",
    }


def _set_expiry(claim: Claim, standing: dict[RowRef, datetime | None]) -> Claim:
    """What is made from something that lapses lapses with it."""
    if not isinstance(claim, RowClaim):
        return claim
    times = [at for source in claim.sources if (at := standing[source.ref]) is not None]
    if not times:
        return claim
    return replace(claim, entity=claim.entity.model_copy(update={"expires_at": min(times)}))
