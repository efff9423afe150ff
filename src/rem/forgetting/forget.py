"""Forget: removes what a plan has shown, all of it or nothing, and looks afterwards whether it is gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query
from rem.dreaming.owner_lock import hold_owner_lock
from rem.errors import ConflictError
from rem.forgetting.forget_plan import (
    AffectedStatement,
    ForgetPlan,
    ForgetPlanner,
    StoredRow,
    get_content_fields,
    is_container,
    remove_items,
    scrub_record,
)
from rem.forgetting.name_matcher import NameMatcher
from rem.forgetting.planner_stats import reset_planner_stats

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Database

LOCK_TIMEOUT_SECONDS = 30.0
"""How long a removal waits for a dream run of the same owner."""
_MIRRORS = {"kv_store": "entity_id", "edges": "src_id", "passages": "entity_id"}


@dataclass(slots=True)
class ForgetReport:
    """What was forgotten, and that it is gone."""

    erased: Counter[str] = field(default_factory=Counter)
    """Rows by table."""
    changed: int = 0
    """Rows that stay, without what they said of it."""
    statements: int = 0
    """What was dreamt and has been taken back."""
    refused: list[str] = field(default_factory=list)
    """Keys that the dreams do not use again."""
    kept_mentions: int = 0
    """Texts that still name it, because they were not to go."""
    left: list[str] = field(default_factory=list)
    """What the same search still finds of what was to go; empty is the proof."""

    @property
    def is_gone(self) -> bool:
        """Whether everything that was to go is gone."""
        return not self.left


async def plan_forget(database: Database, scope: Scope, label: str, *, with_mentions: bool = False) -> ForgetPlan:
    """What `forget` would remove. Nothing changes."""
    async with database.snapshot() as inside, inside.connection() as connection:
        return await ForgetPlanner(connection, scope).plan(label, with_mentions=with_mentions)


async def forget(database: Database, plan: ForgetPlan) -> ForgetReport:
    """Remove what a plan has shown, in one transaction; an error if something else would go by now."""

    async def work() -> tuple[ForgetReport, set[StoredRow]]:
        async with database.connection() as connection, connection.transaction(isolation="repeatable_read"):
            current = await ForgetPlanner(connection, plan.scope).plan(plan.label, with_mentions=plan.with_mentions)
            if current.fingerprint != plan.fingerprint:
                raise ConflictError(
                    f"What is known of {plan.label} has changed since it was shown, so nothing was removed: look again."
                )
            return await _Removal(connection, current).run()

    async with hold_owner_lock(database, plan.scope, timeout_seconds=LOCK_TIMEOUT_SECONDS):
        report, gone = await retry_when_busy(work)
        await _verify(database, plan, gone, report)
    await reset_planner_stats(database)
    return report


async def _verify(database: Database, plan: ForgetPlan, gone: set[StoredRow], report: ForgetReport) -> None:
    """Search again, and look whether a trace of what was erased is left in what is derived."""
    async with database.snapshot() as inside, inside.connection() as connection:
        after = await ForgetPlanner(connection, plan.scope).plan(
            plan.label, with_mentions=plan.with_mentions, known_as=plan.names
        )
    found = [*after.rows, *after.facts, *(after.mentions if plan.with_mentions else [])]
    report.left = [f"{finding.ref.table}/{finding.key}" for finding in found]
    report.left += [said.text for said in after.statements]
    report.left += [f"summary of {session}" for session in after.summaries if plan.with_mentions]
    report.kept_mentions = 0 if plan.with_mentions else len(after.mentions)
    async with database.connection() as connection:
        for mirror, column in _MIRRORS.items():
            statement = fill(query("forgetting", "count_traces"), table=f"rem.{mirror}", column=column)
            traces = await connection.fetchval(statement, plan.scope.tenant_id, [ref.id for ref in gone])
            report.left += [f"{traces} rows of {mirror}"] if traces else []


class _Removal:
    """One removal, inside one transaction."""

    def __init__(self, connection: Connection, plan: ForgetPlan) -> None:
        self._connection = connection
        self._plan = plan
        self._names = NameMatcher(plan.names)
        self._tenant_id, self._user_id = plan.scope.tenant_id, plan.scope.user_id
        self._report = ForgetReport()
        self._gone: set[StoredRow] = set()
        self._changed: set[StoredRow] = set()

    async def run(self) -> tuple[ForgetReport, set[StoredRow]]:
        """Remove everything; what was done, and the rows that are gone."""
        plan = self._plan
        await self._retract_statements()
        await self._erase(finding.ref for finding in plan.rows)
        await self._change(finding.ref for finding in plan.facts)
        if plan.with_mentions:
            await self._erase_mentions()
        else:
            await self._refuse_names()
        self._report.changed = len(self._changed - self._gone)
        return self._report, self._gone

    async def _retract_statements(self) -> None:
        """Let what was dreamt of the thing go, and the rows say what is left."""
        live = [said for said in self._plan.statements if said.state == "live"]
        touched = sorted({said.entity for said in live} - {finding.ref for finding in self._plan.rows})
        places = [ref.table for ref in touched], [ref.id for ref in touched]
        # What its owner has changed is not the dream's any more, and is not written over.
        await self._connection.fetch(query("dreaming", "notice"), self._tenant_id, *places)
        for said in self._plan.statements:
            await self._retract_statement(said)
        # Fields before the rows that they are of.
        for said in sorted(live, key=lambda said: said.kind):
            place = self._tenant_id, said.entity.table, said.entity.id
            if said.kind == "field":
                await self._connection.execute(query("dreaming", "set_field"), *place, said.name)
            elif said.kind == "row":
                await self._connection.execute(query("dreaming", "project_row"), *place, list(said.value))
        await self._connection.fetch(query("dreaming", "project"), self._tenant_id, *places)
        self._changed |= {said.entity for said in live if said.kind == "field"} & set(touched)
        self._report.statements = len(self._plan.statements)

    async def _retract_statement(self, said: AffectedStatement) -> None:
        less = remove_items(said.value, self._names.occurs_in if self._plan.with_mentions else self._names.matches)
        is_target = said.entity in {finding.ref for finding in self._plan.rows} or self._names.matches(said.name)
        stays = not self._names.occurs_in_json(less) or (said.kind == "row" and not self._plan.with_mentions)
        if said.kind != "edge" and not is_target and stays and said.state == "live":
            # An item of its lists was the thing.
            await self._execute("reword_statement", said.id, less)
            if said.kind == "row":
                return
        else:
            await self._execute("forget_statement", said.id)
        if said.kind == "field" or (said.kind == "row" and not is_target):
            # What else it was made from is dreamt again.
            await self._execute("look_again", said.subject_id, said.dream)

    async def _erase(self, refs: Iterable[StoredRow]) -> None:
        by_table: dict[str, set[UUID]] = defaultdict(set)
        for ref in refs:
            by_table[ref.table].add(ref.id)
        for table, ids in sorted(by_table.items()):
            await self._connection.fetch(_table_query(table, "erase_own"), self._tenant_id, self._user_id, sorted(ids))
            # All were there when it began: one that is not any more has gone along with another.
            self._gone |= {StoredRow(table, row_id) for row_id in ids}
            self._report.erased[table] += len(ids)

    async def _change(self, refs: Iterable[StoredRow]) -> None:
        for ref in refs:
            record = await self._load_record(ref)
            if record is not None:
                changes = scrub_record(record, ref.table, self._names, self._plan.with_mentions)
                await self._write(ref, changes)
                # Perhaps it has been changed before, with what was dreamt.
                self._changed.add(ref)

    async def _erase_mentions(self) -> None:
        """Erase the texts that name the thing; what holds much else stays without what it says of it."""
        doomed: list[StoredRow] = []
        for finding in self._plan.mentions:
            record = await self._load_record(finding.ref)
            if record is None:
                doomed.append(finding.ref)
                continue
            changes = scrub_record(record, finding.ref.table, self._names, with_mentions=True)
            naming = self._fields_with_mentions({**record, **changes})
            if naming and (not is_container(finding.ref.table) or ("name" in naming and finding.ref.table == "users")):
                doomed.append(finding.ref)
                continue
            emptied = [name for name in naming if not isinstance(record[name], dict)]
            for name in set(naming) - set(emptied):
                kept = changes.get(name, record[name]).items()
                changes[name] = {
                    inner: value for inner, value in kept if not self._names.occurs_in_json({inner: value})
                }
            await self._write(finding.ref, changes, emptied)
        await self._erase(doomed)
        await self._execute("forget_summaries", self._plan.summaries)
        runs = await self._connection.fetch(query("forgetting", "errors_of_runs"), self._tenant_id, self._user_id)
        await self._execute("forget_errors", [row["id"] for row in runs if self._names.occurs_in(row["error"])])

    async def _refuse_names(self) -> None:
        """Keep the dreams from making it anew from the texts that stay."""
        rows = await self._connection.fetch(query("forgetting", "keys"), list(self._plan.names))
        self._report.refused = sorted({row["key"] for row in rows if row["key"]})
        await self._connection.execute(
            query("forgetting", "refuse"), self._tenant_id, self._user_id, self._report.refused, uuid4()
        )

    def _fields_with_mentions(self, record: dict[str, Any]) -> list[str]:
        return sorted(name for name, value in get_content_fields(record).items() if self._names.occurs_in_json(value))

    async def _load_record(self, ref: StoredRow) -> dict[str, Any] | None:
        record: dict[str, Any] | None = await self._connection.fetchval(
            _table_query(ref.table, "record"), self._tenant_id, ref.id
        )
        return record

    async def _write(self, ref: StoredRow, changes: dict[str, Any], emptied: Sequence[str] = ()) -> None:
        settings = [f"{identifier(name)} = p.{identifier(name)}" for name in sorted(changes)]
        settings += [f"{identifier(name)} = DEFAULT" for name in sorted(emptied)]
        if settings:
            statement = fill(
                query("forgetting", "change_row"),
                table=f"rem.{identifier(ref.table)}",
                settings=", ".join(settings),
            )
            await self._connection.execute(statement, self._tenant_id, ref.id, changes)
            self._changed.add(ref)

    async def _execute(self, name: str, *parameters: Any) -> None:
        await self._connection.execute(query("forgetting", name), self._tenant_id, *parameters)


def _table_query(table: str, name: str) -> str:
    return fill(query("forgetting", name), table=f"rem.{identifier(table)}")
