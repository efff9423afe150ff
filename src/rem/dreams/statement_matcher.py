"""StatementMatcher: finds the statement that each claim would become, and the claims that the owner has refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

from rem.dreams.claims import Claim, EdgeClaim, FieldClaim, RowClaim, RowRef

if TYPE_CHECKING:
    from rem.dreams.owner_queries import OwnerQueries

StatementSlot: TypeAlias = tuple[str, RowRef, str]
"""Kind, entity and name of a statement. A statement in the same slot replaces it."""
MAX_NAME_ATTEMPTS = 1000
"""Numbers to try behind a name ("Standup (2)") before a random one is taken."""
LEDGER_FIELDS = frozenset(
    {
        *("id", "tenant_id", "user_id", "key", "created_at", "updated_at", "deleted_at", "graph_edges"),
        *("origin", "sources", "run_id", "confidence", "valid_from", "valid_to"),
    }
)
"""Fields of an entity that the ledger sets, and no claim."""


@dataclass(frozen=True, slots=True)
class LiveStatement:
    """A statement that is valid now."""

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
    def slot(self) -> StatementSlot:
        """Kind, entity and name."""
        return self.kind, self.entity, self.name


@dataclass(frozen=True, slots=True)
class StatementDraft:
    """A claim with the slot and the value that it would have as a statement."""

    claim: Claim
    kind: str
    entity: RowRef
    name: str
    value: Any
    valid_to: datetime | None = None

    @property
    def slot(self) -> StatementSlot:
        """Kind, entity and name."""
        return self.kind, self.entity, self.name

    @property
    def exclusive(self) -> EdgeClaim | None:
        """The claim, if it is an exclusive edge."""
        return self.claim if isinstance(self.claim, EdgeClaim) and self.claim.is_exclusive else None

    @property
    def exclusive_since(self) -> datetime | None:
        """Start of an exclusive edge, which may have been true more than once."""
        return self.claim.valid_from if self.exclusive else None

    @property
    def source_ids(self) -> frozenset[UUID]:
        """Ids of the sources."""
        return frozenset(source.ref.id for source in self.claim.sources)

    def equals_statement(self, statement: LiveStatement) -> bool:
        """Return whether the draft would change nothing about a live statement."""
        return (
            self.value == statement.value
            and self.name == statement.name
            and self.source_ids == statement.source_ids
            and self.claim.valid_from == statement.valid_from
            and self.valid_to == statement.valid_to
            and abs(self.claim.confidence - (statement.confidence or 0.0)) < 1e-6
        )


class StatementMatcher:
    """Matches all claims of a dream about one subject at once. Use it inside the ledger's transaction."""

    def __init__(self, queries: OwnerQueries, dream: str) -> None:
        self._queries = queries
        self._dream = dream
        self._keys: dict[str, str] = {}
        """Key of each label."""
        self._holders: dict[tuple[str, str], list[Any]] = {}
        """Rows that have a key, by table and key."""
        self._matched_ids: set[UUID] = set()
        """Live statements that a claim of this batch has taken."""
        self._assigned_keys: set[str] = set()
        """Keys that a claim of this batch has taken."""

    async def match(self, claims: Sequence[Claim], live: Sequence[LiveStatement]) -> list[StatementDraft | None]:
        """Return the draft of each claim, or None if the owner has refused it."""
        await self._load_keys(_get_label(claim) for claim in claims if not isinstance(claim, FieldClaim))
        numbered = dict(enumerate(claims))
        rows = {number: claim for number, claim in numbered.items() if isinstance(claim, RowClaim)}
        parts = {number: claim for number, claim in numbered.items() if not isinstance(claim, RowClaim)}
        drafts = await self._match_parts(parts)
        drafts |= await self._match_by_name({number: claim for number, claim in rows.items() if claim.is_named})
        drafts |= await self._match_by_sources(
            {number: claim for number, claim in rows.items() if not claim.is_named}, live
        )
        return [drafts[number] for number in numbered]

    async def _match_parts(self, claims: Mapping[int, EdgeClaim | FieldClaim]) -> dict[int, StatementDraft | None]:
        """Match edges and fields."""
        drafts = {number: self._draft_part(claim) for number, claim in claims.items()}
        if not drafts:
            return {}
        entities = [draft.entity.type for draft in drafts.values()], [draft.entity.id for draft in drafts.values()]
        slots = [draft.kind for draft in drafts.values()], [draft.name for draft in drafts.values()]
        rows = await self._queries.fetch("refused_parts", self._dream, list(drafts), *entities, *slots)
        return {**drafts, **dict.fromkeys(row["number"] for row in rows)}

    def _draft_part(self, claim: EdgeClaim | FieldClaim) -> StatementDraft:
        if isinstance(claim, FieldClaim):
            return StatementDraft(claim, "field", claim.entity, claim.field, claim.value)
        table = str(claim.edge.properties.get("dst_entity_type") or "")
        name = f"{claim.edge.rel_type} {table}/{self._keys[claim.edge.dst]}"
        return StatementDraft(claim, "edge", claim.src, name, claim.edge.model_dump(mode="json", exclude={"origin"}))

    async def _match_by_name(self, claims: Mapping[int, RowClaim]) -> dict[int, StatementDraft | None]:
        """Match rows that are identified by their names."""
        drafts: dict[int, StatementDraft | None] = {}
        numbers_by_table: dict[str, list[int]] = {}
        for number, claim in claims.items():
            numbers_by_table.setdefault(claim.entity.entity_type.table, []).append(number)
        for table, numbers in numbers_by_table.items():
            keys = {number: self._keys[_get_label(claims[number])] for number in numbers}
            ids = await self._find_named_rows(table, set(keys.values()))
            for number, key in keys.items():
                claim = claims[number]
                entity = RowRef(table, ids.get(key) or claim.entity.id)
                drafts[number] = (
                    StatementDraft(claim, "row", entity, key, _to_row_value(claim), claim.valid_to)
                    if key in ids
                    else None
                )
        return drafts

    async def _match_by_sources(
        self, claims: Mapping[int, RowClaim], live: Sequence[LiveStatement]
    ) -> dict[int, StatementDraft | None]:
        """Match rows that are identified by their sources."""
        drafts: dict[int, StatementDraft | None] = {}
        new: dict[int, RowClaim] = {}
        for number, claim in claims.items():
            table = claim.entity.entity_type.table
            free = [statement for statement in live if statement.id not in self._matched_ids]
            earlier = _find_same_row(claim, table, free)
            if earlier is None:
                new[number] = claim
                continue
            self._matched_ids.add(earlier.id)
            value = {**_to_row_value(claim), "name": earlier.value["name"]}
            drafts[number] = StatementDraft(claim, "row", earlier.entity, earlier.name, value, claim.valid_to)
        refused = await self._find_refused_by_sources(new)
        drafts |= dict.fromkeys(refused)
        accepted = {number: claim for number, claim in new.items() if number not in refused}
        for table in {claim.entity.entity_type.table for claim in accepted.values()}:
            await self._load_holders(table, {self._keys[_get_label(claim)] for claim in accepted.values()})
        for number, claim in accepted.items():
            drafts[number] = await self._draft_with_free_name(claim)
        return drafts

    async def _find_refused_by_sources(self, claims: Mapping[int, RowClaim]) -> set[int]:
        """Return the numbers of the claims whose owner refused a row with mostly the same sources."""
        pairs = [(number, source.ref.id) for number, claim in claims.items() for source in claim.sources]
        if not pairs:
            return set()
        numbers, source_ids = [number for number, _ in pairs], [source_id for _, source_id in pairs]
        rows = await self._queries.fetch_owned("refused_by_sources", self._dream, numbers, source_ids)
        return {row["number"] for row in rows}

    async def _draft_with_free_name(self, claim: RowClaim) -> StatementDraft:
        """Draft a row under a name that no other row of the owner has: "Standup", "Standup (2)", …"""
        table, value = claim.entity.entity_type.table, _to_row_value(claim)
        wanted, row_id = value["name"], claim.entity.id
        for number in range(1, MAX_NAME_ATTEMPTS):
            value["name"] = wanted if number == 1 else f"{wanted} ({number})"
            key = await self._get_key(value["name"])
            if key in self._assigned_keys:
                continue
            await self._load_holders(table, {key})
            holders = self._holders[table, key]
            if len(holders) == 1 and await self._is_orphan(holders[0]):
                # A row from a loaded dump: the dream adopts it.
                row_id, holders = holders[0]["id"], []
            if not holders:
                break
        else:
            value["name"] = f"{wanted} {uuid4()}"
            key = await self._get_key(value["name"])
        self._assigned_keys.add(key)
        return StatementDraft(claim, "row", RowRef(table, row_id), key, value, claim.valid_to)

    async def _is_orphan(self, holder: Any) -> bool:
        """Return whether a dream wrote a row and no statement stands for it."""
        if not holder["origin"].startswith("dream:") or holder["is_deleted"]:
            return False
        rows = await self._queries.fetch("has_statement", holder["id"])
        return not rows[0][0]

    async def _find_named_rows(self, table: str, keys: Collection[str]) -> dict[str, UUID | None]:
        """Return the id of the row for each key, None for a new row.

        A key is missing if the owner refused that row, or has a row of their own under it.
        """
        known = await self._fetch_named_rows(table, keys)
        if known:
            # The owner may have changed rows that claims about other subjects made.
            await self._queries.fetch("detect_edits", [table] * len(known), sorted(set(known.values())))
            known = await self._fetch_named_rows(table, keys)
        unknown = sorted(set(keys) - set(known))
        if not unknown:
            return {**known}
        rows = await self._queries.fetch_owned("refused_names", self._dream, unknown)
        refused = {row["name"] for row in rows}
        await self._load_holders(table, unknown)
        ids: dict[str, UUID | None] = {**known}
        for key in unknown:
            holders = self._holders[table, key]
            is_owners = any(row["is_deleted"] or not row["origin"].startswith("dream:") for row in holders)
            if key not in refused and not is_owners:
                ids[key] = holders[-1]["id"] if holders else None
        return ids

    async def _fetch_named_rows(self, table: str, keys: Collection[str]) -> dict[str, UUID]:
        rows = await self._queries.fetch_owned("named_rows", self._dream, sorted(keys), table)
        return {row["name"]: row["entity_id"] for row in rows}

    async def _load_holders(self, table: str, keys: Iterable[str]) -> None:
        """Load the owner's rows that have these keys."""
        missing = sorted({key for key in keys if (table, key) not in self._holders})
        if not missing:
            return
        self._holders |= {(table, key): [] for key in missing}
        for row in await self._queries.fetch_owned("rows_with_keys", missing, table=table):
            self._holders[table, row["key"]].append(row)

    async def _get_key(self, label: str) -> str:
        await self._load_keys([label])
        return self._keys[label]

    async def _load_keys(self, labels: Iterable[str]) -> None:
        missing = sorted({label for label in labels if label not in self._keys})
        if missing:
            self._keys |= {row["label"]: row["key"] for row in await self._queries.fetch_keys(missing)}


def _get_label(claim: RowClaim | EdgeClaim) -> str:
    return claim.edge.dst if isinstance(claim, EdgeClaim) else str(_to_row_value(claim)["name"])


def _to_row_value(claim: RowClaim) -> dict[str, Any]:
    """Return the fields that a row claim sets, as JSON."""
    given = claim.entity.fields_to_write - LEDGER_FIELDS
    return claim.entity.model_dump(mode="json", include=set(given) | {"name"})


def _find_same_row(claim: RowClaim, table: str, live: Sequence[LiveStatement]) -> LiveStatement | None:
    """Return the live statement about a row that shares most sources with a claim: at least half of the fewer."""
    own = {source.ref.id for source in claim.sources}
    best, most = None, 0
    for statement in live:
        if statement.kind != "row" or statement.entity.type != table:
            continue
        common = len(own & statement.source_ids)
        if common > most and common * 2 >= min(len(own), len(statement.source_ids)):
            best, most = statement, common
    return best
