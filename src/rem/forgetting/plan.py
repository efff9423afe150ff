"""Plan: what "forget everything about X" would remove. It is shown first, and what was shown is what goes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import fill, identifier, query
from rem.errors import InvalidInputError
from rem.forgetting.names import Names
from rem.forgetting.scrub import content_of, lists_of, without_items
from rem.models.values import storable_text

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection

_LONGEST_LABEL = 1024
_AT_ONCE = 500
_CONTAINERS = frozenset({"sessions", "users"})
"""Rows that hold much else: what they say of the thing is emptied, and they stay."""


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """A stored row."""

    table: str
    id: UUID


@dataclass(frozen=True, slots=True)
class Finding:
    """A row that has to do with the thing."""

    ref: Ref
    key: str
    version: str
    """When it was written last."""
    excerpt: str = ""
    along: int = 0
    """How many rows go with it: the messages of a session, the chunks of a file."""
    fields: tuple[str, ...] = ()
    """In which of its fields the thing stands."""


@dataclass(frozen=True, slots=True)
class Said:
    """A statement of a dream that has to do with the thing."""

    id: UUID
    dream: str
    kind: str
    entity: Ref
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
    rows: list[Finding] = field(default_factory=list)
    """What answers to the name: erased."""
    facts: list[Finding] = field(default_factory=list)
    """Edges to it, and items of lists that name it, in other rows: taken out of them."""
    statements: list[Said] = field(default_factory=list)
    """What was dreamt of it: taken back."""
    mentions: list[Finding] = field(default_factory=list)
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


def leads_to(edge: Any, names: Names) -> bool:
    """Whether an edge leads to the thing; its target may be written with its type, as users/sarah."""
    target = edge.get("dst") if isinstance(edge, dict) else None
    return isinstance(target, str) and (names.are(target) or names.are(target.partition("/")[2]))


def scrubbed(record: Mapping[str, Any], table: str, names: Names, with_mentions: bool) -> dict[str, Any]:
    """The fields of a row that are others without the thing: its edges and lists."""

    def is_it(item: str) -> bool:
        return names.are_in(item) if with_mentions else names.are(item)

    edges = [
        edge
        for edge in record["graph_edges"]
        if not leads_to(edge, names) and not (with_mentions and names.are_within(edge))
    ]
    changes: dict[str, Any] = {} if edges == record["graph_edges"] else {"graph_edges": edges}
    for name, value in lists_of(record).items():
        # The calls of a message are what was said, and never change.
        if (table, name) != ("messages", "tool_calls") and (less := without_items(value, is_it)) != value:
            changes[name] = less
    return changes


class Planner:
    """Looks through everything that an owner has. Inside one transaction, so that it sees one state."""

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self._connection = connection
        self._scope = scope

    async def plan(self, label: str, *, with_mentions: bool, known_as: Sequence[str] = ()) -> ForgetPlan:
        """What would go with a name or a key; also known as what nothing may tell any more."""
        tables = [row["name"] for row in await self._connection.fetch(query("custom", "entity_types"))]
        targets, names = await self._targets(_checked(label), tables, known_as)
        plan = ForgetPlan(self._scope, label, names.all, with_mentions)
        await self._look_at_statements(plan, targets, names)
        for table in tables:
            await self._look_through(plan, table, targets, names)
        rows = await self._connection.fetch(query("forgetting", "summaries_of"), *self._owner)
        plan.summaries = [row["session_id"] for row in rows if names.are_in(row["summary"])]
        answering = await self._connection.fetch(query("forgetting", "shared_answering"), self._owner[0], label)
        plan.shared = [f"{row['entity_type']}/{row['entity_key']}" for row in answering]
        return plan

    @property
    def _owner(self) -> tuple[str, str | None]:
        return self._scope.tenant_id, self._scope.user_id

    async def _targets(self, label: str, tables: Sequence[str], known_as: Sequence[str]) -> tuple[set[Ref], Names]:
        """The owner's rows that answer to a label, and under which names they are known."""
        found = await self._answering([label])
        before, slash, behind = label.partition("/")
        names = [behind if slash and before in tables else label]
        for ref in found:
            names += _names_of(await self._record(ref))
        # What it was called before it was forgotten: texts that name it may still be there.
        refused = await self._connection.fetch(query("forgetting", "refused_with"), *self._owner, names)
        names += [row["name"] for row in refused]
        known = Names([*names, *known_as])
        found |= await self._answering(list(known.all))
        return found, known

    async def _answering(self, labels: Sequence[str]) -> set[Ref]:
        rows = await self._connection.fetch(query("forgetting", "answering"), *self._owner, labels)
        found = {Ref(row["entity_type"], row["entity_id"]) for row in rows}
        for table in {row["name"] for row in await self._connection.fetch(query("custom", "entity_types"))}:
            # Also what was deleted, or has lapsed: it could come back.
            buried = await self._connection.fetch(_on(table, "holders"), *self._owner, labels)
            found |= {Ref(table, row["id"]) for row in buried}
        return found

    async def _record(self, ref: Ref) -> dict[str, Any]:
        record: dict[str, Any] = await self._connection.fetchval(
            _on(ref.table, "record"), self._scope.tenant_id, ref.id
        )
        return record

    async def _look_through(self, plan: ForgetPlan, table: str, targets: set[Ref], names: Names) -> None:
        rows = self._connection.cursor(_on(table, "own_rows"), *self._owner, prefetch=_AT_ONCE)
        async for (record,) in rows:
            ref = Ref(table, UUID(record["id"]))
            if ref in targets:
                plan.rows.append(_finding(ref, record, names))
                continue
            changes = scrubbed(record, table, names, with_mentions=False)
            if changes:
                plan.facts.append(_finding(ref, record, names, fields=tuple(sorted(changes))))
            rest = {**record, **changes}
            if plan.with_mentions:
                rest |= scrubbed(rest, table, names, with_mentions=True)
            else:
                rest = _without_taken_back(rest, [said for said in plan.statements if said.entity == ref])
            mentioning = tuple(sorted(name for name, text in content_of(rest).items() if names.are_within(text)))
            if mentioning or (plan.with_mentions and rest != {**record, **changes}):
                plan.mentions.append(_finding(ref, record, names, fields=mentioning))
        plan.rows[:] = [await self._with_company(finding) for finding in plan.rows]

    async def _with_company(self, finding: Finding) -> Finding:
        name = {"sessions": "count_messages", "files": "count_chunks"}.get(finding.ref.table)
        if name is None or finding.along:
            return finding
        along = await self._connection.fetchval(query("forgetting", name), *self._owner, finding.ref.id)
        return Finding(finding.ref, finding.key, finding.version, finding.excerpt, along, finding.fields)

    async def _look_at_statements(self, plan: ForgetPlan, targets: set[Ref], names: Names) -> None:
        rows = self._connection.cursor(query("forgetting", "own_statements"), *self._owner, prefetch=_AT_ONCE)
        async for row in rows:
            said = Said(
                row["id"],
                row["dream"],
                row["kind"],
                Ref(row["entity_type"], row["entity_id"]),
                row["subject_id"],
                row["name"],
                row["value"],
                row["state"],
            )
            if _is_about(said, targets, names, plan.with_mentions) or (
                plan.with_mentions and any(map(names.are_in, (said.name, *row["source_keys"])))
            ):
                plan.statements.append(said)


def _is_about(said: Said, targets: set[Ref], names: Names, with_mentions: bool) -> bool:
    """Whether a statement is to go. A refusal says nothing, and keeps the dream from saying it again."""
    if said.state == "refused":
        return said.entity in targets and said.kind != "row"
    if said.entity in targets or (said.kind == "row" and names.are(said.name)):
        return True
    value = said.value
    if said.kind == "row" and not with_mentions:
        # It repeats texts that stay, and stays as they do; but not what its lists say.
        return bool(without_items(value, names.are) != value)
    if said.kind == "edge":
        value = {**value, "properties": {**value.get("properties", {}), "sources": []}}
        if not with_mentions:
            return leads_to(value, names)
    return names.are_within(value)


def _without_taken_back(record: dict[str, Any], taken: Sequence[Said]) -> dict[str, Any]:
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


def _finding(ref: Ref, record: Mapping[str, Any], names: Names, fields: tuple[str, ...] = ()) -> Finding:
    shown = {name: record[name] for name in fields} if fields else content_of(record)
    return Finding(ref, record["key"], record["updated_at"], names.excerpt(shown), fields=fields)


def _names_of(record: Mapping[str, Any]) -> list[str]:
    """What a row is called: its name, its address, its aliases."""
    extracted = record.get("extracted_data")
    aliases = extracted.get("aliases") if isinstance(extracted, dict) else None
    names = [record.get("name"), record.get("email"), *(aliases if isinstance(aliases, list) else [])]
    return [name for name in names if isinstance(name, str)]


def _checked(label: str) -> str:
    try:
        storable_text(label)
    except ValueError as error:
        raise InvalidInputError(f"The name {error}.") from error
    if not label.strip() or len(label) > _LONGEST_LABEL:
        raise InvalidInputError(f"Say what is to be forgotten: a name or a key of 1 to {_LONGEST_LABEL} characters.")
    return label.strip()


def _on(table: str, name: str) -> str:
    return fill(query("forgetting", name), table=f"rem.{identifier(table)}")
