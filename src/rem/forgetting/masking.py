"""Mask what the privacy policy does not allow in texts that are stored already, with the copies derived from them.

The mirrors and the search index follow by their triggers. Each batch is one transaction, and a masked text has no
finding, so an interrupted run is continued by starting it again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query
from rem.db.table import READ_ONLY_COLUMNS, get_table
from rem.db.write_plan import PrivateColumn, find_private_columns
from rem.encryption.sealed_values import COLUMNS, Place, seal_fields, seal_statement
from rem.errors import InvalidInputError, PrivacyError
from rem.forgetting.traces import erase_traces

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.db.type_registry import TypeRegistry
    from rem.privacy.policy import PrivacyPolicy

MaskProgress: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of rows that are read, and how many there are."""
BATCH_ROWS = 100
MAX_PASSES = 3
"""Rows that somebody writes while they are masked are read again this many times."""
_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table with texts, and its columns that the policy reads."""

    name: str
    id_column: str
    columns: tuple[PrivateColumn, ...]
    is_json_text: bool = False
    """The texts are JSON, and stay JSON."""


@dataclass(slots=True)
class MaskReport:
    """What a tenant has stored that the policy does not allow, or what was masked of it."""

    rows: Counter[str] = field(default_factory=Counter)
    """Rows with a finding, by table."""
    findings: Counter[str] = field(default_factory=Counter)
    """Fields of rows with a finding, by what was found."""
    names: list[str] = field(default_factory=list)
    """Rows with a secret in their name, as table/id. A name cannot be masked: rename or delete these rows."""
    read: int = 0
    """All rows that were read."""
    busy: int = 0
    """Rows that others kept changing, so that they are not masked yet."""

    @property
    def total(self) -> int:
        """Return the number of rows with a finding that can be masked."""
        return self.rows.total()


@dataclass(frozen=True, slots=True)
class _MaskedRow:
    """A stored row, and the values that replace some of its columns."""

    id: UUID
    record: Mapping[str, Any]
    values: Mapping[str, Any]
    labels: Sequence[str]
    has_secret_name: bool


class StoredTexts:
    """The stored texts of a tenant, or of one of its users, as the policy sees them."""

    def __init__(self, database: Database, types: TypeRegistry, tenant_id: str, user_id: str | None = None) -> None:
        self._database = database
        self._types = types
        self._tenant_id = tenant_id
        self._user_id = user_id
        # Nothing that is stored can be refused any more.
        self._policy = database.privacy.masking

    async def scan(self, on_progress: MaskProgress | None = None) -> MaskReport:
        """Count what the policy does not allow. Change nothing."""
        return await self._run(on_progress, is_applied=False)

    async def mask(self, on_progress: MaskProgress | None = None) -> MaskReport:
        """Mask it, and remove the texts from the planner statistics and the log of the embedded server."""
        report = await self._run(on_progress, is_applied=True)
        if report.total:
            await erase_traces(self._database)
        return report

    async def _run(self, on_progress: MaskProgress | None, *, is_applied: bool) -> MaskReport:
        if self._policy.is_off:
            raise InvalidInputError(
                "The policy keeps every kind of text, so there is nothing to mask: set PRIVACY__CREDENTIALS or another "
                "PRIVACY__ setting to mask."
            )
        report = MaskReport()
        tables = list(self._list_tables())
        total = sum([await self._count(table) for table in tables])
        for table in tables:
            for _ in range(MAX_PASSES):
                report.busy, before = 0, report.read
                async for batch in self._read_batches(table):
                    await self._handle_batch(table, batch, report, is_applied)
                    if on_progress:
                        on_progress(report.read, max(total, report.read))
                if not report.busy:
                    break
                report.read = before
        return report

    def _list_tables(self) -> Iterator[TextTable]:
        for name, model in sorted(self._types.models.items()):
            table = get_table(model)
            columns = [column for column in table.columns.values() if column.name not in READ_ONLY_COLUMNS]
            yield TextTable(name, "id", tuple(find_private_columns(table.entity_type.key_fields[0], columns)))
        yield from _OTHER_TABLES

    async def _count(self, table: TextTable) -> int:
        async with self._database.connection() as connection:
            return int(await connection.fetchval(self._statement("count_rows", table), self._tenant_id, self._user_id))

    async def _read_batches(self, table: TextTable) -> AsyncIterator[list[tuple[UUID, dict[str, Any]]]]:
        last = _NO_ID
        while True:
            async with self._database.connection() as connection:
                statement = self._statement("next_rows", table)
                rows = await connection.fetch(statement, self._tenant_id, self._user_id, last, BATCH_ROWS)
            if not rows:
                return
            yield [(row["id"], row["record"]) for row in rows]
            last = rows[-1]["id"]

    async def _handle_batch(
        self, table: TextTable, batch: Sequence[tuple[UUID, Mapping[str, Any]]], report: MaskReport, is_applied: bool
    ) -> None:
        # Texts can have megabytes, and other work must not wait for them.
        found = await asyncio.to_thread(lambda: [self._examine(table, *row) for row in batch])
        report.read += len(batch)
        report.names += [f"{table.name}/{row.id}" for row in found if row.has_secret_name]
        changed = [row for row in found if row.values]
        stored = await self._store(table, changed) if is_applied and changed else {row.id for row in changed}
        for row in changed:
            if row.id in stored:
                report.rows[table.name] += 1
                report.findings.update(row.labels)
            else:
                report.busy += 1

    def _examine(self, table: TextTable, row_id: UUID, record: Mapping[str, Any]) -> _MaskedRow:
        values: dict[str, Any] = {}
        labels: list[str] = []
        has_secret_name = False
        for column in table.columns:
            value = record.get(column.name)
            if not value:
                continue
            policy = self._policy.for_identities if column.is_identity else self._policy
            if column.is_label:
                has_secret_name = has_secret_name or _is_secret(self._policy, value)
                continue
            masked = _mask(policy, table, value)
            if masked != value:
                values[column.name] = masked
                labels += policy.list_masked(_list_texts(value)) or ["credential"]
        return _MaskedRow(row_id, record, values, labels, has_secret_name)

    async def _store(self, table: TextTable, rows: Sequence[_MaskedRow]) -> set[UUID]:
        """Store the masked values in one transaction. Return the ids of the rows that nobody else has changed."""

        async def store() -> set[UUID]:
            stored: set[UUID] = set()
            async with self._database.transaction() as inside, inside.connection() as connection:
                await connection.execute(query("privacy", "allow_masking"))
                for row in rows:
                    names = [identifier(name) for name in row.values]
                    statement = self._statement(
                        "replace_texts",
                        table,
                        assignments=", ".join(f"{name} = p.{name}" for name in names),
                        columns=", ".join(f"r.{name}" for name in names),
                        old_columns=", ".join(f"was.{name}" for name in names),
                    )
                    old = self._seal(table, row, {name: row.record[name] for name in row.values})
                    new = self._seal(table, row, row.values)
                    status = await connection.execute(statement, self._tenant_id, row.id, new, old)
                    if status != "UPDATE 0":
                        stored.add(row.id)
            return stored

        return await retry_when_busy(store)

    def _seal(self, table: TextTable, row: _MaskedRow, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as they are stored, if texts are encrypted."""
        sealer = self._database.sealer
        if sealer is None:
            return dict(values)
        if table.name == "statements":
            return {"value": seal_statement(sealer, {**row.record, **values}, self._tenant_id)}
        if table in _OTHER_TABLES:
            return {
                name: sealer.seal(value, Place(self._tenant_id, row.id, name)) if name in COLUMNS else value
                for name, value in values.items()
            }
        return seal_fields(sealer, table.name, values, self._tenant_id, row.id)

    def _statement(self, name: str, table: TextTable, **parts: str) -> str:
        full_name = f"rem.{identifier(table.name)}"
        return fill(query("privacy", name), table=full_name, id=identifier(table.id_column), **parts)


_OTHER_TABLES = (
    TextTable("session_summaries", "session_id", (PrivateColumn.for_text("summary"),)),
    TextTable("statements", "id", (PrivateColumn.for_text("value"),)),
    TextTable("dream_runs", "id", (PrivateColumn.for_text("error"),)),
    TextTable("approval_runs", "approval_id", (PrivateColumn.for_text("state"),), is_json_text=True),
)
"""Tables besides those of entities that keep words of texts. The mirrors and the index follow the entities."""


def _mask(policy: PrivacyPolicy, table: TextTable, value: Any) -> Any:
    if table.is_json_text:
        return policy.mask_json(value.encode()).decode()
    return policy.mask_value(value)


def _is_secret(policy: PrivacyPolicy, name: str) -> bool:
    try:
        policy.check_label(name)
    except PrivacyError:
        return True
    return False


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _list_texts([name, f"{name}={item}" if isinstance(item, str) else item])
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)
