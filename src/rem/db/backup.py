"""Back up memory, accounts and API keys to one file with `pg_dump`, and restore it into a database without rows."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape as glob_escape
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from rem.db.database import Database, Progress, migrate_schema
from rem.db.embedded.programs import INHERITED_VARIABLES, find_bin_folder
from rem.db.preflight import check_requirements, read_server_info
from rem.db.sql import query
from rem.errors import ConflictError, DatabaseError, InvalidInputError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.settings import Settings

OnTable: TypeAlias = Callable[[int, int | None], None]
"""Is called with the number of tables that were copied, and the number of all tables if it is known."""
DUMP_SIGNATURE = b"PGDMP"
"""The first bytes of a file that `pg_dump` wrote in its custom format."""
BACKED_UP = (
    *("--schema=rem", "--schema=rem_auth", "--schema=rem_jobs", "--schema=rem_partitions"),
    *("--extension=vector", "--extension=pg_trgm"),
)
NOT_BACKED_UP = ("--no-owner", "--no-privileges", "--no-comments")
"""Roles differ between servers, and comments on extensions can only be restored by their owners."""
EMBEDDED_RESTORE_OPTIONS = "-c maintenance_work_mem=1GB -c max_parallel_maintenance_workers=0"
"""With the memory that the embedded server has by default, a large index of vectors is made on disk, which takes much
longer. Parallel workers would need the memory as shared memory, which containers often lack."""
OTHER_DATABASE = "set REM_HOME to a new folder, or POSTGRES__CONNECTION_STRING to an empty database."
MAX_ERROR_LINES = 5
MAX_LINE_BYTES = 16 * 2**20
"""An error quotes its statement, which may be a long line."""
TABLE_MESSAGES = ("dumping contents of table ", "processing data for table ")


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup wrote."""

    file: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore brought back: the rows of each table, and the migrations that the backup did not have yet."""

    rows: dict[str, int]
    migrated: list[str]


async def back_up(
    settings: Settings, file: Path, *, on_progress: Progress | None = None, on_table: OnTable | None = None
) -> BackupReport:
    """Write the memory, accounts and logins of all tenants and users to a new file that only its owner can read.

    Secrets of API keys and logins are in it as the hashes that the database has. The backup is the state at one moment;
    others may write meanwhile. If it fails, no file is left. What a killed one left is removed by the next backup to
    this name.
    """
    async with Database.open(settings, on_progress) as database:
        unfinished = _start_file(file)
        try:
            options = [*BACKED_UP, *NOT_BACKED_UP, "--format=custom", f"--file={unfinished}"]
            with _locked(unfinished) as lock:
                await _run_program("pg_dump", options, database, on_table, lock)
            return _finish_file(unfinished, file)
        finally:
            unfinished.unlink(missing_ok=True)
            # pg_dump may have outlived a killed backup for some seconds, and have kept its file locked.
            _remove_abandoned(file)


async def restore(
    settings: Settings, file: Path, *, on_progress: Progress | None = None, on_table: OnTable | None = None
) -> RestoreReport:
    """Restore a backup into a database that has no memories, all or nothing, and migrate it to this REM's schema."""
    _check_backup(file)
    database = Database(settings, on_progress)
    async with database.unpooled_connection() as connection:
        # The lock of the migrator: no other process creates or restores the schema meanwhile.
        await connection.execute(query("db/backup", "lock"))
        await connection.fetch(query("db/backup", "end_orphans"))
        await _prepare_database(connection)
        await connection.execute(query("db/backup", "mark"))
        try:
            options = ["--single-transaction", "--exit-on-error", *NOT_BACKED_UP]
            await _run_program("pg_restore", [*options, str(file)], database, on_table)
            migrated = await _finish(connection, settings)
        except BaseException:
            # Also if the user interrupts it: an incomplete memory must not look like one that works.
            await _drop_schemas(connection)
            await connection.execute(query("db/backup", "unmark"))
            raise
        await connection.execute(query("db/backup", "unmark"))
        rows = {
            row["entity_type"]: row["live"] for row in await connection.fetch(query("db/maintenance", "table_sizes"))
        }
    return RestoreReport(rows, migrated)


def _start_file(file: Path) -> Path:
    """Create the file that the backup is written to, so that an unfinished backup never has the name of a whole one.

    Two backups to one name at once write to different files; the second one to end fails.
    """
    unfinished = file.with_name(f"{file.name}.{token_hex(4)}.unfinished")
    try:
        if file.exists():
            raise FileExistsError
        _remove_abandoned(file)
        unfinished.touch(mode=0o600, exist_ok=False)
    except FileExistsError as error:
        raise ConflictError(f"{file} exists already: choose another name for the backup.") from error
    except OSError as error:
        raise InvalidInputError(f"The backup cannot be written to {file}: {error.strerror}.") from error
    return unfinished


def _remove_abandoned(file: Path) -> None:
    """Remove the memories that killed backups to a name left. What is locked is still being written."""
    for path in file.parent.glob(f"{glob_escape(file.name)}.*.unfinished"):
        with _locked(path) as lock:
            if lock is not None:
                path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """Lock a file for the block and the programs that get its descriptor. Yield None if it is locked already."""
    if sys.platform == "win32":
        yield None
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _finish_file(unfinished: Path, file: Path) -> BackupReport:
    if file.exists():
        raise ConflictError(f"Another backup was written to {file} meanwhile: choose another name.")
    unfinished.rename(file)
    return BackupReport(file, file.stat().st_size)


def _check_backup(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            signature = stream.read(len(DUMP_SIGNATURE))
    except OSError as error:
        raise InvalidInputError(f"The backup {file} cannot be read: {error.strerror}.") from error
    if signature != DUMP_SIGNATURE:
        raise InvalidInputError(f"{file} is not a backup of `rem db backup`. `rem db load` reads YAML files.")


async def _prepare_database(connection: Connection) -> None:
    """Check the server, and drop a schema without rows."""
    info = await read_server_info(connection)
    check_requirements(replace(info, is_restoring=False))
    if info.has_schema:
        if not info.is_restoring:
            await _refuse_stored_rows(connection)
        await _drop_schemas(connection)


async def _drop_schemas(connection: Connection) -> None:
    for name in ("drop_partitions", "drop_schema"):
        await connection.execute(query("db/backup", name))


async def _refuse_stored_rows(connection: Connection) -> None:
    if not await connection.fetchval(query("db/backup", "has_tables")):
        return
    row_count = sum(
        row["live"] + row["deleted"] for row in await connection.fetch(query("db/maintenance", "table_sizes"))
    )
    if row_count:
        raise ConflictError(
            f"This database already has {row_count} rows, and a restore would mix two memories: {OTHER_DATABASE}"
        )
    if await connection.fetchval(query("db/backup", "count_logins")):
        raise ConflictError(
            f"This database already has accounts or API keys, which a restore would replace: {OTHER_DATABASE}"
        )


async def _finish(connection: Connection, settings: Settings) -> list[str]:
    """Do what a backup leaves out: new migrations, rights of the SQL verb, and statistics of the planner."""
    info = await read_server_info(connection)
    applied = await migrate_schema(connection, settings, info)
    await connection.execute(query("db/backup", "protect"))
    await connection.execute(query("db/backup", "analyze"))
    return applied


async def _run_program(
    program: str, options: Sequence[str], database: Database, on_table: OnTable | None, lock: int | None = None
) -> None:
    """Run a program of PostgreSQL on the database, which also holds a lock until it ends.

    Raise DatabaseError with the end of its error output.
    """
    address, password = split_password(database.get_connection_string())
    process = await asyncio.create_subprocess_exec(
        find_bin_folder() / program,
        *options,
        "--verbose",
        "--no-password",
        f"--dbname={address}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**_make_environment(password, database.is_embedded), "PGAPPNAME": f"rem-{program}"},
        pass_fds=() if lock is None else (lock,),
        limit=MAX_LINE_BYTES,
    )
    try:
        errors = await _follow(cast("asyncio.StreamReader", process.stderr), program, on_table)
        if await process.wait() != 0:
            raise DatabaseError(f"{program} failed: {'; '.join(errors) or f'exit code {process.returncode}'}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _follow(output: asyncio.StreamReader, program: str, on_table: OnTable | None) -> list[str]:
    """Report each table that the program reads or writes, and return its error messages."""
    errors: list[str] = []
    table_count = 0
    async for line in output:
        message = line.decode(errors="replace").strip().removeprefix(f"{program}: ")
        if message.startswith("error: ") and len(errors) < MAX_ERROR_LINES:
            errors.append(message.removeprefix("error: "))
        if message.startswith(TABLE_MESSAGES):
            table_count += 1
            if on_table is not None:
                on_table(table_count, None)
    return errors


def split_password(connection_string: str) -> tuple[str, str | None]:
    """Take the password out of a connection string: the arguments of a process are visible to other users."""
    parts = urlsplit(connection_string)
    credentials, at_sign, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    options = parse_qsl(parts.query, keep_blank_values=True)
    passwords = [value for name, value in options if name == "password"] + [unquote(password)]
    query_string = urlencode([(name, value) for name, value in options if name != "password"], quote_via=quote)
    return f"{parts.scheme}://{user}{at_sign}{hosts}{parts.path}?{query_string}", passwords[0] or None


def _make_environment(password: str | None, is_embedded: bool) -> dict[str, str]:
    names = (*INHERITED_VARIABLES, "HOME", "PGPASSFILE", "PGSSLMODE", "PGSSLROOTCERT", "PGOPTIONS")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    if is_embedded:
        environment["PGOPTIONS"] = EMBEDDED_RESTORE_OPTIONS
    return environment | ({"PGPASSWORD": password} if password else {})
