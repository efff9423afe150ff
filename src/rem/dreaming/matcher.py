"""Drafting: which statement each claim would be, and which of them their owner took back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

from rem.dreaming.claims import Claim, EdgeClaim, FieldClaim, RowClaim, RowRef

if TYPE_CHECKING:
    from rem.dreaming.owner_queries import OwnerQueries

StatementSlot: TypeAlias = tuple[str, RowRef, str]
"""Of which entity something is said, and what: the kind, the entity, the name."""
MAX_NAME_ATTEMPTS = 1000
LEDGER_FIELDS = frozenset(
    {
        *("id", "tenant_id", "user_id", "key", "created_at", "updated_at", "deleted_at", "graph_edges"),
        *("origin", "sources", "run_id", "confidence", "valid_from", "valid_to"),
    }
)


@dataclass(frozen=True, slots=True)
class LiveStatement:
    """A statement that stands."""

    id: UUID
    kind: str
    entity: RowRef
    name: str
    value: Any
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None
    source_ids: frozenset[UUID]

    @property
    def place(self) -> StatementSlot:
        """Where it stands."""
        return self.kind, self.entity, self.name


@dataclass(frozen=True, slots=True)
class StatementDraft:
    """A claim on its way to become a statement."""

    claim: Claim
    kind: str
    entity: RowRef
    name: str
    value: Any
    valid_to: datetime | None = None

    @property
    def place(self) -> StatementSlot:
        """Where it would stand."""
        return self.kind, self.entity, self.name

    @property
    def exclusive(self) -> EdgeClaim | None:
        """The claim, if what it says holds one at a time."""
        return self.claim if isinstance(self.claim, EdgeClaim) and self.claim.is_exclusive else None

    @property
    def since(self) -> datetime | None:
        """What holds one at a time may have held more than once."""
        return self.claim.valid_from if self.exclusive else None

    @property
    def source_ids(self) -> frozenset[UUID]:
        """What it is made from."""
        return frozenset(source.ref.id for source in self.claim.sources)

    def equals_statement(self, live: LiveStatement) -> bool:
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


class StatementMatcher:
    """Looks up for all claims of a dream at once what each of them would be. Inside the ledger's transaction."""

    def __init__(self, owner: OwnerQueries, dream: str) -> None:
        self._owner = owner
        self._dream = dream
        self._keys: dict[str, str] = {}
        self._held: dict[tuple[str, str], list[Any]] = {}
        self._taken = _Taken()

    async def match(self, claims: Sequence[Claim], live: Sequence[LiveStatement]) -> list[StatementDraft | None]:
        """What each claim would be as a statement; None if its owner took it back."""
        await self._read_keys(_label(claim) for claim in claims if not isinstance(claim, FieldClaim))
        numbered = dict(enumerate(claims))
        rows = {number: claim for number, claim in numbered.items() if isinstance(claim, RowClaim)}
        parts = {number: claim for number, claim in numbered.items() if not isinstance(claim, RowClaim)}
        found = await self._parts(parts)
        found |= await self._named({number: claim for number, claim in rows.items() if claim.is_named})
        found |= await self._rows({number: claim for number, claim in rows.items() if not claim.is_named}, live)
        return [found[number] for number in numbered]

    async def _parts(self, claims: Mapping[int, EdgeClaim | FieldClaim]) -> dict[int, StatementDraft | None]:
        """Edges and fields."""
        drafts: dict[int, StatementDraft | None] = {number: self._part(claim) for number, claim in claims.items()}
        if drafts:
            asked = [draft for draft in drafts.values() if draft is not None]
            places = [[draft.entity.type for draft in asked], [draft.entity.id for draft in asked]]
            names = [[draft.kind for draft in asked], [draft.name for draft in asked]]
            for row in await self._owner.fetch("refused_parts", self._dream, list(drafts), *places, *names):
                drafts[row["number"]] = None
        return drafts

    def _part(self, claim: EdgeClaim | FieldClaim) -> StatementDraft:
        if isinstance(claim, EdgeClaim):
            kind = str(claim.edge.properties.get("dst_entity_type") or "")
            name = f"{claim.edge.rel_type} {kind}/{self._keys[claim.edge.dst]}"
            return StatementDraft(
                claim, "edge", claim.src, name, claim.edge.model_dump(mode="json", exclude={"origin"})
            )
        return StatementDraft(claim, "field", claim.entity, claim.field, claim.value)

    async def _named(self, claims: Mapping[int, RowClaim]) -> dict[int, StatementDraft | None]:
        """Rows whose name is what they are."""
        drafts: dict[int, StatementDraft | None] = {}
        by_table: dict[str, list[int]] = {}
        for number, claim in claims.items():
            by_table.setdefault(claim.entity.entity_type.table, []).append(number)
        for table, numbers in by_table.items():
            keys = {number: self._keys[_label(claims[number])] for number in numbers}
            ids = await self._ids_of_names(table, set(keys.values()))
            for number, key in keys.items():
                claim = claims[number]
                entity = RowRef(table, ids.get(key) or claim.entity.id)
                drafts[number] = (
                    StatementDraft(claim, "row", entity, key, _to_row_value(claim), claim.valid_to)
                    if key in ids
                    else None
                )
        return drafts

    async def _rows(
        self, claims: Mapping[int, RowClaim], live: Sequence[LiveStatement]
    ) -> dict[int, StatementDraft | None]:
        """Rows that are what they were made from."""
        drafts: dict[int, StatementDraft | None] = {}
        fresh: dict[int, RowClaim] = {}
        for number, claim in claims.items():
            table = claim.entity.entity_type.table
            earlier = _find_same_row(claim, table, [said for said in live if said.id not in self._taken.statements])
            if earlier is None:
                fresh[number] = claim
                continue
            self._taken.statements.add(earlier.id)
            value = {**_to_row_value(claim), "name": earlier.value["name"]}
            drafts[number] = StatementDraft(claim, "row", earlier.entity, earlier.name, value, claim.valid_to)
        refused = await self._refused_by_sources(fresh)
        drafts |= dict.fromkeys(refused)
        said = {number: claim for number, claim in fresh.items() if number not in refused}
        for table in {claim.entity.entity_type.table for claim in said.values()}:
            await self._read_holders(table, {self._keys[_label(claim)] for claim in said.values()})
        for number, claim in said.items():
            drafts[number] = await self._with_free_name(claim)
        return drafts

    async def _refused_by_sources(self, claims: Mapping[int, RowClaim]) -> set[int]:
        """The claims of which the owner took back a row that was made from mostly the same sources."""
        pairs = [(number, source.ref.id) for number, claim in claims.items() for source in claim.sources]
        if not pairs:
            return set()
        rows = await self._owner.fetch_owned(
            "refused_by_sources", self._dream, [n for n, _ in pairs], [i for _, i in pairs]
        )
        return {row["number"] for row in rows}

    async def _with_free_name(self, claim: RowClaim) -> StatementDraft:
        """The claim under a name that no row of the owner's has."""
        table, value = claim.entity.entity_type.table, _to_row_value(claim)
        wanted, row_id = value["name"], claim.entity.id
        for number in range(1, MAX_NAME_ATTEMPTS):
            value["name"] = wanted if number == 1 else f"{wanted} ({number})"
            key = await self._key_of(value["name"])
            if key in self._taken.keys:
                continue
            await self._read_holders(table, {key})
            holders = self._held[table, key]
            if len(holders) == 1 and await self._is_orphan(holders[0]):
                # A row that came from a dump: the dream has it again.
                row_id, holders = holders[0]["id"], []
            if not holders:
                break
        else:
            value["name"] = f"{wanted} {uuid4()}"
            key = await self._key_of(value["name"])
        self._taken.keys.add(key)
        return StatementDraft(claim, "row", RowRef(table, row_id), key, value, claim.valid_to)

    async def _is_orphan(self, holder: Any) -> bool:
        """Whether a row was dreamt and no statement speaks for it."""
        if not holder["origin"].startswith("dream:") or holder["is_deleted"]:
            return False
        rows = await self._owner.fetch("has_statement", holder["id"])
        return not rows[0][0]

    async def _ids_of_names(self, table: str, keys: Collection[str]) -> dict[str, UUID | None]:
        """The rows that named things have by now, by their keys, None for a new one; without those that the owner does
        not want, or has of their own."""
        known = await self._known(table, keys)
        if known:
            # Their owner may have changed what other subjects made.
            await self._owner.fetch("notice", [table] * len(known), sorted(set(known.values())))
            known = await self._known(table, keys)
        unknown = sorted(set(keys) - set(known))
        if not unknown:
            return {**known}
        refused = {row["name"] for row in await self._owner.fetch_owned("refused_names", self._dream, unknown)}
        await self._read_holders(table, unknown)
        ids: dict[str, UUID | None] = {**known}
        for key in unknown:
            holders = self._held[table, key]
            is_owners = any(row["is_deleted"] or not row["origin"].startswith("dream:") for row in holders)
            if key not in refused and not is_owners:
                ids[key] = holders[-1]["id"] if holders else None
        return ids

    async def _known(self, table: str, keys: Collection[str]) -> dict[str, UUID]:
        rows = await self._owner.fetch_owned("named_entities", self._dream, sorted(keys), table)
        return {row["name"]: row["entity_id"] for row in rows}

    async def _read_holders(self, table: str, keys: Iterable[str]) -> None:
        """Read who has keys of the owner's own already."""
        unread = sorted({key for key in keys if (table, key) not in self._held})
        if not unread:
            return
        self._held |= {(table, key): [] for key in unread}
        for row in await self._owner.fetch_owned("holders_of_keys", unread, table=table):
            self._held[table, row["key"]].append(row)

    async def _key_of(self, label: str) -> str:
        await self._read_keys([label])
        return self._keys[label]

    async def _read_keys(self, labels: Iterable[str]) -> None:
        unread = sorted({label for label in labels if label not in self._keys})
        if unread:
            self._keys |= {row["label"]: row["key"] for row in await self._owner.fetch_keys(unread)}


def _label(claim: RowClaim | EdgeClaim) -> str:
    return claim.edge.dst if isinstance(claim, EdgeClaim) else str(_to_row_value(claim)["name"])


def _to_row_value(claim: RowClaim) -> dict[str, Any]:
    """The fields that a row claim sets, as JSON."""
    given = claim.entity.fields_to_write - LEDGER_FIELDS
    return claim.entity.model_dump(mode="json", include=set(given) | {"name"})


def _find_same_row(claim: RowClaim, table: str, live: Sequence[LiveStatement]) -> LiveStatement | None:
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
