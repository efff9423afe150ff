"""Ledger: turns claims into statements, each with its sources, and lets the tables say what the statements say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

from rem.db.sql import fill, identifier, query
from rem.dreaming.claim import Changes, Claim, EdgeClaim, FieldClaim, Ref, RowClaim, Source

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store

_MOST_NAMES = 1000
_Place: TypeAlias = tuple[str, Ref, str]
"""Of which entity something is said, and what: the kind, the entity, the name."""
_GIVEN_BY_LEDGER = frozenset(
    {
        *("id", "tenant_id", "user_id", "key", "created_at", "updated_at", "deleted_at", "graph_edges"),
        *("origin", "sources", "run_id", "confidence", "valid_from", "valid_to"),
    }
)


@dataclass(frozen=True, slots=True)
class _Live:
    """A statement that stands."""

    id: UUID
    kind: str
    entity: Ref
    name: str
    value: Any
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None
    source_ids: frozenset[UUID]

    @property
    def place(self) -> _Place:
        return self.kind, self.entity, self.name


@dataclass(frozen=True, slots=True)
class _Draft:
    """A claim on its way to become a statement."""

    claim: Claim
    kind: str
    entity: Ref
    name: str
    value: Any
    valid_to: datetime | None = None

    @property
    def place(self) -> _Place:
        return self.kind, self.entity, self.name

    @property
    def since(self) -> datetime | None:
        """What holds one at a time may have held more than once."""
        is_exclusive = isinstance(self.claim, EdgeClaim) and self.claim.is_exclusive
        return self.claim.valid_from if is_exclusive else None

    @property
    def source_ids(self) -> frozenset[UUID]:
        return frozenset(source.ref.id for source in self.claim.sources)

    def says_the_same(self, live: _Live) -> bool:
        """Whether nothing would change."""
        return (
            self.value == live.value
            and self.name == live.name
            and self.source_ids == live.source_ids
            and self.claim.valid_from == live.valid_from
            and self.valid_to == live.valid_to
            and abs(self.claim.confidence - (live.confidence or 0.0)) < 1e-6
        )


@dataclass(slots=True)
class _Taken:
    """What claims of the same batch have got already."""

    statements: set[UUID] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


class Ledger:
    """The statements of one owner, written by one run. To be used inside one transaction."""

    def __init__(self, store: Store, connection: Connection, run_id: UUID) -> None:
        self._connection = connection
        self._tenant_id, self._user_id = store.scope.tenant_id, store.scope.user_id
        self._run_id = run_id

    async def replace(
        self,
        dream: str,
        subject: Ref,
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
        claims = [replace(claim, valid_from=_storable(claim.valid_from)) for claim in claims]
        await self._fetch("lock_subject", subject.id, table=subject.type)
        standing = await self._lock_sources(claims)
        whole = [claim for claim in claims if claim.sources and all(source.ref in standing for source in claim.sources)]
        changes.vanished = len(claims) - len(whole)
        await self._notice(dream, subject, whole, only)
        live = await self._live(dream, subject, keep, only)
        drafts = []
        taken = _Taken()
        for claim in whole:
            draft = await self._draft(dream, _with_expiry(claim, standing), live, taken)
            if draft is None:
                changes.refused += 1
            else:
                drafts.append(draft)
        await self._write(dream, subject, drafts, live, changes)
        return changes

    async def _lock_sources(self, claims: Iterable[Claim]) -> dict[Ref, datetime | None]:
        """The sources that are still there, with when they lapse."""
        by_type: dict[str, set[UUID]] = defaultdict(set)
        for claim in claims:
            for source in claim.sources:
                by_type[source.ref.type].add(source.ref.id)
        standing: dict[Ref, datetime | None] = {}
        for kind in sorted(by_type):
            statement = fill(query("dreaming", "lock_sources"), table=identifier(kind))
            for row_id, expires_at in await self._connection.fetch(
                statement, self._tenant_id, self._user_id, sorted(by_type[kind])
            ):
                standing[Ref(kind, row_id)] = expires_at
        return standing

    async def _notice(self, dream: str, subject: Ref, claims: Iterable[Claim], only: Collection[UUID] | None) -> None:
        """See first what the owner has changed since, or it would be written over."""
        entities = {live.entity for live in await self._live(dream, subject, (), only)}
        entities |= {claim.src for claim in claims if isinstance(claim, EdgeClaim)}
        entities |= {claim.entity for claim in claims if isinstance(claim, FieldClaim)}
        await self._for_each("notice", entities)

    async def _for_each(self, name: str, entities: Collection[Ref]) -> None:
        if entities:
            inorder = sorted(entities)
            await self._connection.fetch(
                query("dreaming", name), self._tenant_id, [ref.type for ref in inorder], [ref.id for ref in inorder]
            )

    async def _live(
        self, dream: str, subject: Ref, keep: Collection[UUID], only: Collection[UUID] | None = None
    ) -> list[_Live]:
        rows = await self._connection.fetch(
            query("dreaming", "live_of_subject"),
            *(self._tenant_id, self._user_id, dream, subject.type, subject.id, list(keep)),
            None if only is None else list(only),
        )
        return [
            _Live(
                row["id"],
                row["kind"],
                Ref(row["entity_type"], row["entity_id"]),
                row["name"],
                row["value"],
                row["confidence"],
                row["valid_from"],
                row["valid_to"],
                frozenset(row["source_ids"]),
            )
            for row in rows
        ]

    async def _draft(self, dream: str, claim: Claim, live: Sequence[_Live], taken: _Taken) -> _Draft | None:
        """What a claim would be as a statement; None if its owner took it back."""
        if isinstance(claim, RowClaim):
            return await self._draft_row(dream, claim, live, taken)
        if isinstance(claim, EdgeClaim):
            edge = claim.edge
            kind = str(edge.properties.get("dst_entity_type") or "")
            name = f"{edge.rel_type} {kind}/{await self._key_of(edge.dst)}"
            value: Any = edge.model_dump(mode="json", exclude={"origin"})
            draft = _Draft(claim, "edge", claim.src, name, value)
        else:
            draft = _Draft(claim, "field", claim.entity, claim.field, claim.value)
        is_refused = await self._connection.fetchval(
            query("dreaming", "refused_part"),
            *(self._tenant_id, draft.entity.type, draft.entity.id, draft.kind, dream, draft.name),
        )
        return None if is_refused else draft

    async def _draft_row(self, dream: str, claim: RowClaim, live: Sequence[_Live], taken: _Taken) -> _Draft | None:
        if claim.is_named:
            return await self._draft_named(dream, claim)
        table = claim.entity.entity_type.table
        earlier = _same_row(claim, table, [said for said in live if said.id not in taken.statements])
        source_ids = [source.ref.id for source in claim.sources]
        if earlier is not None:
            taken.statements.add(earlier.id)
            value = {**_row_value(claim), "name": earlier.value["name"]}
            return _Draft(claim, "row", earlier.entity, earlier.name, value, claim.valid_to)
        refused = await self._connection.fetchval(
            query("dreaming", "refused_by_sources"), self._tenant_id, self._user_id, dream, source_ids
        )
        if refused:
            return None
        value = _row_value(claim)
        value["name"], key, row_id = await self._free_name(table, value["name"], claim.entity.id, taken)
        return _Draft(claim, "row", Ref(table, row_id), key, value, claim.valid_to)

    async def _draft_named(self, dream: str, claim: RowClaim) -> _Draft | None:
        table, value = claim.entity.entity_type.table, _row_value(claim)
        key = await self._key_of(value["name"])
        named = query("dreaming", "named_entity"), self._tenant_id, self._user_id, dream, key, table
        known = await self._connection.fetchval(*named)
        if known is not None:
            # Its owner may have changed what other subjects made.
            await self._for_each("notice", {Ref(table, known)})
            known = await self._connection.fetchval(*named)
        if known is None:
            refused = query("dreaming", "refused_name")
            if await self._connection.fetchval(refused, self._tenant_id, self._user_id, dream, key):
                return None
            for row_id, origin, is_deleted in await self._holders(table, key):
                if is_deleted or not origin.startswith("dream:"):
                    # The owner has such a row, or had one and does not want it.
                    return None
                known = row_id
        return _Draft(claim, "row", Ref(table, known or claim.entity.id), key, value, claim.valid_to)

    async def _free_name(self, table: str, name: str, row_id: UUID, taken: _Taken) -> tuple[str, str, UUID]:
        """A name that no row of the owner's has, its key, and the id of the row to write."""
        for number in range(1, _MOST_NAMES):
            candidate = name if number == 1 else f"{name} ({number})"
            key = await self._key_of(candidate)
            holders = await self._holders(table, key)
            if key in taken.keys:
                continue
            if not holders:
                taken.keys.add(key)
                return candidate, key, row_id
            orphans = [holder["id"] for holder in holders if await self._is_orphan(table, holder)]
            if len(orphans) == len(holders) == 1:
                # A row that came from a dump: the dream has it again.
                taken.keys.add(key)
                return candidate, key, orphans[0]
        unique = f"{name} {uuid4()}"
        return unique, await self._key_of(unique), row_id

    async def _is_orphan(self, table: str, holder: Any) -> bool:
        """Whether a row was dreamt and no statement speaks for it."""
        return (
            holder["origin"].startswith("dream:")
            and not holder["is_deleted"]
            and not await self._connection.fetchval(query("dreaming", "has_statement"), self._tenant_id, holder["id"])
        )

    async def _holders(self, table: str, key: str) -> list[Any]:
        statement = fill(query("dreaming", "holders_of_key"), table=identifier(table))
        return list(await self._connection.fetch(statement, self._tenant_id, self._user_id, key))

    async def _key_of(self, label: str) -> str:
        return str(await self._connection.fetchval(query("dreaming", "key_of"), label))

    async def _write(
        self, dream: str, subject: Ref, drafts: Sequence[_Draft], live: Sequence[_Live], changes: Changes
    ) -> None:
        """End what is not said any more, say what is new, and let the rows show it."""
        fresh: dict[tuple[_Place, datetime | None], _Draft] = {}
        stays: set[UUID] = set()
        for draft in drafts:
            same = next((said for said in live if said.place == draft.place and draft.says_the_same(said)), None)
            if same is not None:
                stays.add(same.id)
                changes.unchanged += 1
            else:
                fresh[draft.place, draft.since] = draft
        successors = {draft.place: draft for draft in fresh.values()}
        ended = [said for said in live if said.id not in stays]
        touched = {said.entity for said in ended}
        for said in ended:
            successor = successors.get(said.place)
            await self._end([said.id], successor.claim.valid_from if successor and said.kind != "row" else None)
        changes.ended = len(ended)
        for draft in fresh.values():
            if not await self._say(dream, subject, draft):
                changes.unchanged += 1
                continue
            touched.add(draft.entity)
            changes.said += 1
            changes.rows[draft.kind] = changes.rows.get(draft.kind, 0) + 1
        # Rows last: one that goes takes statements along, and edges that are not drawn yet would seem taken back.
        rows = {said.entity for said in ended if said.kind == "row"}
        await self._for_each("project", touched - rows)
        await self._for_each("project", rows)

    async def _end(self, statement_ids: Sequence[UUID], at: datetime | None) -> None:
        await self._connection.execute(
            query("dreaming", "end_statements"), self._tenant_id, list(statement_ids), self._run_id, at
        )

    async def _say(self, dream: str, subject: Ref, draft: _Draft) -> bool:
        """Write a statement down; whether it was not on record yet."""
        claim, state, valid_to = draft.claim, "live", draft.valid_to
        if isinstance(claim, EdgeClaim) and claim.is_exclusive:
            newer = await self._end_older(draft, claim)
            if newer is not None:
                state, valid_to = "ended", newer
            same = draft.entity.type, draft.entity.id, draft.name, draft.value, claim.valid_from, claim.edge.rel_type
            if await self._connection.fetchval(
                query("dreaming", "is_on_record"), self._tenant_id, dream, subject.id, *same
            ):
                return False
        statement_id = uuid4()
        await self._connection.execute(
            query("dreaming", "state"),
            *(self._tenant_id, statement_id, self._user_id, self._run_id, dream, subject.type, subject.id),
            *(draft.kind, draft.entity.type, draft.entity.id, draft.name, draft.value),
            [source.key for source in claim.sources],
            *(claim.confidence, claim.valid_from, valid_to, state),
        )
        await self._connection.execute(
            query("dreaming", "state_sources"),
            *(self._tenant_id, statement_id),
            [source.ref.type for source in claim.sources],
            [source.ref.id for source in claim.sources],
        )
        return True

    async def _end_older(self, draft: _Draft, claim: EdgeClaim) -> datetime | None:
        """End what was true before this; when the contrary came up, if that is newer."""
        others = await self._connection.fetch(
            query("dreaming", "exclusive_edges"),
            *(self._tenant_id, draft.entity.type, draft.entity.id, claim.edge.rel_type, draft.name),
        )
        since = claim.valid_from
        newer: list[datetime] = [
            other["valid_from"] for other in others if since and other["valid_from"] and other["valid_from"] > since
        ]
        if newer:
            return min(newer)
        if others:
            await self._end([other["id"] for other in others], since)
        return None

    async def _fetch(self, name: str, row_id: UUID, *, table: str) -> None:
        await self._connection.fetch(fill(query("dreaming", name), table=identifier(table)), self._tenant_id, row_id)


def _storable(at: datetime | None) -> datetime | None:
    """A time that PostgreSQL gives back as it was: the driver takes the first moment of year 1 for minus infinity."""
    return at if at is None or at.replace(tzinfo=None) > datetime.min else at + timedelta(microseconds=1)


def _row_value(claim: RowClaim) -> dict[str, Any]:
    """The fields that a row claim sets, as JSON."""
    given = claim.entity.given_fields - _GIVEN_BY_LEDGER
    return claim.entity.model_dump(mode="json", include=set(given) | {"name"})


def _same_row(claim: RowClaim, table: str, live: Sequence[_Live]) -> _Live | None:
    """The statement that was made from mostly the same sources, if there is one."""
    own = {source.ref.id for source in claim.sources}
    best, most = None, 0
    for said in live:
        if said.kind != "row" or said.entity.type != table:
            continue
        common = len(own & said.source_ids)
        if common > most and common * 2 >= min(len(own), len(said.source_ids)):
            best, most = said, common
    return best


def _with_expiry(claim: Claim, standing: dict[Ref, datetime | None]) -> Claim:
    """What is made from something that lapses lapses with it."""
    if not isinstance(claim, RowClaim):
        return claim
    times = [at for source in claim.sources if (at := standing[source.ref]) is not None]
    if not times:
        return claim
    return replace(claim, entity=claim.entity.model_copy(update={"expires_at": min(times)}))


__all__ = ["Ledger", "Ref", "Source"]
