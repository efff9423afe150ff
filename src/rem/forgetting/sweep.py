"""Sweep: erases for good what has lapsed, of everyone, and thereby what was dreamt from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from loguru import logger

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

SCAN_FACTOR = 10
"""So many times more rows are looked at than are erased in one transaction."""
_NO_ID = UUID(int=0)
_SWEPT_FIRST = ("messages", "resources")
"""Sessions and files take these along in one piece, however many there are; so they go before, some at a time."""


@dataclass(slots=True)
class SweepReport:
    """What a sweep erased."""

    erased: dict[str, int] = field(default_factory=dict)
    """Rows by table, those that lapsed; what was dreamt from them goes with them."""
    busy: int = 0
    """Rows that somebody was just writing; the next sweep looks at them again."""

    @property
    def total(self) -> int:
        """How many rows it were."""
        return sum(self.erased.values())


async def sweep(database: Database, *, at_once: int = 500) -> SweepReport:
    """Erase what has lapsed, so many rows in one transaction; a second time changes nothing.

    It waits for nobody: what is just being written, or lapses no longer, is left alone.
    """
    report = SweepReport()
    if database.server_info.is_replica:
        return report
    for table in await _find_tables(database):
        erased = await _sweep_table(database, table, report, at_once)
        if erased:
            report.erased[table] = erased
    if report.total:
        logger.info("Erased {} rows that had lapsed", report.total)
    return report


async def _find_tables(database: Database) -> list[str]:
    async with database.connection() as connection:
        names = [row["name"] for row in await connection.fetch(query("custom_types", "entity_types"))]
    return sorted(names, key=lambda name: (name not in _SWEPT_FIRST, name))


async def _sweep_table(database: Database, table: str, report: SweepReport, at_once: int) -> int:
    erased, page, behind = 0, at_once * SCAN_FACTOR, ("", _NO_ID)
    while True:
        async with database.connection() as connection:
            found = await connection.fetch(_table_query(table, "lapsed"), *behind, page)
        for start in range(0, len(found), at_once):
            batch = [(row["tenant_id"], row["id"]) for row in found[start : start + at_once]]
            gone = await _erase_batch(database, table, batch)
            erased += gone
            report.busy += len(batch) - gone
        if len(found) < page:
            return erased
        behind = (found[-1]["tenant_id"], found[-1]["id"])


async def _erase_batch(database: Database, table: str, batch: Sequence[tuple[str, UUID]]) -> int:
    async def work() -> int:
        async with database.transaction() as inside, inside.connection() as connection:
            return await _erase_locked(connection, table, batch)

    return await retry_when_busy(work)


async def _erase_locked(connection: Connection, table: str, batch: Sequence[tuple[str, UUID]]) -> int:
    rows = await connection.fetch(
        _table_query(table, "lock_lapsed"), [tenant for tenant, _ in batch], [row for _, row in batch]
    )
    tenants, ids = [row["tenant_id"] for row in rows], [row["id"] for row in rows]
    # A dreamt row that lapses with a source was not taken back by its owner: from what is left it may be dreamt again.
    await connection.execute(query("forgetting", "forget_statements_of_lapsed"), table, tenants, ids)
    await connection.execute(_table_query(table, "erase_rows"), tenants, ids)
    return len(ids)


def _table_query(table: str, name: str) -> str:
    return fill(query("forgetting", name), table=f"rem.{identifier(table)}")
