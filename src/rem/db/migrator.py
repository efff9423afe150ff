"""Migrate the schema: numbered `.sql` files in both directions, and SQL functions that are replaced on change."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Literal, TypeVar

import asyncpg

from rem.db.partitions import check_partition_request, count_partitions, partition_tables
from rem.db.retry import BUSY_ERRORS
from rem.db.sql import fill, query
from rem.errors import MigrationError

if TYPE_CHECKING:
    from rem.db.database import Connection

T = TypeVar("T")
MigrationState = Literal["applied", "pending", "changed", "unknown"]
LOCK_TIMEOUT_MS = 300
"""Time that a change of the schema waits for a table. All who use the table meanwhile wait behind it.

It is shorter than PostgreSQL's deadlock_timeout (1 s): in a deadlock, the migration gives way, not the writer.
"""
LOCK_PAUSE_SECONDS = 1.0
"""Pause before the next attempt, in which the others go on."""
MAX_LOCK_WAIT_SECONDS = 60.0
"""Time after which a change of the schema gives up, if another session holds a table."""
_BODY = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)
_CREATED_TABLE = re.compile(r"\bCREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?([\w.]+)", re.IGNORECASE)
_HEAVY_STATEMENT = re.compile(
    r"""^(?:CREATE\s+(?:UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY)(?:IF\s+NOT\s+EXISTS\s+)?\S+\s+ON\s+([\w.]+)
          |ALTER\s+TABLE\s+([\w.]+)\b.*?\b(?:SET\s+NOT\s+NULL|(?:SET\s+DATA\s+)?TYPE\b|ADD\s+CONSTRAINT(?!.*NOT\s+VALID))
          |UPDATE\s+([\w.]+)|DELETE\s+FROM\s+([\w.]+)|INSERT\s+INTO\s+([\w.]+)\b.*\bSELECT\b)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_FUNCTION_NAME = re.compile(r"^CREATE OR REPLACE FUNCTION (\w+)", re.MULTILINE)
FIRST_EARLIER_MIGRATION = "0001_foundation"
"""The first migration of the schemas before the first release, which had 26 of them."""
CUSTOM_PREFIX = "custom:"
"""Name prefix of the migrations of custom types. They are stored in the database, not in this package."""


def compute_checksum(text: str) -> str:
    """Return the SHA-256 of a script in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema, with a script for each direction."""

    name: str
    up_script: str
    down_script: str

    @property
    def checksum(self) -> str:
        """Return the checksum of the up script. It differs if the file changed after it was applied."""
        return compute_checksum(self.up_script)


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The state of a migration in the database."""

    name: str
    state: MigrationState
    applied_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a migration of the database would do."""

    pending: list[str]
    replaces_functions: bool
    heavy_statements: dict[str, list[str]]
    """Statements by migration that keep a table from writers for as long as they read or write its rows."""

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to do."""
        return not self.pending and not self.replaces_functions


@dataclass(frozen=True, slots=True)
class _AppliedMigration:
    """A row of rem.migrations."""

    name: str
    checksum: str
    down_script: str
    applied_at: datetime


@cache
def builtin_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this package in their order: a folder, or a pair of files, for each."""
    entries = sorted((files("rem.db") / "migrations").iterdir(), key=lambda entry: entry.name)
    return tuple(
        _read_folder(entry) if entry.is_dir() else _read_pair(entry)
        for entry in entries
        if (entry.is_dir() and entry.name[0].isdigit()) or entry.name.endswith(".up.sql")
    )


def _read_folder(folder: Traversable) -> Migration:
    """Read a migration in several files, which run in the order of their names."""
    scripts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    down_script = scripts.pop("down.sql")
    return Migration(folder.name, "\n".join(scripts[name] for name in sorted(scripts)), down_script)


def _read_pair(up_file: Traversable) -> Migration:
    name = up_file.name.removesuffix(".up.sql")
    down_file = files("rem.db") / "migrations" / f"{name}.down.sql"
    return Migration(name, up_file.read_text(encoding="utf-8"), down_file.read_text(encoding="utf-8"))


@cache
def _load_functions_script() -> str:
    """Return the SQL functions of all features, which lie in `{feature}/functions/`."""
    folders = [feature / "functions" for feature in files("rem").iterdir() if (feature / "functions").is_dir()]
    scripts = sorted((script for folder in folders for script in folder.iterdir()), key=lambda script: script.name)
    return "\n".join(script.read_text(encoding="utf-8") for script in scripts)


class Migrator:
    """Migrates the schema of a database. Every change is one transaction under one advisory lock."""

    def __init__(self, connection: Connection, search_path: str = "rem, public") -> None:
        self._connection = connection
        self._search_path = search_path

    async def status(self) -> list[MigrationStatus]:
        """Return every migration of this package and of the database, in order."""
        applied = {row.name: row for row in await self._fetch_applied()}
        builtin = {migration.name: migration for migration in builtin_migrations()}
        statuses = []
        for name, migration in builtin.items():
            row = applied.get(name)
            statuses.append(MigrationStatus(name, _compare(migration, row), row.applied_at if row else None))
        for name, row in applied.items():
            if name not in builtin:
                state: MigrationState = "applied" if name.startswith(CUSTOM_PREFIX) else "unknown"
                statuses.append(MigrationStatus(name, state, row.applied_at))
        return statuses

    async def is_current(self) -> bool:
        """Return True if nothing is pending. Raise MigrationError if this REM cannot use the database."""
        return (await self.plan()).is_empty

    async def plan(self) -> MigrationPlan:
        """Return what `migrate` would do. Raise MigrationError if this REM cannot use the database."""
        statuses = await self.status()
        refuse_incompatible(statuses)
        pending = {status.name for status in statuses if status.state == "pending"}
        selected = [migration for migration in builtin_migrations() if migration.name in pending]
        return MigrationPlan(
            [migration.name for migration in selected],
            await self._fetch_functions_checksum() != compute_checksum(_load_functions_script()),
            {
                migration.name: statements
                for migration in selected
                if (statements := find_heavy_statements(migration.up_script))
            },
        )

    async def migrate(self, extra: Sequence[Migration] = (), partitions: int | None = None) -> list[str]:
        """Apply the pending migrations, then `extra`, and return the names of the applied ones.

        Divide the large tables into `partitions`; with None, only new tables of a database that has partitions.
        """
        async with self._connection.transaction():
            await self._lock_and_prepare()
            statuses = await self.status()
            refuse_incompatible(statuses)
            pending = {status.name for status in statuses if status.state == "pending"}
            selected = [migration for migration in builtin_migrations() if migration.name in pending] + list(extra)
            for migration in selected:
                await self._run(migration.name, migration.up_script)
                await self._connection.execute(
                    query("db/migrations", "record"), migration.name, migration.checksum, migration.down_script
                )
            await self._divide_tables(partitions)
            await self._install_functions(refresh=bool(selected))
            return [migration.name for migration in selected]

    async def _divide_tables(self, partitions: int | None) -> None:
        if partitions is not None and await check_partition_request(self._connection, partitions):
            # Functions and policies depend on the tables that are replaced. They are installed again afterwards.
            await self._drop_functions()
        elif not (partitions := await count_partitions(self._connection)):
            return
        await partition_tables(self._connection, partitions)

    async def rollback(self, steps: int = 1) -> list[str]:
        """Undo the newest migrations, and return their names."""
        async with self._connection.transaction():
            await self._lock_and_prepare()
            applied = await self._fetch_applied()
            refuse_earlier(row.name for row in applied)
            newest_first = applied[::-1][:steps]
            await self._drop_functions()
            for row in newest_first:
                await self._run(row.name, row.down_script)
                await self._connection.execute(query("db/migrations", "delete"), row.name)
            if all(status.state == "applied" for status in await self.status()):
                await self._install_functions(refresh=True)
            return [row.name for row in newest_first]

    async def set_kv_logged(self, logged: bool) -> None:
        """Write kv_store to the write-ahead log (replicas need it), or not (faster)."""
        mode = "LOGGED" if logged else "UNLOGGED"
        for (table,) in await self._connection.fetch(query("db/migrations", "kv_tables"), "u" if logged else "p"):
            await self._connection.execute(fill("ALTER TABLE {table} SET {mode}", table=table, mode=mode))

    async def _lock_and_prepare(self) -> None:
        await self._connection.execute(query("db/migrations", "lock"))
        await self._connection.execute(query("db/migrations", "bookkeeping"))
        await self._connection.execute(f"SET LOCAL search_path = {self._search_path}")
        await self._connection.execute(fill("SET LOCAL lock_timeout = {limit}", limit=str(LOCK_TIMEOUT_MS)))

    async def _run(self, name: str, script: str) -> None:
        try:
            await self._connection.execute(script)
        except BUSY_ERRORS:
            raise
        except asyncpg.PostgresError as error:
            raise MigrationError(f"The migration {name} failed, and nothing was changed: {error}") from error

    async def _fetch_applied(self) -> list[_AppliedMigration]:
        if not await self._connection.fetchval(query("db/migrations", "has_bookkeeping")):
            return []
        return [_AppliedMigration(*row) for row in await self._connection.fetch(query("db/migrations", "applied"))]

    async def _fetch_functions_checksum(self) -> str | None:
        if not await self._connection.fetchval(query("db/migrations", "has_bookkeeping")):
            return None
        value: str | None = await self._connection.fetchval(query("db/migrations", "functions_checksum"))
        return value

    async def _install_functions(self, refresh: bool) -> None:
        """Create the functions if they changed, and the objects that are generated from them."""
        installed = await self._fetch_functions_checksum()
        current = compute_checksum(_load_functions_script())
        if installed == current and not refresh:
            return
        if installed != current:
            await self._drop_functions()
            await self._connection.execute(_load_functions_script())
            await self._connection.execute(query("db/migrations", "record_functions"), current)
        await self._connection.execute("SELECT rem.rem_refresh_entity_types()")
        if installed is not None and not await self._connection.fetchval("SELECT rem.rem_kv_store_is_complete()"):
            # A migration has changed the keys of rows.
            await self._connection.execute("SELECT rem.rem_rebuild_kv_store()")
        if installed is None:
            # Without the triggers, nothing kept the mirrors exact.
            await self._connection.execute(query("db/migrations", "rebuild"))
            await self._connection.execute("SELECT rem.rem_enqueue_all_rows()")

    async def _drop_functions(self) -> None:
        if await self._fetch_functions_checksum() is None:
            return
        await self._connection.execute("SELECT rem.rem_drop_mirrors()")
        names = _FUNCTION_NAME.findall(_load_functions_script())
        # All in one statement: the drop of a function drops those that call it, too, and their own drop would fail.
        if signatures := await self._connection.fetchval(query("db/migrations", "functions_by_name"), names):
            await self._connection.execute(fill("DROP FUNCTION {signatures} CASCADE", signatures=signatures))
        await self._connection.execute(query("db/migrations", "delete_functions"))


async def change_schema(
    connection: Connection,
    change: Callable[[], Awaitable[T]],
    on_progress: Callable[[str], None] | None = None,
    max_wait_seconds: float = MAX_LOCK_WAIT_SECONDS,
) -> T:
    """Run a change of the schema in one transaction, and return its result.

    It never waits long for a table that another session holds, because everyone else would wait behind it. It gives
    up, lets the others go on, and tries again. After `max_wait_seconds` raise MigrationError that names the session.
    """
    deadline = time.monotonic() + max_wait_seconds
    while True:
        try:
            async with connection.transaction():
                return await change()
        except BUSY_ERRORS as error:
            holders = await connection.fetchval(query("db/migrations", "oldest_transactions"))
            if time.monotonic() >= deadline or connection.is_in_transaction():
                raise MigrationError(
                    f"Other sessions hold tables that the migration changes, and nothing was changed ({error}). Their "
                    f"oldest transactions: {holders or 'none any more'}. End them, or try again later."
                ) from error
        if on_progress is not None:
            on_progress(f"Waiting for other sessions ({holders or 'which have ended'}) ...")
        await asyncio.sleep(LOCK_PAUSE_SECONDS)


def find_heavy_statements(script: str) -> list[str]:
    """Return the statements that lock an existing table while they read or write its rows, each in one line."""
    text = re.sub(r"--[^\n]*", "", _BODY.sub("", script))
    created = {name.removeprefix("rem.") for name in _CREATED_TABLE.findall(text)}
    heavy = []
    for statement in text.split(";"):
        match = _HEAVY_STATEMENT.match(statement.strip())
        if match and next(filter(None, match.groups())).removeprefix("rem.") not in created:
            heavy.append(" ".join(statement.split()))
    return heavy


def _compare(migration: Migration, applied: _AppliedMigration | None) -> MigrationState:
    if applied is None:
        return "pending"
    return "applied" if applied.checksum == migration.checksum else "changed"


def refuse_incompatible(statuses: list[MigrationStatus]) -> None:
    """Raise MigrationError if this REM cannot use a database with these migrations."""
    refuse_earlier(status.name for status in statuses)
    unknown = [status.name for status in statuses if status.state == "unknown"]
    if unknown:
        raise MigrationError(
            f"The database has migrations that this REM does not know ({', '.join(unknown)}): "
            "a newer version wrote it, so upgrade REM."
        )
    changed = [status.name for status in statuses if status.state == "changed"]
    if changed:
        raise MigrationError(
            f"The migrations {', '.join(changed)} changed after they were applied: "
            "install the REM version that migrated this database, or restore the files."
        )


def refuse_earlier(names: Iterable[str]) -> None:
    """Raise MigrationError if one of the migrations of a database is of a schema before the first release."""
    if FIRST_EARLIER_MIGRATION in names:
        raise MigrationError(
            "A version of REM from before the first release made this database. This version does not read it, and has "
            "changed nothing. Set REM_HOME to a new folder, or POSTGRES__CONNECTION_STRING to an empty database. To "
            "take the memory along, write it with `rem db dump` of the earlier version, and read it with `rem db load`."
        )
