"""Erase all rows of one user in one tenant, and count the rows that are left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from rem.audit.log import pseudonymize_user
from rem.context import Scope
from rem.db.retry import retry_when_busy
from rem.db.sql import fill, query, query_table
from rem.dreams.owner_lock import hold_owner_lock
from rem.errors import DatabaseError, InvalidInputError
from rem.forget.forget import LOCK_TIMEOUT_SECONDS
from rem.forget.owned_tables import OwnedTable, find_owned_tables
from rem.forget.traces import erase_traces
from rem.jobs.queue import JobQueue

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

RecordErasure: TypeAlias = "Callable[[Connection, str], Awaitable[None]]"
"""Writes an entry of the audit log about the user with this pseudonym."""
PSEUDONYM_PREFIX = "erased:"
MAX_PASSES = 5
"""Number of repetitions of the erasure for rows that the user writes in the meantime."""


@dataclass(frozen=True, slots=True)
class TableCount:
    """The number of a user's rows in one table, before and after the erasure."""

    table: str
    how: str
    """The column or reference that identifies the user's rows."""
    before: int
    after: int


@dataclass(slots=True)
class EraseReport:
    """The result of an erasure, or of a dry run."""

    tenant_id: str
    user_id: str
    is_applied: bool = False
    """False for a dry run."""
    tables: list[TableCount] = field(default_factory=list)
    mentions: dict[str, int] = field(default_factory=dict)
    """Rows of other users, by table, that contain the user's id or e-mail address. They stay."""
    passes: int = 0
    """More than one if the user wrote during the erasure."""

    @property
    def before(self) -> int:
        """Return the number of the user's rows before the erasure."""
        return sum(table.before for table in self.tables)

    @property
    def after(self) -> int:
        """Return the number of the user's rows after the erasure. 0 proves that nothing is left."""
        return sum(table.after for table in self.tables)


async def count_user(database: Database, user: str, tenant: str) -> EraseReport:
    """Count the rows that `erase_user` would erase. Change nothing."""
    scope = _parse_scope(user, tenant)
    tables = await _find_tables(database)
    async with database.connection() as connection:
        counts = await _count_rows(connection, tables, scope, await _find_session_ids(connection, scope))
        identifiers = await _find_identifiers(connection, scope, user)
        mentions = await _count_mentions(connection, scope, identifiers)
    report = EraseReport(scope.tenant_id, str(scope.user_id), mentions=mentions)
    report.tables = _build_counts(tables, counts, counts)
    return report


async def erase_user(database: Database, user: str, tenant: str, record: RecordErasure | None = None) -> EraseReport:
    """Erase all rows of a user in a tenant for good.

    In the audit log a pseudonym replaces the user. `record` is called with it, in the transaction of the first pass.
    Each pass is one transaction. An interrupted pass has changed nothing, and the erasure can be started again. If the
    user writes in the meantime, repeat up to MAX_PASSES times. The report counts the rows that are left after that.
    """
    scope = _parse_scope(user, tenant)
    pseudonym = f"{PSEUDONYM_PREFIX}{uuid4().hex[:12]}"
    tables = await _find_tables(database)
    # Jobs first, because a running dream of the user would hold the owner lock.
    before = {"rem_jobs.jobs": await JobQueue(database).erase_owner(scope.tenant_id, scope.user_id)}
    after: dict[str, int] = {}
    async with hold_owner_lock(database, scope, timeout_seconds=LOCK_TIMEOUT_SECONDS):
        async with database.connection() as connection:
            identifiers = await _find_identifiers(connection, scope, user)
            sessions = await _find_session_ids(connection, scope)
        passes = 0
        while passes < MAX_PASSES and (passes == 0 or any(after.values())):
            passes += 1
            erased = await _erase_once(database, tables, scope, sessions, pseudonym, record if passes == 1 else None)
            for table, count in erased.items():
                before[table] = before.get(table, 0) + count
            async with database.connection() as connection:
                sessions = [*sessions, *await _find_session_ids(connection, scope)]
                after = await _count_rows(connection, tables, scope, sessions)
        async with database.connection() as connection:
            mentions = await _count_mentions(connection, scope, identifiers)
    await erase_traces(database)
    report = EraseReport(scope.tenant_id, str(scope.user_id), True, mentions=mentions, passes=passes)
    report.tables = _build_counts(tables, before, after)
    return report


def _parse_scope(user: str, tenant: str) -> Scope:
    if not user.strip():
        raise InvalidInputError("Give the user to erase: an e-mail address or an id.")
    return Scope.for_user(user, tenant)


async def _find_tables(database: Database) -> list[OwnedTable]:
    async with database.connection() as connection:
        tables, unknown = await find_owned_tables(connection)
    if unknown:
        raise DatabaseError(
            f"REM cannot tell which rows of {', '.join(unknown)} belong to the user: give each of these tables the "
            "columns tenant_id and user_id, or move it to another schema."
        )
    return tables


async def _erase_once(
    database: Database,
    tables: Sequence[OwnedTable],
    scope: Scope,
    sessions: Sequence[Any],
    pseudonym: str,
    record: RecordErasure | None,
) -> dict[str, int]:
    async def erase() -> dict[str, int]:
        async with database.transaction() as inside, inside.connection() as connection:
            # Block batch writes of the same owner and the folding of statistics.
            await connection.execute(query("db/repository", "lock_batches"), scope.tenant_id, scope.user_id)
            await connection.execute(query("forget/forget", "lock_statistics"))
            # Count first, because triggers and foreign keys also erase rows.
            counts = await _count_rows(connection, tables, scope, sessions)
            await JobQueue(inside).erase_owner(scope.tenant_id, scope.user_id, connection=connection)
            for table in tables:
                statement = fill(
                    query("forget/forget", "erase_owned"), table=table.full_name, condition=table.condition
                )
                await connection.execute(statement, *_query_parameters(table, scope, sessions))
            # Remove the user's words from the word counts. The counts that are left have no owner.
            await connection.execute(query("forget/forget", "fold_statistics"))
            clones_of = [str(session_id) for session_id in sessions]
            await connection.execute(query("forget/forget", "unlink_clones"), scope.tenant_id, scope.user_id, clones_of)
            await pseudonymize_user(connection, scope.tenant_id, str(scope.user_id), pseudonym)
            if record is not None:
                await record(connection, pseudonym)
            return counts

    return await retry_when_busy(erase)


async def _count_rows(
    connection: Connection, tables: Sequence[OwnedTable], scope: Scope, sessions: Sequence[Any]
) -> dict[str, int]:
    """Count the user's rows in each table, by full table name."""
    counts = {}
    for table in tables:
        statement = fill(query("forget/forget", "count_owned"), table=table.full_name, condition=table.condition)
        counts[table.full_name] = int(await connection.fetchval(statement, *_query_parameters(table, scope, sessions)))
    return counts


def _query_parameters(table: OwnedTable, scope: Scope, sessions: Sequence[Any]) -> tuple[Any, ...]:
    return scope.tenant_id, list(sessions) if table.is_by_session else scope.user_id


def _build_counts(
    tables: Sequence[OwnedTable], before: Mapping[str, int], after: Mapping[str, int]
) -> list[TableCount]:
    how = {table.full_name: table.how for table in tables}
    return [TableCount(name, how[name], before.get(name, 0), after.get(name, 0)) for name in sorted(how)]


async def _find_session_ids(connection: Connection, scope: Scope) -> list[Any]:
    rows = await connection.fetch(query("forget/forget", "session_ids"), scope.tenant_id, scope.user_id)
    return [row["id"] for row in rows]


async def _find_identifiers(connection: Connection, scope: Scope, user: str) -> list[str]:
    """Return the user's id and known e-mail addresses in lower case."""
    rows = await connection.fetch(query("forget/forget", "emails"), scope.tenant_id, scope.user_id)
    addresses = [row["email"] for row in rows] + ([user.strip()] if "@" in user else [])
    return sorted({name.lower() for name in (str(scope.user_id), *addresses)})


async def _count_mentions(connection: Connection, scope: Scope, identifiers: Sequence[str]) -> dict[str, int]:
    """Count the rows of other users that contain one of the identifiers, by table."""
    mentions = {}
    for row in await connection.fetch(query("db/custom_types", "entity_types")):
        statement = query_table("forget/forget", "count_mentions", row["name"])
        count = await connection.fetchval(statement, scope.tenant_id, scope.user_id, list(identifiers))
        if count:
            mentions[row["name"]] = int(count)
    return mentions
