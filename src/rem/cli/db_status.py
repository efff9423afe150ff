"""`rem db status`: show the server, the schema and the tables, without changing anything."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rem.cli.output import ByteSize, print_json, print_table
from rem.cli.runtime import print_to_stderr
from rem.cli.terminal_text import echo
from rem.db.database import Database
from rem.db.maintenance import TableSize, read_table_sizes
from rem.db.migrator import CUSTOM_PREFIX, MigrationStatus, Migrator, refuse_incompatible
from rem.db.partitions import count_partitions
from rem.db.preflight import ServerInfo, find_unmet_requirements, read_server_info
from rem.errors import MemoryDisabledError, MigrationError
from rem.settings import get_settings

if TYPE_CHECKING:
    from rem.db.embedded.server import ServerStatus


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """The state of the database."""

    server: str
    running: bool
    embedded: ServerStatus | None
    facts: ServerInfo | None
    shortcomings: list[str]
    migrations: list[MigrationStatus]
    partitions: int
    cache_is_whole: bool | None
    tables: list[TableSize]


async def read_status() -> DatabaseStatus:
    """Return the state of the database. Do not start an embedded server that is stopped."""
    settings = get_settings()
    if not settings.postgres.enabled:
        raise MemoryDisabledError
    database = Database(settings, print_to_stderr)
    embedded = database.embedded_status()
    if embedded is not None and not embedded.running:
        return DatabaseStatus(database.describe_address(), False, embedded, None, [], [], 0, None, [])
    async with database.unpooled_connection() as connection:
        facts = await read_server_info(connection)
        migrations = await Migrator(connection).status()
        is_complete = all(migration.state == "applied" for migration in migrations)
        return DatabaseStatus(
            database.describe_address(),
            True,
            embedded,
            facts,
            find_unmet_requirements(facts),
            migrations,
            await count_partitions(connection),
            await connection.fetchval("SELECT rem.rem_kv_store_is_complete()") if is_complete else None,
            await read_table_sizes(connection) if is_complete else [],
        )


async def print_status(as_json: bool) -> None:
    """Print the state of the database as text or as JSON."""
    status = await read_status()
    if as_json:
        print_json(asdict(status))
        return
    if status.facts is None:
        echo(f"Server      {status.server}: not running (`rem db start` or any other command starts it)")
        return
    vector = status.facts.vector.installed or "not installed yet"
    echo(f"Server      {status.server}: PostgreSQL {status.facts.version}, pgvector {vector}")
    if status.embedded is not None:
        size = ByteSize(status.embedded.size_bytes or 0)
        echo(f"Process     {status.embedded.pid}, {size} on disk, log in {status.embedded.log_file}")
    for shortcoming in status.shortcomings:
        echo(f"Missing     {shortcoming}")
    _print_schema(status)


def _print_schema(status: DatabaseStatus) -> None:
    pending = [migration.name for migration in status.migrations if migration.state == "pending"]
    applied = [migration.name for migration in status.migrations if migration.state == "applied"]
    builtin = [name for name in applied if not name.startswith(CUSTOM_PREFIX)]
    # custom:projects:2 is the second migration of the custom type projects.
    custom_types = Counter(name.split(":")[1] for name in applied if name.startswith(CUSTOM_PREFIX))
    echo(f"Schema      {builtin[-1] if builtin else 'none yet'}")
    if custom_types:
        echo(f"Own types   {', '.join(f'{table} ({count})' for table, count in custom_types.items())}")
    if status.partitions:
        echo(f"Partitions  {status.partitions}")
    try:
        refuse_incompatible(status.migrations)
        if pending:
            echo(f"Pending     {', '.join(pending)}: run `rem db migrate`")
    except MigrationError as error:
        echo(f"Problem     {error}")
    if status.cache_is_whole is False:
        echo("Key cache   empty after a crash; the next command rebuilds it")
    if status.tables:
        print_table(
            ["table", "rows", "deleted", "size"],
            [[table.table, table.live, table.deleted, ByteSize(table.size_bytes)] for table in status.tables],
        )
