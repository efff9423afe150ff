"""Erase expired rows of all users for good, together with the statements derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from loguru import logger

from rem.approvals.approvals import drop_stale_requests
from rem.db.retry import retry_when_busy
from rem.db.sql import query, query_table
from rem.rate_limits import delete_ended_periods

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

SCAN_FACTOR = 10
"""Each query reads this many times more rows than one transaction erases."""
_NO_ID = UUID(int=0)
_SWEPT_FIRST = ("messages", "resources")
"""A session or file erases all of these rows in one statement. Sweeping them first keeps transactions small."""


@dataclass(slots=True)
class SweepReport:
    """The result of one sweep."""

    erased: dict[str, int] = field(default_factory=dict)
    """Erased expired rows by table. Rows that were derived from them are not counted."""
    busy: int = 0
    """Rows that another transaction was writing. The next sweep erases them."""
    audit_entries: int = 0
    """Entries of the audit log that were too old."""

    overdue: int = 0
    """Requests for approval that nobody decided in time. They are recorded as expired."""

    @property
    def total(self) -> int:
        """Return the number of erased rows."""
        return sum(self.erased.values())


async def sweep(database: Database, *, at_once: int = 500) -> SweepReport:
    """Erase all expired rows, `at_once` rows per transaction. A second sweep changes nothing.

    A sweep waits for no lock. It skips rows that another transaction writes, and rows that no longer expire.
    """
    report = SweepReport()
    if database.server_info.is_replica:
        return report
    report.overdue = await drop_stale_requests(database)
    for table in await _find_tables(database):
        erased = await _sweep_table(database, table, report, at_once)
        if erased:
            report.erased[table] = erased
    await delete_ended_periods(database)
    if report.total:
        logger.info("Erased {} expired rows", report.total)
    return report


async def _find_tables(database: Database) -> list[str]:
    async with database.connection() as connection:
        names = [row["name"] for row in await connection.fetch(query("db/custom_types", "entity_types"))]
    return sorted(names, key=lambda name: (name not in _SWEPT_FIRST, name))


async def _sweep_table(database: Database, table: str, report: SweepReport, at_once: int) -> int:
    erased, page_rows, after = 0, at_once * SCAN_FACTOR, ("", _NO_ID)
    while True:
        async with database.connection() as connection:
            expired = await connection.fetch(query_table("forget/forget", "expired", table), *after, page_rows)
        for start in range(0, len(expired), at_once):
            batch = [(row["tenant_id"], row["id"]) for row in expired[start : start + at_once]]
            erased_in_batch = await _erase_batch(database, table, batch)
            erased += erased_in_batch
            report.busy += len(batch) - erased_in_batch
        if len(expired) < page_rows:
            return erased
        after = (expired[-1]["tenant_id"], expired[-1]["id"])


async def _erase_batch(database: Database, table: str, batch: Sequence[tuple[str, UUID]]) -> int:
    async def erase() -> int:
        async with database.transaction() as inside, inside.connection() as connection:
            return await _erase_locked(connection, table, batch)

    return await retry_when_busy(erase)


async def _erase_locked(connection: Connection, table: str, batch: Sequence[tuple[str, UUID]]) -> int:
    """Erase the rows of a batch that can be locked now, and return their number."""
    tenants, ids = [tenant for tenant, _ in batch], [row_id for _, row_id in batch]
    rows = await connection.fetch(query_table("forget/forget", "lock_expired", table), tenants, ids)
    tenants, ids = [row["tenant_id"] for row in rows], [row["id"] for row in rows]
    # The owner did not delete a dreamt row that expires with its source, so dreams may make it again from the rest.
    await connection.execute(query("forget/forget", "delete_statements_of_expired"), table, tenants, ids)
    await connection.execute(query_table("forget/forget", "erase_rows", table), tenants, ids)
    return len(ids)
