"""Remove everything that a forget plan lists, in one transaction, and check that it is gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query, query_table
from rem.dreams.owner_lock import hold_owner_lock
from rem.encryption.sealed_values import seal_statement
from rem.errors import ConflictError
from rem.forget.forget_plan import (
    AffectedStatement,
    ForgetPlan,
    ForgetPlanner,
    StoredRow,
    get_content_fields,
    is_erased_by_mention,
    remove_items,
    scrub_record,
)
from rem.forget.name_matcher import NameMatcher
from rem.forget.traces import erase_traces

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Database
    from rem.encryption.sealed_values import Sealer

LOCK_TIMEOUT_SECONDS = 30.0
"""Time that a removal waits for a dream run of the same owner."""
_DEPENDENT_TABLES = {"sessions": "messages", "files": "resources"}
"""The table of the rows that are erased with a row."""
_MIRRORS = {"kv_store": "entity_id", "edges": "src_id", "passages": "entity_id"}
"""Derived tables, with the column that refers to a row."""


@dataclass(slots=True)
class ForgetReport:
    """The result of a removal."""

    erased: Counter[str] = field(default_factory=Counter)
    """Erased rows by table."""
    changed: int = 0
    """Rows that stay, without their parts about the person or thing."""
    statements: int = 0
    """Retracted statements of dreams."""
    refused: list[str] = field(default_factory=list)
    """Keys that dreams do not use again."""
    kept_mentions: int = 0
    """Texts that still name it, because the plan kept them."""
    left: list[str] = field(default_factory=list)
    """Rows and statements that a second search still finds. Empty after a complete removal."""

    @property
    def is_gone(self) -> bool:
        """Return whether everything in the plan is gone."""
        return not self.left

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "erased": dict(self.erased),
            "changed": self.changed,
            "statements": self.statements,
            "refused": self.refused,
            "kept_mentions": self.kept_mentions,
            "left": self.left,
            "is_gone": self.is_gone,
        }


async def plan_forget(database: Database, scope: Scope, label: str, *, with_mentions: bool = False) -> ForgetPlan:
    """Return what `forget` would remove for a name or key. Change nothing."""
    async with database.snapshot() as inside, inside.connection() as connection:
        return await ForgetPlanner(connection, scope).plan(label, with_mentions=with_mentions)


async def forget(
    database: Database, plan: ForgetPlan, record: Callable[[Connection], Awaitable[None]] | None = None
) -> ForgetReport:
    """Remove everything in a plan in one transaction, and report the result. `record` is called in it.

    Raise ConflictError, and remove nothing, if the same plan would look different now.
    """

    async def remove() -> tuple[ForgetReport, set[StoredRow]]:
        async with database.connection() as connection, connection.transaction(isolation="repeatable_read"):
            current = await ForgetPlanner(connection, plan.scope).plan(plan.label, with_mentions=plan.with_mentions)
            if current.fingerprint != plan.fingerprint:
                raise ConflictError(
                    f"The rows about {plan.label} have changed since they were shown. Nothing was removed: "
                    "make a new plan."
                )
            removed = await _Removal(connection, current, database.sealer).run()
            if record is not None:
                await record(connection)
            return removed

    async with hold_owner_lock(database, plan.scope, timeout_seconds=LOCK_TIMEOUT_SECONDS) as holder:
        # The snapshot of the removal does not show passages that are stored after it: they would outlive their row.
        await holder.execute(query("forget/forget", "stop_indexing"), plan.scope.tenant_id, plan.scope.user_id)
        report, erased = await retry_when_busy(remove)
        await _verify(database, plan, erased, report)
    await erase_traces(database)
    return report


async def _verify(database: Database, plan: ForgetPlan, erased: set[StoredRow], report: ForgetReport) -> None:
    """Search again, and check the derived tables for erased rows. Write the result into the report."""
    async with database.snapshot() as inside, inside.connection() as connection:
        after = await ForgetPlanner(connection, plan.scope).plan(
            plan.label, with_mentions=plan.with_mentions, known_as=plan.names
        )
    rows = [*after.rows, *after.facts, *(after.mentions if plan.with_mentions else [])]
    report.left = [f"{row.ref.table}/{row.key}" for row in rows]
    report.left += [statement.text for statement in after.statements]
    report.left += [f"summary of {session}" for session in after.summaries if plan.with_mentions]
    report.kept_mentions = 0 if plan.with_mentions else len(after.mentions)
    async with database.connection() as connection:
        for mirror, column in _MIRRORS.items():
            statement = fill(query("forget/forget", "count_traces"), table=f"rem.{mirror}", column=column)
            traces = await connection.fetchval(statement, plan.scope.tenant_id, [ref.id for ref in erased])
            report.left += [f"{traces} rows of {mirror}"] if traces else []


class _Removal:
    """One removal, inside one transaction."""

    def __init__(self, connection: Connection, plan: ForgetPlan, sealer: Sealer | None) -> None:
        self._connection = connection
        self._sealer = sealer
        self._plan = plan
        self._names = NameMatcher(plan.names)
        self._tenant_id, self._user_id = plan.scope.tenant_id, plan.scope.user_id
        self._report = ForgetReport()
        self._erased: set[StoredRow] = set()
        self._changed: set[StoredRow] = set()

    async def run(self) -> tuple[ForgetReport, set[StoredRow]]:
        """Remove everything in the plan, and return the report and the erased rows."""
        plan = self._plan
        await self._retract_statements()
        await self._erase(row.ref for row in plan.rows)
        await self._change(row.ref for row in plan.facts)
        if plan.with_mentions:
            await self._erase_mentions()
        else:
            await self._refuse_names()
        # The runs of agents that wait for a decision may have read it.
        await self._connection.execute(
            query("approvals/approvals", "drop_repetitions"), self._tenant_id, self._user_id, UUID(int=0), []
        )
        self._report.changed = len(self._changed - self._erased)
        return self._report, self._erased

    async def _retract_statements(self) -> None:
        """Retract the statements in the plan, and write the remaining ones back into their rows."""
        live = [statement for statement in self._plan.statements if statement.state == "live"]
        affected = sorted({statement.entity for statement in live} - {row.ref for row in self._plan.rows})
        tables_and_ids = [ref.table for ref in affected], [ref.id for ref in affected]
        # First record what the owner has edited, because a dream must not overwrite it.
        await self._connection.fetch(query("dreams/dreams", "detect_edits"), self._tenant_id, *tables_and_ids)
        for statement in self._plan.statements:
            await self._retract_statement(statement)
        # Fields before the rows that they belong to.
        for statement in sorted(live, key=lambda statement: statement.kind):
            target = self._tenant_id, statement.entity.table, statement.entity.id
            if statement.kind == "field":
                await self._connection.execute(query("dreams/dreams", "set_field"), *target, statement.name)
            elif statement.kind == "row":
                await self._connection.execute(query("dreams/dreams", "project_row"), *target, list(statement.value))
        await self._connection.fetch(query("dreams/dreams", "project"), self._tenant_id, *tables_and_ids)
        self._changed |= {statement.entity for statement in live if statement.kind == "field"} & set(affected)
        self._report.statements = len(self._plan.statements)

    async def _retract_statement(self, statement: AffectedStatement) -> None:
        is_refused = await self._connection.fetchval(
            query("forget/forget", "anonymize_refusal"), self._tenant_id, statement.id
        )
        if is_refused:
            return
        is_removed = self._names.occurs_in if self._plan.with_mentions else self._names.matches
        rest = remove_items(statement.value, is_removed)
        is_target = statement.entity in {row.ref for row in self._plan.rows} or self._names.matches(statement.name)
        is_kept = not self._names.occurs_in_json(rest) or (statement.kind == "row" and not self._plan.with_mentions)
        if statement.kind != "edge" and not is_target and is_kept and statement.state == "live":
            # Only items of its lists named the person or thing.
            value = self._seal_statement(statement, rest)
            await self._execute("replace_statement_value", statement.id, value, self._hide_source_keys(statement))
            if statement.kind == "row":
                return
        else:
            await self._execute("delete_statement", statement.id)
        if statement.kind == "field" or (statement.kind == "row" and not is_target):
            # The next dream derives it again from the sources that are left.
            await self._execute("rescan_subject", statement.subject_id, statement.dream)

    def _hide_source_keys(self, statement: AffectedStatement) -> list[str]:
        """Return the keys of the sources. A source that was renamed has its old key there, which may have the name."""
        if not self._plan.with_mentions:
            return list(statement.source_keys)
        hidden = str(statement.subject_id)
        return [hidden if self._names.occurs_in(key) else key for key in statement.source_keys]

    async def _erase(self, refs: Iterable[StoredRow]) -> None:
        by_table: dict[str, set[UUID]] = defaultdict(set)
        for ref in refs:
            by_table[ref.table].add(ref.id)
        for table, ids in sorted(by_table.items()):
            statement = query_table("forget/forget", "erase_own", table)
            await self._connection.fetch(statement, self._tenant_id, self._user_id, sorted(ids))
            # All rows existed at the start. A missing one was erased together with another row.
            self._erased |= {StoredRow(table, row_id) for row_id in ids}
            self._report.erased[table] += len(ids)
            dependents = sum(
                row.dependent_rows for row in self._plan.erased if row.ref.table == table and row.ref.id in ids
            )
            self._report.erased[_DEPENDENT_TABLES.get(table, table)] += dependents

    async def _change(self, refs: Iterable[StoredRow]) -> None:
        for ref in refs:
            record = await self._load_record(ref)
            if record is not None:
                changes = scrub_record(record, ref.table, self._names, self._plan.with_mentions)
                await self._write(ref, changes)
                # Count it even without changes, because retracting a statement may have changed it before.
                self._changed.add(ref)

    async def _erase_mentions(self) -> None:
        """Erase the texts that name the person or thing. Empty the naming fields of sessions and users instead."""
        to_erase: list[StoredRow] = []
        for row in self._plan.mentions:
            record = await self._load_record(row.ref)
            if record is None:
                to_erase.append(row.ref)
                continue
            changes = scrub_record(record, row.ref.table, self._names, with_mentions=True)
            fields = self._fields_with_mentions({**record, **changes})
            if not row.is_kept or is_erased_by_mention(row.ref.table, fields):
                to_erase.append(row.ref)
                continue
            emptied = [name for name in fields if not isinstance(record[name], dict)]
            for name in set(fields) - set(emptied):
                items = changes.get(name, record[name]).items()
                changes[name] = {key: value for key, value in items if not self._names.occurs_in_json({key: value})}
            await self._write(row.ref, changes, emptied)
        await self._erase(to_erase)
        await self._execute("delete_summaries", self._plan.summaries)
        runs = await self._connection.fetch(query("forget/forget", "errors_of_runs"), self._tenant_id, self._user_id)
        await self._execute("clear_run_errors", [row["id"] for row in runs if self._names.occurs_in(row["error"])])

    async def _refuse_names(self) -> None:
        """Store refusals of the names, so that dreams do not make the entity again from the texts that stay."""
        rows = await self._connection.fetch(query("forget/forget", "keys"), list(self._plan.names))
        self._report.refused = sorted({row["key"] for row in rows if row["key"]})
        await self._connection.execute(
            query("forget/forget", "refuse_names"), self._tenant_id, self._user_id, self._report.refused, uuid4()
        )

    def _fields_with_mentions(self, record: dict[str, Any]) -> list[str]:
        fields = get_content_fields(record)
        return sorted(name for name, value in fields.items() if self._names.occurs_in_json(value))

    async def _load_record(self, ref: StoredRow) -> dict[str, Any] | None:
        record: dict[str, Any] | None = await self._connection.fetchval(
            query_table("forget/forget", "record", ref.table), self._tenant_id, ref.id
        )
        return record

    async def _write(self, ref: StoredRow, changes: dict[str, Any], emptied: Sequence[str] = ()) -> None:
        """Write changed fields, and set emptied fields to their defaults."""
        assignments = [f"{identifier(name)} = p.{identifier(name)}" for name in sorted(changes)]
        assignments += [f"{identifier(name)} = DEFAULT" for name in sorted(emptied)]
        if assignments:
            statement = query_table("forget/forget", "change_row", ref.table, assignments=", ".join(assignments))
            sealed = self._seal(ref, changes)
            await self._connection.execute(statement, self._tenant_id, ref.id, sealed)
            self._changed.add(ref)

    def _seal_statement(self, statement: AffectedStatement, value: Any) -> Any:
        if self._sealer is None:
            return value
        table, row_id = statement.entity.table, statement.entity.id
        row = {
            "entity_type": table,
            "entity_id": row_id,
            "kind": statement.kind,
            "name": statement.name,
            "value": value,
        }
        return seal_statement(self._sealer, row, self._tenant_id)

    def _seal(self, ref: StoredRow, changes: dict[str, Any]) -> dict[str, Any]:
        if self._sealer is None:
            return changes
        return {
            name: self._sealer.seal_text(ref.table, name, value, self._tenant_id, ref.id)
            if isinstance(value, str)
            else value
            for name, value in changes.items()
        }

    async def _execute(self, name: str, *parameters: Any) -> None:
        await self._connection.execute(query("forget/forget", name), self._tenant_id, *parameters)
