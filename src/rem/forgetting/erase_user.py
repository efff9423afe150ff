"""Erasing a user: everything of one user in one tenant, with a proof that nothing is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rem.context import Scope
from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query
from rem.dreaming.owner_lock import hold_owner_lock
from rem.errors import DatabaseError, InvalidInputError
from rem.forgetting.forget import LOCK_TIMEOUT_SECONDS
from rem.forgetting.owned_tables import JOBS, OwnedTable, find_owned_tables
from rem.forgetting.planner_stats import reset_planner_stats
from rem.jobs.queue import JobQueue

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

MAX_PASSES = 5
_JOBS_TABLE = ".".join(JOBS)


@dataclass(frozen=True, slots=True)
class TableCount:
    """What a table holds of a user."""

    table: str
    how: str
    """By what its rows are known to be the user's."""
    before: int
    after: int


@dataclass(slots=True)
class EraseReport:
    """What was erased of a user, and that nothing is left."""

    tenant_id: str
    user_id: str
    is_applied: bool = False
    """Whether something was erased, or this only says what would be."""
    tables: list[TableCount] = field(default_factory=list)
    mentions: dict[str, int] = field(default_factory=dict)
    """Rows of others, by table, that have the user's id or e-mail address in them. They stay."""
    passes: int = 0
    """More than one if the user wrote while being erased."""

    @property
    def before(self) -> int:
        """How many rows were the user's."""
        return sum(table.before for table in self.tables)

    @property
    def after(self) -> int:
        """How many rows still are; 0 is the proof."""
        return sum(table.after for table in self.tables)


async def count_user(database: Database, user: str, tenant: str) -> EraseReport:
    """What `erase_user` would erase. Nothing changes."""
    scope = _parse_scope(user, tenant)
    tables = await _find_tables(database)
    async with database.connection() as connection:
        counts = await _count_rows(connection, tables, scope, await _find_session_ids(connection, scope))
        names = await _find_identifiers(connection, scope, user)
        report = EraseReport(
            scope.tenant_id, str(scope.user_id), mentions=await _count_mentions(connection, scope, names)
        )
    report.tables = _build_counts(tables, counts, counts)
    return report


async def erase_user(database: Database, user: str, tenant: str) -> EraseReport:
    """Erase everything of a user in a tenant, for good.

    Each pass is one transaction: interrupted, it changed nothing, and can be run again. What the user writes meanwhile
    is looked for again, some times; what is still left then stands in the report.
    """
    scope = _parse_scope(user, tenant)
    tables = await _find_tables(database)
    # First of all, because a dream that runs for the user would be waited for.
    before = {_JOBS_TABLE: await JobQueue(database).erase_owner(scope.tenant_id, scope.user_id)}
    after: dict[str, int] = {}
    async with hold_owner_lock(database, scope, timeout_seconds=LOCK_TIMEOUT_SECONDS):
        async with database.connection() as connection:
            names = await _find_identifiers(connection, scope, user)
            sessions = await _find_session_ids(connection, scope)
        passes = 0
        while passes < MAX_PASSES and (passes == 0 or any(after.values())):
            passes += 1
            found = await _erase_once(database, tables, scope, sessions)
            for table, number in found.items():
                before[table] = before.get(table, 0) + number
            async with database.connection() as connection:
                sessions = [*sessions, *await _find_session_ids(connection, scope)]
                after = await _count_rows(connection, tables, scope, sessions)
        async with database.connection() as connection:
            mentions = await _count_mentions(connection, scope, names)
    await reset_planner_stats(database)
    report = EraseReport(scope.tenant_id, str(scope.user_id), True, mentions=mentions, passes=passes)
    report.tables = _build_counts(tables, before, after)
    return report


def _parse_scope(user: str, tenant: str) -> Scope:
    if not user.strip():
        raise InvalidInputError("Say who is to be erased: an e-mail address or an id.")
    return Scope.for_user(user, tenant)


async def _find_tables(database: Database) -> list[OwnedTable]:
    async with database.connection() as connection:
        tables, unknown = await find_owned_tables(connection)
    if unknown:
        raise DatabaseError(
            f"It is not known whose the rows of {', '.join(unknown)} are, so that nothing could be proved: give such a "
            "table the columns tenant_id and user_id, or keep it in another schema."
        )
    return tables


async def _erase_once(
    database: Database, tables: Sequence[OwnedTable], scope: Scope, sessions: Sequence[Any]
) -> dict[str, int]:
    async def work() -> dict[str, int]:
        async with database.transaction() as inside, inside.connection() as connection:
            # Batches of the same owner, and whoever folds the statistics, wait.
            await connection.execute(query("repository", "take_turns"), scope.tenant_id, scope.user_id)
            await connection.execute(query("forgetting", "lock_statistics"))
            # What goes by a trigger or a foreign key counts, too.
            counts = await _count_rows(connection, tables, scope, sessions)
            for table in tables:
                statement = fill(query("forgetting", "erase_owned"), table=table.full_name, condition=table.condition)
                await connection.execute(statement, *_query_parameters(table, scope, sessions))
            await JobQueue(inside).erase_owner(scope.tenant_id, scope.user_id, connection=connection)
            # The user's words are not counted any more, and the counts that are left have no owner.
            await connection.execute(query("forgetting", "fold_statistics"))
            return counts

    return await retry_when_busy(work)


async def _count_rows(
    connection: Connection, tables: Sequence[OwnedTable], scope: Scope, sessions: Sequence[Any]
) -> dict[str, int]:
    """How many rows of a user each table has."""
    counts = {}
    for table in tables:
        statement = fill(query("forgetting", "count_owned"), table=table.full_name, condition=table.condition)
        counts[table.full_name] = int(await connection.fetchval(statement, *_query_parameters(table, scope, sessions)))
    jobs = await connection.fetch(query("jobs", "of_owner"), scope.tenant_id, scope.user_id)
    return counts | {_JOBS_TABLE: len(jobs)}


def _query_parameters(table: OwnedTable, scope: Scope, sessions: Sequence[Any]) -> tuple[Any, ...]:
    return scope.tenant_id, list(sessions) if table.is_by_session else scope.user_id


def _build_counts(
    tables: Sequence[OwnedTable], before: Mapping[str, int], after: Mapping[str, int]
) -> list[TableCount]:
    how = {**{table.full_name: table.how for table in tables}, _JOBS_TABLE: "headers"}
    return [TableCount(place, how[place], before.get(place, 0), after.get(place, 0)) for place in sorted(how)]


async def _find_session_ids(connection: Connection, scope: Scope) -> list[Any]:
    rows = await connection.fetch(query("forgetting", "session_ids"), scope.tenant_id, scope.user_id)
    return [row["id"] for row in rows]


async def _find_identifiers(connection: Connection, scope: Scope, user: str) -> list[str]:
    """What others may know the user by: the id, and the addresses that are known."""
    rows = await connection.fetch(query("forgetting", "emails"), scope.tenant_id, scope.user_id)
    addresses = [row["email"] for row in rows] + ([user.strip()] if "@" in user else [])
    return sorted({name.lower() for name in (str(scope.user_id), *addresses)})


async def _count_mentions(connection: Connection, scope: Scope, names: Sequence[str]) -> dict[str, int]:
    """How many rows of others have one of the names in them."""
    mentions = {}
    for row in await connection.fetch(query("custom_types", "entity_types")):
        statement = fill(query("forgetting", "count_mentions"), table=f"rem.{identifier(row['name'])}")
        number = await connection.fetchval(statement, scope.tenant_id, scope.user_id, list(names))
        if number:
            mentions[row["name"]] = int(number)
    return mentions
