"""Plan: what "forget everything about X" would remove. It is shown first, and what was shown is what goes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from rem.db.sql import fill, identifier, query
from rem.errors import InvalidInputError
from rem.forgetting.name_matcher import NameMatcher
from rem.models.field_types import check_text

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection


TextPredicate: TypeAlias = Callable[[str], bool]

_NOT_CONTENT = frozenset(
    {
        *("id", "tenant_id", "user_id", "key", "created_at", "updated_at", "deleted_at", "expires_at", "origin"),
        *("run_id", "confidence", "valid_from", "valid_to", "graph_edges", "embedding", "session_id", "message_id"),
    }
)
_REFERENCES = frozenset({"sources", "previous_moment_keys"})
"""Keys of other rows. What they are called is no statement about the thing, as long as those rows are there."""


def get_content_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stored row in which people or machines said something."""
    return {name: value for name, value in record.items() if name not in _NOT_CONTENT | _REFERENCES}


def get_list_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stored row from which single items can be taken."""
    return {
        name: value for name, value in record.items() if name not in _NOT_CONTENT and isinstance(value, list | dict)
    }


def remove_items(value: Any, is_it: TextPredicate) -> Any:
    """A JSON value without the items of its lists that are the thing."""
    if isinstance(value, list):
        return [remove_items(item, is_it) for item in value if not (isinstance(item, str) and is_it(item))]
    if isinstance(value, dict):
        return {name: remove_items(inner, is_it) for name, inner in value.items()}
    return value


MAX_LABEL_CHARS = 1024
CURSOR_PREFETCH_ROWS = 500
_CONTAINERS = frozenset({"sessions", "users"})
"""Rows that hold much else: what they say of the thing is emptied, and they stay."""


@dataclass(frozen=True, slots=True, order=True)
class StoredRow:
    """A stored row."""

    table: str
    id: UUID


@dataclass(frozen=True, slots=True)
class AffectedRow:
    """A row that has to do with the thing."""

    ref: StoredRow
    key: str
    version: str
    """When it was written last."""
    excerpt: str = ""
    along: int = 0
    """How many rows go with it: the messages of a session, the chunks of a file."""
    fields: tuple[str, ...] = ()
    """In which of its fields the thing stands."""


@dataclass(frozen=True, slots=True)
class AffectedStatement:
    """A statement of a dream that has to do with the thing."""

    id: UUID
    dream: str
    kind: str
    entity: StoredRow
    subject_id: UUID
    name: str
    value: Any
    state: str

    @property
    def text(self) -> str:
        """What it says, for people."""
        return f"{self.dream}: {self.kind} {self.name}"


@dataclass(slots=True)
class ForgetPlan:
    """What is known of a thing, and what would go."""

    scope: Scope
    label: str
    names: tuple[str, ...]
    with_mentions: bool
    rows: list[AffectedRow] = field(default_factory=list)
    """What answers to the name: erased."""
    facts: list[AffectedRow] = field(default_factory=list)
    """Edges to it, and items of lists that name it, in other rows: taken out of them."""
    statements: list[AffectedStatement] = field(default_factory=list)
    """What was dreamt of it: taken back."""
    mentions: list[AffectedRow] = field(default_factory=list)
    """Texts in which it is named: erased only if asked for."""
    summaries: list[UUID] = field(default_factory=list)
    """Sessions whose summary names it; it goes with the mentions, and is made anew."""
    shared: list[str] = field(default_factory=list)
    """What the tenant shares under this name, by table and key. It is not the user's, and stays."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to forget."""
        return not (self.rows or self.facts or self.statements or (self.with_mentions and self._mentioning))

    @property
    def _mentioning(self) -> bool:
        return bool(self.mentions or self.summaries)

    @property
    def fingerprint(self) -> str:
        """The same for two plans exactly if the same would go."""
        going = [f"{f.ref.table}/{f.ref.id}/{f.version}/{f.along}" for f in (*self.rows, *self.facts)]
        going += [f"{said.id}/{said.state}" for said in self.statements]
        if self.with_mentions:
            going += [f"{f.ref.table}/{f.ref.id}/{f.version}" for f in self.mentions] + list(map(str, self.summaries))
        return hashlib.sha256("\n".join(sorted(going)).encode()).hexdigest()


def is_container(table: str) -> bool:
    """Whether rows of a table stay when they mention the thing, without what they say of it."""
    return table in _CONTAINERS


def is_edge_to(edge: Any, names: NameMatcher) -> bool:
    """Whether an edge leads to the thing; its target may be written with its type, as users/sarah."""
    target = edge.get("dst") if isinstance(edge, dict) else None
    return isinstance(target, str) and (names.matches(target) or names.matches(target.partition("/")[2]))


def scrub_record(record: Mapping[str, Any], table: str, names: NameMatcher, with_mentions: bool) -> dict[str, Any]:
    """The fields of a row that are others without the thing: its edges and lists."""

    def is_it(item: str) -> bool:
        return names.occurs_in(item) if with_mentions else names.matches(item)

    edges = [
        edge
        for edge in record["graph_edges"]
        if not is_edge_to(edge, names) and not (with_mentions and names.occurs_in_json(edge))
    ]
    changes: dict[str, Any] = {} if edges == record["graph_edges"] else {"graph_edges": edges}
    for name, value in get_list_fields(record).items():
        # The calls of a message are what was said, and never change.
        if (table, name) != ("messages", "tool_calls") and (less := remove_items(value, is_it)) != value:
            changes[name] = less
    return changes


class ForgetPlanner:
    """Looks through everything that an owner has. Inside one transaction, so that it sees one state."""

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self._connection = connection
        self._scope = scope

    async def plan(self, label: str, *, with_mentions: bool, known_as: Sequence[str] = ()) -> ForgetPlan:
        """What would go with a name or a key; also known as what nothing may tell any more."""
        tables = [row["name"] for row in await self._connection.fetch(query("custom_types", "entity_types"))]
        targets, names = await self._find_targets(_check_label(label), tables, known_as)
        plan = ForgetPlan(self._scope, label, names.all, with_mentions)
        await self._scan_statements(plan, targets, names)
        for table in tables:
            await self._scan_table(plan, table, targets, names)
        rows = await self._connection.fetch(query("forgetting", "summaries_of"), *self._owner)
        plan.summaries = [row["session_id"] for row in rows if names.occurs_in(row["summary"])]
        answering = await self._connection.fetch(query("forgetting", "shared_answering"), self._owner[0], label)
        plan.shared = [f"{row['entity_type']}/{row['entity_key']}" for row in answering]
        return plan

    @property
    def _owner(self) -> tuple[str, str | None]:
        return self._scope.tenant_id, self._scope.user_id

    async def _find_targets(
        self, label: str, tables: Sequence[str], known_as: Sequence[str]
    ) -> tuple[set[StoredRow], NameMatcher]:
        """The owner's rows that answer to a label, and under which names they are known."""
        found = await self._find_rows_named([label])
        before, slash, behind = label.partition("/")
        names = [behind if slash and before in tables else label]
        for ref in found:
            names += _collect_names(await self._load_record(ref))
        # What it was called before it was forgotten: texts that name it may still be there.
        refused = await self._connection.fetch(query("forgetting", "refused_with"), *self._owner, names)
        names += [row["name"] for row in refused]
        known = NameMatcher([*names, *known_as])
        found |= await self._find_rows_named(list(known.all))
        return found, known

    async def _find_rows_named(self, labels: Sequence[str]) -> set[StoredRow]:
        rows = await self._connection.fetch(query("forgetting", "answering"), *self._owner, labels)
        found = {StoredRow(row["entity_type"], row["entity_id"]) for row in rows}
        for table in {row["name"] for row in await self._connection.fetch(query("custom_types", "entity_types"))}:
            # Also what was deleted, or has lapsed: it could come back.
            buried = await self._connection.fetch(_table_query(table, "holders"), *self._owner, labels)
            found |= {StoredRow(table, row["id"]) for row in buried}
        return found

    async def _load_record(self, ref: StoredRow) -> dict[str, Any]:
        record: dict[str, Any] = await self._connection.fetchval(
            _table_query(ref.table, "record"), self._scope.tenant_id, ref.id
        )
        return record

    async def _scan_table(self, plan: ForgetPlan, table: str, targets: set[StoredRow], names: NameMatcher) -> None:
        rows = self._connection.cursor(_table_query(table, "own_rows"), *self._owner, prefetch=CURSOR_PREFETCH_ROWS)
        async for (record,) in rows:
            ref = StoredRow(table, UUID(record["id"]))
            if ref in targets:
                plan.rows.append(_build_affected_row(ref, record, names))
                continue
            changes = scrub_record(record, table, names, with_mentions=False)
            if changes:
                plan.facts.append(_build_affected_row(ref, record, names, fields=tuple(sorted(changes))))
            rest = {**record, **changes}
            if plan.with_mentions:
                rest |= scrub_record(rest, table, names, with_mentions=True)
            else:
                rest = _remove_retracted(rest, [said for said in plan.statements if said.entity == ref])
            mentioning = tuple(
                sorted(name for name, text in get_content_fields(rest).items() if names.occurs_in_json(text))
            )
            if mentioning or (plan.with_mentions and rest != {**record, **changes}):
                plan.mentions.append(_build_affected_row(ref, record, names, fields=mentioning))
        plan.rows[:] = [await self._count_dependents(finding) for finding in plan.rows]

    async def _count_dependents(self, finding: AffectedRow) -> AffectedRow:
        name = {"sessions": "count_messages", "files": "count_chunks"}.get(finding.ref.table)
        if name is None or finding.along:
            return finding
        along = await self._connection.fetchval(query("forgetting", name), *self._owner, finding.ref.id)
        return AffectedRow(finding.ref, finding.key, finding.version, finding.excerpt, along, finding.fields)

    async def _scan_statements(self, plan: ForgetPlan, targets: set[StoredRow], names: NameMatcher) -> None:
        rows = self._connection.cursor(
            query("forgetting", "own_statements"), *self._owner, prefetch=CURSOR_PREFETCH_ROWS
        )
        async for row in rows:
            said = AffectedStatement(
                row["id"],
                row["dream"],
                row["kind"],
                StoredRow(row["entity_type"], row["entity_id"]),
                row["subject_id"],
                row["name"],
                row["value"],
                row["state"],
            )
            if _is_about(said, targets, names, plan.with_mentions) or (
                plan.with_mentions and any(map(names.occurs_in, (said.name, *row["source_keys"])))
            ):
                plan.statements.append(said)


def _is_about(said: AffectedStatement, targets: set[StoredRow], names: NameMatcher, with_mentions: bool) -> bool:
    """Whether a statement is to go. A refusal says nothing, and keeps the dream from saying it again."""
    if said.state == "refused":
        return said.entity in targets and said.kind != "row"
    if said.entity in targets or (said.kind == "row" and names.matches(said.name)):
        return True
    value = said.value
    if said.kind == "row" and not with_mentions:
        # It repeats texts that stay, and stays as they do; but not what its lists say.
        return bool(remove_items(value, names.matches) != value)
    if said.kind == "edge":
        value = {**value, "properties": {**value.get("properties", {}), "sources": []}}
        if not with_mentions:
            return is_edge_to(value, names)
    return names.occurs_in_json(value)


def _remove_retracted(record: dict[str, Any], taken: Sequence[AffectedStatement]) -> dict[str, Any]:
    """A row without the fields that say what a dream said, and that go with it."""
    rest = dict(record)
    for said in taken:
        if said.kind != "field" or said.state != "live":
            continue
        outer, _, inner = said.name.partition(".")
        if inner and isinstance(rest.get(outer), dict) and rest[outer].get(inner) == said.value:
            rest[outer] = {name: value for name, value in rest[outer].items() if name != inner}
        elif not inner and rest.get(outer) == said.value:
            rest[outer] = None
    return rest


def _build_affected_row(
    ref: StoredRow, record: Mapping[str, Any], names: NameMatcher, fields: tuple[str, ...] = ()
) -> AffectedRow:
    shown = {name: record[name] for name in fields} if fields else get_content_fields(record)
    return AffectedRow(ref, record["key"], record["updated_at"], names.excerpt(shown), fields=fields)


def _collect_names(record: Mapping[str, Any]) -> list[str]:
    """What a row is called: its name, its address, its aliases."""
    extracted = record.get("extracted_data")
    aliases = extracted.get("aliases") if isinstance(extracted, dict) else None
    names = [record.get("name"), record.get("email"), *(aliases if isinstance(aliases, list) else [])]
    return [name for name in names if isinstance(name, str)]


def _check_label(label: str) -> str:
    try:
        check_text(label)
    except ValueError as error:
        raise InvalidInputError(f"The name {error}.") from error
    if not label.strip() or len(label) > MAX_LABEL_CHARS:
        raise InvalidInputError(f"Say what is to be forgotten: a name or a key of 1 to {MAX_LABEL_CHARS} characters.")
    return label.strip()


def _table_query(table: str, name: str) -> str:
    return fill(query("forgetting", name), table=f"rem.{identifier(table)}")
