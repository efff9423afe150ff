"""The schema's versions: numbered `.sql` files up and down, and functions that are replaced whenever they change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import asyncpg

from rem.db.sql import fill, query
from rem.errors import MigrationError

if TYPE_CHECKING:
    from rem.db.database import Connection

State = Literal["applied", "pending", "changed", "unknown"]
_FUNCTION_NAME = re.compile(r"^CREATE OR REPLACE FUNCTION (\w+)", re.MULTILINE)
CUSTOM_PREFIX = "custom:"
"""Migrations of the users' own entity types; their source is the database, not this package."""


def checksum(text: str) -> str:
    """A fingerprint of a script."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Migration:
    """A step of the schema, and the way back."""

    name: str
    up_script: str
    down_script: str

    @property
    def checksum(self) -> str:
        """What tells whether an applied migration is still the one in the source."""
        return checksum(self.up_script)


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration and whether the database has it."""

    name: str
    state: State
    applied_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Applied:
    name: str
    checksum: str
    down_script: str
    applied_at: datetime


@cache
def builtin_migrations() -> tuple[Migration, ...]:
    """The package's migrations in their order."""
    folder = files("rem.db") / "migrations"
    ups = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".up.sql"))
    return tuple(
        Migration(
            name.removesuffix(".up.sql"),
            (folder / name).read_text(encoding="utf-8"),
            (folder / name.replace(".up.sql", ".down.sql")).read_text(encoding="utf-8"),
        )
        for name in ups
    )


@cache
def _functions_script() -> str:
    folder = files("rem.db") / "functions"
    return "\n".join(
        (folder / name).read_text(encoding="utf-8") for name in sorted(entry.name for entry in folder.iterdir())
    )


class Migrator:
    """Brings a database to a version. Every change is one transaction under one lock: all of it happens, or nothing."""

    def __init__(self, connection: Connection, search_path: str = "rem, public") -> None:
        self._connection = connection
        self._search_path = search_path

    async def status(self) -> list[MigrationStatus]:
        """Every migration that the source or the database knows, in order."""
        applied = {row.name: row for row in await self._applied()}
        known = {migration.name: migration for migration in builtin_migrations()}
        states = []
        for name, migration in known.items():
            row = applied.get(name)
            state: State = "pending" if row is None else "applied" if row.checksum == migration.checksum else "changed"
            states.append(MigrationStatus(name, state, row.applied_at if row else None))
        for name, row in applied.items():
            if name not in known:
                state = "applied" if name.startswith(CUSTOM_PREFIX) else "unknown"
                states.append(MigrationStatus(name, state, row.applied_at))
        return states

    async def is_current(self) -> bool:
        """Whether nothing is left to do; an error if the database and this REM do not fit together."""
        states = await self.status()
        _refuse_misfits(states)
        return not any(status.state == "pending" for status in states) and (
            await self._functions_checksum() == checksum(_functions_script())
        )

    async def migrate(self, more: Sequence[Migration] = ()) -> list[str]:
        """Apply what is pending, and `more` behind it; the names of what was applied."""
        async with self._connection.transaction():
            await self._prepare()
            states = await self.status()
            _refuse_misfits(states)
            pending = {status.name for status in states if status.state == "pending"}
            todo = [migration for migration in builtin_migrations() if migration.name in pending] + list(more)
            for migration in todo:
                await self._run(migration.name, migration.up_script)
                await self._connection.execute(
                    query("migrations", "record"), migration.name, migration.checksum, migration.down_script
                )
            await self._install_functions(refresh=bool(todo))
            return [migration.name for migration in todo]

    async def rollback(self, steps: int = 1) -> list[str]:
        """Take back the newest migrations; the names of what was taken back."""
        async with self._connection.transaction():
            await self._prepare()
            newest_first = list(reversed(await self._applied()))[:steps]
            await self._drop_functions()
            for row in newest_first:
                await self._run(row.name, row.down_script)
                await self._connection.execute(query("migrations", "forget"), row.name)
            if all(status.state == "applied" for status in await self.status()):
                await self._install_functions(refresh=True)
            return [row.name for row in newest_first]

    async def set_kv_logged(self, logged: bool) -> None:
        """Keep kv_store in the write-ahead log, for replicas, or out of it, for speed."""
        wanted = "p" if logged else "u"
        if await self._connection.fetchval(query("migrations", "kv_persistence")) != wanted:
            mode = "LOGGED" if logged else "UNLOGGED"
            await self._connection.execute(fill("ALTER TABLE rem.kv_store SET {mode}", mode=mode))

    async def _prepare(self) -> None:
        await self._connection.execute(query("migrations", "lock"))
        await self._connection.execute(query("migrations", "bookkeeping"))
        await self._connection.execute(f"SET LOCAL search_path = {self._search_path}")

    async def _run(self, name: str, script: str) -> None:
        try:
            await self._connection.execute(script)
        except asyncpg.PostgresError as error:
            raise MigrationError(f"The migration {name} failed, and nothing was changed: {error}") from error

    async def _applied(self) -> list[_Applied]:
        if not await self._connection.fetchval(query("migrations", "has_bookkeeping")):
            return []
        return [_Applied(*row) for row in await self._connection.fetch(query("migrations", "applied"))]

    async def _functions_checksum(self) -> str | None:
        if not await self._connection.fetchval(query("migrations", "has_bookkeeping")):
            return None
        value: str | None = await self._connection.fetchval(query("migrations", "functions_checksum"))
        return value

    async def _install_functions(self, refresh: bool) -> None:
        """Create the functions that are missing or changed, and what is generated from them."""
        installed = await self._functions_checksum()
        wanted = checksum(_functions_script())
        if installed == wanted and not refresh:
            return
        if installed != wanted:
            await self._drop_functions()
            await self._connection.execute(_functions_script())
            await self._connection.execute(query("migrations", "record_functions"), wanted)
        await self._connection.execute("SELECT rem.rem_refresh_entity_types()")
        if installed is None:
            # While the triggers were away, nothing kept the mirrors exact.
            await self._connection.execute(query("migrations", "rebuild"))
            await self._connection.execute("SELECT rem.rem_enqueue_all_rows()")

    async def _drop_functions(self) -> None:
        if await self._functions_checksum() is None:
            return
        await self._connection.execute("SELECT rem.rem_drop_mirrors()")
        names = _FUNCTION_NAME.findall(_functions_script())
        for (signature,) in await self._connection.fetch(query("migrations", "functions_by_name"), names):
            await self._connection.execute(fill("DROP FUNCTION {signature} CASCADE", signature=signature))
        await self._connection.execute(query("migrations", "forget_functions"))


def _refuse_misfits(states: list[MigrationStatus]) -> None:
    unknown = [status.name for status in states if status.state == "unknown"]
    if unknown:
        raise MigrationError(
            f"The database has migrations that this REM does not know ({', '.join(unknown)}): "
            "it was written by a newer version, so upgrade REM."
        )
    changed = [status.name for status in states if status.state == "changed"]
    if changed:
        raise MigrationError(
            f"The migrations {', '.join(changed)} were applied with another content than they have here: "
            "install the REM that wrote this database, or restore the files."
        )
