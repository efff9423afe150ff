"""AuditLog: write entries, in batches beside the requests or at once, and read and prune them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from loguru import logger

from rem.audit.entry import AuditEntry
from rem.db.sql import query
from rem.errors import DatabaseUnavailableError, RemError

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.settings import AuditSettings

FLUSH_SECONDS = 0.5
MAX_BATCH_ENTRIES = 1000
MAX_WAITING_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries of a tenant to read. None means all."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    table: str | None = None
    row_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditLog:
    """The audit log of a database. If it is switched off, entries are discarded."""

    def __init__(self, database: Database, settings: AuditSettings, *, is_enabled: bool) -> None:
        self._database = database
        self._retention_days = settings.retention_days
        self.is_enabled = is_enabled and not database.server_info.is_replica
        self._waiting: list[AuditEntry] = []
        self._has_entries = asyncio.Event()
        self._write_lock = asyncio.Lock()

    def add(self, entry: AuditEntry) -> None:
        """Write an entry soon. If the database does not answer for long, the oldest entries are dropped and counted."""
        if not self.is_enabled:
            return
        self._waiting.append(entry)
        self._has_entries.set()
        if len(self._waiting) > MAX_WAITING_ENTRIES:
            dropped = len(self._waiting) - MAX_WAITING_ENTRIES
            del self._waiting[:dropped]
            logger.error("Dropped {} entries of the audit log, because the database does not take them.", dropped)

    async def record(self, entry: AuditEntry) -> None:
        """Write an entry now. If the database fails, it is written later with the others, and the failure is logged."""
        if not self.is_enabled:
            return
        try:
            await self._write([entry])
        except RemError as error:
            logger.error("An entry of the audit log waits for the database: {}", error)
            self.add(entry)

    async def record_in(self, connection: Connection, entry: AuditEntry) -> None:
        """Write an entry in the transaction of a connection."""
        if self.is_enabled:
            await connection.execute(query("audit/audit", "insert"), [entry.as_record()])

    async def flush(self) -> None:
        """Write all waiting entries."""
        async with self._write_lock:
            while self._waiting:
                batch = self._waiting[:MAX_BATCH_ENTRIES]
                await self._write(batch)
                # New entries were appended at the end in the meantime.
                del self._waiting[: len(batch)]
            self._has_entries.clear()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write the entries in the background during the block, and the rest at its end."""
        if not self.is_enabled:
            yield
            return
        writer = asyncio.create_task(self._keep_writing())
        try:
            yield
        finally:
            writer.cancel()
            await asyncio.wait([writer])
            await self._flush_or_log()

    async def _keep_writing(self) -> None:
        while True:
            await self._has_entries.wait()
            await asyncio.sleep(FLUSH_SECONDS)
            await self._flush_or_log()

    async def _flush_or_log(self) -> None:
        try:
            await self.flush()
        except RemError as error:
            logger.error("{} entries of the audit log wait for the database: {}", len(self._waiting), error)

    async def _write(self, entries: Sequence[AuditEntry]) -> None:
        async with self._database.connection() as connection:
            await connection.execute(query("audit/audit", "insert"), [entry.as_record() for entry in entries])

    async def find(
        self, tenant_id: str, wanted: AuditFilter, *, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Return entries of a tenant, newest first."""
        await self._flush_or_log()
        target = {
            name: value
            for name, value in (("table", wanted.table), ("id", wanted.row_id and str(wanted.row_id)))
            if value is not None
        }
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                query("audit/audit", "find"),
                tenant_id,
                wanted.actor,
                wanted.action,
                wanted.subject,
                [target] if target else None,
                wanted.since,
                wanted.until,
                limit,
                offset,
            )
        return [dict(row) for row in rows]

    async def prune(self) -> int:
        """Delete the entries of all tenants that are older than AUDIT__RETENTION_DAYS, and return their number."""
        if self._retention_days is None or self._database.server_info.is_replica:
            return 0
        before = datetime.now(UTC) - timedelta(days=self._retention_days)
        async with self._database.transaction() as inside, inside.connection() as connection:
            await connection.execute(query("audit/audit", "allow_change"), "DELETE")
            status = await connection.execute(query("audit/audit", "prune"), before)
        return int(status.rpartition(" ")[2])


async def pseudonymize_user(connection: Connection, tenant_id: str, user_id: str, pseudonym: str) -> None:
    """Replace the id of an erased user in all entries, and remove what else may lead to the person.

    The entries stay: they say what happened to the memory of others. Call this in a transaction.
    """
    if not connection.is_in_transaction():
        raise DatabaseUnavailableError("The audit log can be changed only inside of a transaction.")
    await connection.execute(query("audit/audit", "allow_change"), "UPDATE")
    await connection.execute(query("audit/audit", "pseudonymize"), tenant_id, user_id, pseudonym)
    await connection.execute(query("audit/audit", "allow_change"), "")
