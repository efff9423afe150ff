"""Ledger: turns claims into statements with sources, and writes the result into the entity tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rem.dreams.claims import Changes, Claim, EdgeClaim, FieldClaim, RowClaim, RowRef
from rem.dreams.owner_queries import OwnerQueries
from rem.dreams.statement_matcher import LiveStatement, StatementDraft, StatementMatcher, StatementSlot
from rem.encryption.sealed_values import seal_statement

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store


class Ledger:
    """Writes the statements of one owner for one run. Use it inside one transaction."""

    def __init__(self, store: Store, connection: Connection, run_id: UUID) -> None:
        self._queries = OwnerQueries(connection, store.scope.tenant_id, store.scope.user_id)
        self._run_id = run_id
        self._sealer = store.executor.sealer

    async def fetch_statements(self, dream: str, subject_id: UUID) -> list[LiveStatement]:
        """Return the dream's live statements about a subject, in the order of `valid_from`."""
        rows = await self._queries.fetch_owned("statement_ids_of_subject", dream, subject_id, None)
        statements = await self._fetch_live([row["id"] for row in rows])
        return sorted(statements, key=lambda statement: statement.valid_from or datetime.max.replace(tzinfo=UTC))

    async def replace_statements(
        self,
        dream: str,
        subject: RowRef,
        claims: Sequence[Claim],
        *,
        keep: Collection[UUID] = (),
        only: Collection[UUID] | None = None,
    ) -> Changes:
        """Replace the dream's live statements about a subject by these claims, and return what changed.

        The statements in `keep` stay. With `only`, just these statements are replaced. A claim that equals a live
        statement leaves it as it is. A claim is not stored if the owner deleted or changed the same statement before,
        or if one of its sources is gone.
        """
        changes = Changes()
        claims = [replace(claim, valid_from=_to_storable_time(claim.valid_from)) for claim in claims]
        await self._queries.fetch("lock_subject", subject.id, table=subject.type)
        expiry_by_source = await self._lock_sources(claims)
        complete = [
            _set_expiry(claim, expiry_by_source)
            for claim in claims
            if claim.sources and all(source.ref in expiry_by_source for source in claim.sources)
        ]
        changes.vanished = len(claims) - len(complete)
        live = await self._fetch_replaced(dream, subject, complete, keep, only)
        matches = await StatementMatcher(self._queries, dream).match(complete, live) if complete else []
        drafts = [draft for draft in matches if draft is not None]
        changes.refused = len(matches) - len(drafts)
        await self._write(dream, subject, drafts, live, changes)
        return changes

    async def _lock_sources(self, claims: Iterable[Claim]) -> dict[RowRef, datetime | None]:
        """Lock the sources that still exist, and return when each of them expires."""
        ids_by_type: dict[str, set[UUID]] = defaultdict(set)
        for claim in claims:
            for source in claim.sources:
                ids_by_type[source.ref.type].add(source.ref.id)
        expiry_by_source: dict[RowRef, datetime | None] = {}
        for table in sorted(ids_by_type):
            rows = await self._queries.fetch_owned("lock_sources", sorted(ids_by_type[table]), table=table)
            expiry_by_source |= {RowRef(table, row_id): expires_at for row_id, expires_at in rows}
        return expiry_by_source

    async def _fetch_replaced(
        self,
        dream: str,
        subject: RowRef,
        claims: Iterable[Claim],
        keep: Collection[UUID],
        only: Collection[UUID] | None,
    ) -> list[LiveStatement]:
        """Return the statements to replace. First mark as refused what the owner has changed, or it would be lost."""
        if only is None:
            rows = await self._queries.fetch_owned("statement_ids_of_subject", dream, subject.id, subject.type)
            only = [row["id"] for row in rows]
        touched = {claim.src for claim in claims if isinstance(claim, EdgeClaim)}
        touched |= {claim.entity for claim in claims if isinstance(claim, FieldClaim)}
        if touched or only:
            refs = [ref.type for ref in touched], [ref.id for ref in touched]
            await self._queries.fetch_owned("detect_edits_of_statements", *refs, list(only))
        return [statement for statement in await self._fetch_live(only) if statement.id not in keep]

    async def _fetch_live(self, statement_ids: Collection[UUID]) -> list[LiveStatement]:
        """Return those of some statements that are live, oldest first."""
        rows = await self._queries.fetch_owned("live_statements", list(statement_ids)) if statement_ids else []
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
        ]

    async def _write(
        self,
        dream: str,
        subject: RowRef,
        drafts: Sequence[StatementDraft],
        live: Sequence[LiveStatement],
        changes: Changes,
    ) -> None:
        """End the live statements that no draft equals, store the new ones, and update the entity rows."""
        new: dict[tuple[StatementSlot, datetime | None], StatementDraft] = {}
        unchanged_ids: set[UUID] = set()
        by_slot: dict[StatementSlot, list[LiveStatement]] = defaultdict(list)
        for statement in live:
            by_slot[statement.slot].append(statement)
        for draft in drafts:
            equal = next((statement for statement in by_slot[draft.slot] if draft.equals_statement(statement)), None)
            if equal is not None:
                unchanged_ids.add(equal.id)
                changes.unchanged += 1
            else:
                new[draft.slot, draft.exclusive_since] = draft
        successors = {draft.slot: draft for draft in new.values()}
        ended = [statement for statement in live if statement.id not in unchanged_ids]
        changes.ended = len(ended)
        await self._end({statement.id: _find_end(statement, successors.get(statement.slot)) for statement in ended})
        stored = await self._store(dream, subject, list(new.values()))
        changes.unchanged += len(new) - len(stored)
        changes.said = len(stored)
        for draft in stored:
            changes.rows[draft.kind] = changes.rows.get(draft.kind, 0) + 1
        await self._update_rows([*ended, *stored], {statement.entity for statement in ended if statement.kind == "row"})

    async def _update_rows(
        self, changed: Sequence[LiveStatement | StatementDraft], ended_rows: Collection[RowRef]
    ) -> None:
        """Write the live statements about the changed entities into their rows."""
        rewritten = {statement.entity for statement in changed if statement.kind != "edge"} - set(ended_rows)
        relinked = {statement.entity for statement in changed} - rewritten - set(ended_rows)
        await self._project("project_edges", relinked)
        await self._project("project", rewritten)
        # Last: a deleted row takes its statements along, and edges not drawn yet would look removed by the owner.
        await self._project("project", ended_rows)

    async def _project(self, name: str, entities: Collection[RowRef]) -> None:
        if entities:
            refs = sorted(entities)
            await self._queries.fetch(name, [ref.type for ref in refs], [ref.id for ref in refs])

    async def _end(self, ends: dict[UUID, datetime | None]) -> None:
        """End statements by id, each with the time at which it stopped being true, if that is known."""
        if ends:
            await self._queries.fetch("end_statements", list(ends), list(ends.values()), self._run_id)

    async def _store(self, dream: str, subject: RowRef, drafts: Sequence[StatementDraft]) -> list[StatementDraft]:
        """Store drafts as statements, and return those that were not on record yet."""
        stored: list[StatementDraft] = []
        batch: list[tuple[StatementDraft, datetime | None]] = []
        for draft in drafts:
            ended_at = None
            if draft.exclusive is not None:
                # An exclusive edge is compared with the statements before it, so these are stored first.
                await self._insert(dream, subject, batch)
                batch = []
                ended_at = await self._end_older(draft, draft.exclusive)
                if await self._is_on_record(dream, subject, draft, draft.exclusive):
                    continue
            stored.append(draft)
            batch.append((draft, ended_at))
        await self._insert(dream, subject, batch)
        return stored

    async def _insert(
        self, dream: str, subject: RowRef, drafts: Sequence[tuple[StatementDraft, datetime | None]]
    ) -> None:
        """Insert statements in their order. One that a newer statement contradicts is inserted as ended."""
        if not drafts:
            return
        ids = [uuid4() for _ in drafts]
        rows = [
            self._seal(_to_row(statement_id, draft, end))
            for statement_id, (draft, end) in zip(ids, drafts, strict=True)
        ]
        await self._queries.fetch_owned("insert_statements", self._run_id, dream, subject.type, subject.id, rows)
        sources = [
            (statement_id, source.ref)
            for statement_id, (draft, _) in zip(ids, drafts, strict=True)
            for source in draft.claim.sources
        ]
        refs = [ref.type for _, ref in sources], [ref.id for _, ref in sources]
        await self._queries.fetch("insert_sources", [statement_id for statement_id, _ in sources], *refs)

    def _seal(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row of a statement with its texts encrypted for the entity that it is about."""
        if self._sealer is None:
            return row
        value = seal_statement(self._sealer, row, self._queries.tenant_id)
        return {**row, "value": value}

    async def _is_on_record(self, dream: str, subject: RowRef, draft: StatementDraft, claim: EdgeClaim) -> bool:
        """Return whether the same edge was stored before and was ended by a newer one that is still live."""
        edge = draft.entity.type, draft.entity.id, draft.name, draft.value, claim.valid_from, claim.edge.rel_type
        rows = await self._queries.fetch("is_on_record", dream, subject.id, *edge)
        return bool(rows[0][0])

    async def _end_older(self, draft: StatementDraft, claim: EdgeClaim) -> datetime | None:
        """End the older edges that an exclusive edge contradicts.

        If a newer edge contradicts it, end nothing and return the time at which the first newer one began.
        """
        edge = draft.entity.type, draft.entity.id, claim.edge.rel_type, draft.name
        others = await self._queries.fetch("exclusive_edges", *edge)
        since = claim.valid_from
        newer: list[datetime] = [
            other["valid_from"] for other in others if since and other["valid_from"] and other["valid_from"] > since
        ]
        if newer:
            return min(newer)
        await self._end({other["id"]: since for other in others})
        return None


def _to_storable_time(at: datetime | None) -> datetime | None:
    """Return a time that the driver gives back unchanged: it takes the first instant of year 1 for -infinity."""
    return at if at is None or at.replace(tzinfo=None) > datetime.min else at + timedelta(microseconds=1)


def _find_end(statement: LiveStatement, successor: StatementDraft | None) -> datetime | None:
    """Return the time at which a statement stopped being true: when its successor became true."""
    return successor.claim.valid_from if successor is not None and statement.kind != "row" else None


def _to_row(statement_id: UUID, draft: StatementDraft, ended_at: datetime | None) -> dict[str, Any]:
    """Return the draft as a row of `statements`."""
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
        "valid_to": draft.valid_to if ended_at is None else ended_at,
        "state": "live" if ended_at is None else "ended",
    }


def _set_expiry(claim: Claim, expiry_by_source: dict[RowRef, datetime | None]) -> Claim:
    """Return the claim with the expiry of the source that expires first."""
    if not isinstance(claim, RowClaim):
        return claim
    expiries = [at for source in claim.sources if (at := expiry_by_source[source.ref]) is not None]
    if not expiries:
        return claim
    return replace(claim, entity=claim.entity.model_copy(update={"expires_at": min(expiries)}))
