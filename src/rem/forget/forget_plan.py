"""Find everything that forgetting a person or thing would remove. The plan is shown before anything is removed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from rem.db.sql import query, query_table
from rem.errors import InvalidInputError
from rem.fair_map import for_each_in_thread
from rem.forget.name_matcher import NameMatcher
from rem.models.field_types import check_text

if TYPE_CHECKING:
    from asyncpg import Record

    from rem.context import Scope
    from rem.db.database import Connection

MAX_LABEL_CHARS = 1024
CURSOR_PREFETCH_ROWS = 5
"""Rows that are decoded at once, while no other request is served. They can be large."""
_CONTAINERS = frozenset({"sessions", "users"})
"""Tables whose rows hold much other information. Their fields are emptied, and the rows stay."""
_NOT_CONTENT = frozenset(
    {
        *("id", "tenant_id", "user_id", "key", "created_at", "updated_at", "deleted_at", "expires_at", "origin"),
        *("run_id", "confidence", "valid_from", "valid_to", "graph_edges", "embedding", "session_id", "message_id"),
    }
)
_REFERENCES = frozenset({"sources", "previous_moment_keys"})
"""Fields with keys of other rows. A key is no mention as long as its row exists."""
_TEXT_LISTS = frozenset({("messages", "tool_calls"), ("records", "headers"), ("records", "values")})
"""Lists that are parts of a text, as table and field. No item is removed from them."""
TextPredicate: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True, order=True)
class StoredRow:
    """The table and id of a row."""

    table: str
    id: UUID


@dataclass(frozen=True, slots=True)
class AffectedRow:
    """A row that a removal erases or changes."""

    ref: StoredRow
    key: str
    version: str
    """The time of its last change."""
    excerpt: str = ""
    dependent_rows: int = 0
    """The number of rows that are erased with it: the messages of a session, the chunks of a file."""
    fields: tuple[str, ...] = ()
    """The fields that name the person or thing."""
    is_kept: bool = False
    """The row stays, without its words about the person or thing."""
    parent: StoredRow | None = None
    """The file or session that it is a part of."""
    uri: str | None = None
    """The address of a file, or of the file that a text is a part of."""
    is_own_answer: bool = False
    """An answer of REM, which only repeats other texts."""

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "table": self.ref.table,
            "id": self.ref.id,
            "key": self.key,
            "fields": self.fields,
            "excerpt": self.excerpt,
            "along": self.dependent_rows,
            "stays": self.is_kept,
        }


@dataclass(frozen=True, slots=True)
class AffectedStatement:
    """A statement of a dream that a removal retracts."""

    id: UUID
    dream: str
    kind: str
    entity: StoredRow
    subject_id: UUID
    name: str
    value: Any
    state: str
    source_keys: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the statement as a short text for people."""
        return f"{self.dream}: {self.kind} {self.name}"


@dataclass(slots=True)
class ForgetPlan:
    """Everything that is stored about a person or thing."""

    scope: Scope
    label: str
    names: tuple[str, ...]
    with_mentions: bool
    rows: list[AffectedRow] = field(default_factory=list)
    """Rows with one of the names. They are erased."""
    facts: list[AffectedRow] = field(default_factory=list)
    """Other rows with an edge to it, or with list items that name it. The edges and items are removed."""
    statements: list[AffectedStatement] = field(default_factory=list)
    """Statements of dreams about it. They are retracted."""
    mentions: list[AffectedRow] = field(default_factory=list)
    """Texts that name it. They are erased only with `with_mentions`."""
    summaries: list[UUID] = field(default_factory=list)
    """Sessions whose summary names it. With `with_mentions` the summary is deleted and written again."""
    shared: list[str] = field(default_factory=list)
    """Rows of the tenant with this name, as table/key. They do not belong to the user, and stay."""

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to forget."""
        has_mentions = bool(self.mentions or self.summaries)
        return not (self.rows or self.facts or self.statements or (self.with_mentions and has_mentions))

    @property
    def erased(self) -> list[AffectedRow]:
        """Return the rows that are erased. The parts of a file and the messages of a session go with it."""
        return [*self.rows, *(row for row in self.mentions if self.with_mentions and not row.is_kept)]

    @property
    def erased_count(self) -> int:
        """Return the number of rows that are erased, with those that go with a file or a session."""
        return sum(1 + row.dependent_rows for row in self.erased)

    @property
    def changed(self) -> set[StoredRow]:
        """Return the rows that stay, without their parts about the person or thing."""
        rows = {row.ref for row in self.facts}
        rows |= {row.ref for row in self.mentions if self.with_mentions and row.is_kept}
        rows |= {item.entity for item in self.statements if item.kind == "field" and item.state == "live"}
        return rows - {row.ref for row in self.erased}

    @property
    def files(self) -> list[str]:
        """Return the addresses of the files whose text is erased, wholly or in part."""
        return sorted({row.uri for row in self.erased if row.uri})

    @property
    def fingerprint(self) -> str:
        """Return a hash that is equal for two plans exactly if they remove the same."""
        parts = [
            f"{row.ref.table}/{row.ref.id}/{row.version}/{row.dependent_rows}" for row in (*self.rows, *self.facts)
        ]
        parts += [f"{statement.id}/{statement.state}" for statement in self.statements]
        if self.with_mentions:
            parts += [f"{row.ref.table}/{row.ref.id}/{row.version}" for row in self.mentions]
            parts += map(str, self.summaries)
        return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "names": self.names,
            "with_mentions": self.with_mentions,
            "rows": [row.as_json() for row in self.rows],
            "facts": [row.as_json() for row in self.facts],
            "statements": [
                {"id": statement.id, "says": statement.text, "state": statement.state} for statement in self.statements
            ],
            "mentions": [row.as_json() for row in self.mentions],
            "summaries": self.summaries,
            "shared": self.shared,
            "files": self.files,
        }


class ForgetPlanner:
    """Search all rows and statements of an owner. Use it inside one transaction, so that it sees one state."""

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self._connection = connection
        self._scope = scope

    async def plan(self, label: str, *, with_mentions: bool, known_as: Sequence[str] = ()) -> ForgetPlan:
        """Return the plan for a name or key. `known_as` adds names that are no longer stored."""
        tables = [row["name"] for row in await self._connection.fetch(query("db/custom_types", "entity_types"))]
        targets, names = await self._find_targets(_check_label(label), tables, known_as)
        plan = ForgetPlan(self._scope, label, names.all, with_mentions)
        await self._scan_statements(plan, targets, names)
        for table in tables:
            await self._scan_table(plan, table, targets, names)
        await self._add_emptied_files(plan)
        await self._drop_dependents(plan)
        rows = await self._connection.fetch(query("forget/forget", "own_summaries"), *self._owner)
        plan.summaries = [row["session_id"] for row in rows if names.occurs_in(row["summary"])]
        shared = await self._connection.fetch(query("forget/forget", "find_shared_rows"), self._owner[0], label)
        plan.shared = [f"{row['entity_type']}/{row['entity_key']}" for row in shared]
        return plan

    @property
    def _owner(self) -> tuple[str, str | None]:
        return self._scope.tenant_id, self._scope.user_id

    async def _find_targets(
        self, label: str, tables: Sequence[str], known_as: Sequence[str]
    ) -> tuple[set[StoredRow], NameMatcher]:
        """Return the owner's rows with a name, and all names of these rows."""
        targets = await self._find_rows_named([label])
        table, slash, key = label.partition("/")
        names = [key if slash and table in tables else label]
        for ref in targets:
            names += _collect_names(await self._load_record(ref))
        # Texts can still contain the names that the entity had before it was forgotten.
        refused = await self._connection.fetch(query("forget/forget", "names_refused_together"), *self._owner, names)
        names += [row["name"] for row in refused]
        matcher = NameMatcher([*names, *known_as])
        targets |= await self._find_rows_named(list(matcher.all))
        return targets, matcher

    async def _find_rows_named(self, labels: Sequence[str]) -> set[StoredRow]:
        rows = await self._connection.fetch(query("forget/forget", "find_rows_named"), *self._owner, labels)
        found = {StoredRow(row["entity_type"], row["entity_id"]) for row in rows}
        for table in {row["name"] for row in await self._connection.fetch(query("db/custom_types", "entity_types"))}:
            # Deleted and expired rows too, because they could be restored.
            statement = query_table("forget/forget", "find_rows_by_key", table)
            hidden = await self._connection.fetch(statement, *self._owner, labels)
            found |= {StoredRow(table, row["id"]) for row in hidden}
        return found

    async def _load_record(self, ref: StoredRow) -> dict[str, Any]:
        record: dict[str, Any] = await self._connection.fetchval(
            query_table("forget/forget", "record", ref.table), self._scope.tenant_id, ref.id
        )
        return record

    async def _scan_table(self, plan: ForgetPlan, table: str, targets: set[StoredRow], names: NameMatcher) -> None:
        statement = query_table("forget/forget", "own_rows", table)
        rows = self._connection.cursor(statement, *self._owner, prefetch=CURSOR_PREFETCH_ROWS)

        def scan(row: Record) -> None:
            (record,) = row
            self._scan_record(plan, table, record, targets, names)

        await for_each_in_thread(scan, rows, CURSOR_PREFETCH_ROWS)

    def _scan_record(
        self, plan: ForgetPlan, table: str, record: dict[str, Any], targets: set[StoredRow], names: NameMatcher
    ) -> None:
        ref = StoredRow(table, UUID(record["id"]))
        if ref in targets:
            plan.rows.append(_build_affected_row(ref, record, names))
            return
        changes = scrub_record(record, table, names, with_mentions=False)
        if changes:
            plan.facts.append(_build_affected_row(ref, record, names, fields=tuple(sorted(changes))))
        rest = {**record, **changes}
        if plan.with_mentions:
            rest |= scrub_record(rest, table, names, with_mentions=True)
        else:
            rest = _remove_retracted(rest, [statement for statement in plan.statements if statement.entity == ref])
        fields = tuple(sorted(name for name, value in get_content_fields(rest).items() if names.occurs_in_json(value)))
        if fields or (plan.with_mentions and rest != {**record, **changes}):
            row = _build_affected_row(ref, record, names, fields=fields)
            plan.mentions.append(replace(row, is_kept=not is_erased_by_mention(table, fields)))

    async def _add_emptied_files(self, plan: ForgetPlan) -> None:
        """Add the files of which no part would be left: a note without a text says nothing."""
        if not plan.with_mentions:
            return
        erased = Counter(row.parent.id for row in plan.mentions if row.parent and row.parent.table == "files")
        files = await self._connection.fetch(query("forget/forget", "count_parts"), *self._owner, list(erased))
        emptied = {row["id"] for row in files if erased[row["id"]] >= row["parts"] > 0}
        listed = {row.ref.id for row in (*plan.rows, *plan.mentions) if row.ref.table == "files"}
        plan.mentions[:] = [replace(row, is_kept=False) if row.ref.id in emptied else row for row in plan.mentions]
        excerpts = {row.parent: row.excerpt for row in reversed(plan.mentions) if row.parent}
        for file in sorted(StoredRow("files", file_id) for file_id in emptied - listed):
            record = await self._load_record(file)
            row = AffectedRow(file, record["key"], record["updated_at"], excerpts[file], uri=record["uri"])
            plan.mentions.append(row)

    async def _drop_dependents(self, plan: ForgetPlan) -> None:
        """List each row once: the parts of an erased file and the messages of an erased session only as a number."""
        erased = {row.ref for row in plan.erased}
        # A record repeats a part of a text, which is listed itself.
        repeated = {row.ref for row in plan.mentions}
        plan.mentions[:] = [
            row for row in plan.mentions if row.ref.table != "records" or row.parent not in erased | repeated
        ]
        plan.rows[:] = [await self._count_dependents(row) for row in plan.rows if row.parent not in erased]
        plan.mentions[:] = [
            row if row.is_kept or not plan.with_mentions else await self._count_dependents(row)
            for row in plan.mentions
            if row.parent not in erased
        ]

    async def _count_dependents(self, row: AffectedRow) -> AffectedRow:
        name = {"sessions": "count_messages", "files": "count_chunks"}.get(row.ref.table)
        if name is None:
            return row
        count = await self._connection.fetchval(query("forget/forget", name), *self._owner, row.ref.id)
        return replace(row, dependent_rows=count)

    async def _scan_statements(self, plan: ForgetPlan, targets: set[StoredRow], names: NameMatcher) -> None:
        rows = self._connection.cursor(
            query("forget/forget", "own_statements"), *self._owner, prefetch=CURSOR_PREFETCH_ROWS
        )

        def scan(row: Record) -> None:
            statement = AffectedStatement(
                row["id"],
                row["dream"],
                row["kind"],
                StoredRow(row["entity_type"], row["entity_id"]),
                row["subject_id"],
                row["name"],
                row["value"],
                row["state"],
                tuple(row["source_keys"]),
            )
            if _is_about(statement, targets, names, plan.with_mentions) or (
                plan.with_mentions and any(map(names.occurs_in, (statement.name, *statement.source_keys)))
            ):
                plan.statements.append(statement)

        await for_each_in_thread(scan, rows, CURSOR_PREFETCH_ROWS)


def is_erased_by_mention(table: str, fields: Collection[str]) -> bool:
    """Return whether a row with these fields about the person or thing is erased. Else they are emptied."""
    return bool(fields) and (table not in _CONTAINERS or (table == "users" and "name" in fields))


def is_edge_to(edge: Any, names: NameMatcher) -> bool:
    """Return whether an edge leads to one of the names. Its target may include the table, as in users/sarah."""
    target = edge.get("dst") if isinstance(edge, dict) else None
    return isinstance(target, str) and (names.matches(target) or names.matches(target.partition("/")[2]))


def scrub_record(record: Mapping[str, Any], table: str, names: NameMatcher, with_mentions: bool) -> dict[str, Any]:
    """Return the changed fields of a row after its edges to the names and its matching list items are removed."""
    is_removed = names.occurs_in if with_mentions else names.matches
    edges = [
        edge
        for edge in record["graph_edges"]
        if not is_edge_to(edge, names) and not (with_mentions and names.occurs_in_json(edge))
    ]
    changes: dict[str, Any] = {} if edges == record["graph_edges"] else {"graph_edges": edges}
    for name, value in get_list_fields(record).items():
        if (table, name) not in _TEXT_LISTS and (rest := remove_items(value, is_removed)) != value:
            changes[name] = rest
    return changes


def get_content_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that hold texts of people or models."""
    return {name: value for name, value in record.items() if name not in _NOT_CONTENT | _REFERENCES}


def get_list_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row from which single items can be removed."""
    return {
        name: value for name, value in record.items() if name not in _NOT_CONTENT and isinstance(value, list | dict)
    }


def remove_items(value: Any, is_removed: TextPredicate) -> Any:
    """Return a JSON value without the strings of its lists for which `is_removed` is true."""
    if isinstance(value, list):
        return [remove_items(item, is_removed) for item in value if not (isinstance(item, str) and is_removed(item))]
    if isinstance(value, dict):
        return {name: remove_items(inner, is_removed) for name, inner in value.items()}
    return value


def _is_about(statement: AffectedStatement, targets: set[StoredRow], names: NameMatcher, with_mentions: bool) -> bool:
    """Return whether a statement is to be retracted. A refusal stays, because it keeps dreams from repeating it."""
    if statement.state == "refused":
        return statement.entity in targets and statement.kind != "row"
    if statement.entity in targets or (statement.kind == "row" and names.matches(statement.name)):
        return True
    value = statement.value
    if statement.kind == "row" and not with_mentions:
        # The row repeats texts that stay, so it stays as well. Only its matching list items go.
        return bool(remove_items(value, names.matches) != value)
    if statement.kind == "edge":
        value = {**value, "properties": {**value.get("properties", {}), "sources": []}}
        if not with_mentions:
            return is_edge_to(value, names)
    return names.occurs_in_json(value)


def _remove_retracted(record: dict[str, Any], statements: Sequence[AffectedStatement]) -> dict[str, Any]:
    """Return a row without the field values that retracted statements wrote."""
    rest = dict(record)
    for statement in statements:
        if statement.kind != "field" or statement.state != "live":
            continue
        outer, _, inner = statement.name.partition(".")
        if inner and isinstance(rest.get(outer), dict) and rest[outer].get(inner) == statement.value:
            rest[outer] = {name: value for name, value in rest[outer].items() if name != inner}
        elif not inner and rest.get(outer) == statement.value:
            rest[outer] = None
    return rest


def _build_affected_row(
    ref: StoredRow, record: Mapping[str, Any], names: NameMatcher, fields: tuple[str, ...] = ()
) -> AffectedRow:
    shown = {name: record[name] for name in fields} if fields else get_content_fields(record)
    return AffectedRow(
        ref,
        record["key"],
        record["updated_at"],
        names.excerpt(shown),
        fields=fields,
        parent=_find_parent(ref.table, record),
        uri=record.get("uri") if ref.table in ("files", "resources") else None,
        is_own_answer=ref.table == "messages" and record.get("role") in ("assistant", "tool"),
    )


def _find_parent(table: str, record: Mapping[str, Any]) -> StoredRow | None:
    """Return the file that a text is a part of, the session of a message, or the text that a record is a part of."""
    if table == "records":
        return StoredRow(record["source_table"], UUID(record["source_id"]))
    if table == "messages":
        return StoredRow("sessions", UUID(record["session_id"]))
    file_id = record["metadata"].get("file_id") if table == "resources" else record.get("file_id")
    try:
        return StoredRow("files", UUID(file_id)) if isinstance(file_id, str) else None
    except ValueError:
        # Users can write anything into the metadata.
        return None


def _collect_names(record: Mapping[str, Any]) -> list[str]:
    """Return the name, e-mail address and aliases of a row."""
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
        raise InvalidInputError(f"Give a name or a key of 1 to {MAX_LABEL_CHARS} characters to forget.")
    return label.strip()
