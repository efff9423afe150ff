"""The recipe in docs/database.md copies a memory into a divided database, while REM writes to the old one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.database import Database, migrate_schema
from rem.db.embedded.postmaster import Address
from rem.db.embedded.server import EmbeddedServer
from rem.db.maintenance import check_mirrors
from rem.db.partitions import count_partitions
from rem.db.preflight import read_server_info
from rem.db.store import Store
from rem.models import Edge, Resource
from rem.settings import Settings
from tests.db.test_backup import fill, read_all_rows
from tests.db.test_custom_types import Project
from tests.rem_command import REPOSITORY

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PARTITIONS = 3
MAX_WAIT_SECONDS = 300.0
RECIPE = {
    name: [statement.strip() for statement in block.split(";") if statement.strip()]
    for name, block in re.findall(
        r"<!-- copy: (\w+) -->\n *```sql\n(.*?) *```", (REPOSITORY / "docs/database.md").read_text(), re.DOTALL
    )
}
NOT_COPIED = {"rem.migrations", "rem.installed_functions", "rem.term_count_deltas", "rem.passage_total_deltas"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """Return an old and a new server. The old one writes what logical replication needs."""
    old, new = EmbeddedServer(tmp_path / "old"), EmbeddedServer(tmp_path / "new")
    try:
        yield old, new
    finally:
        old.stop()
        new.stop()


@asynccontextmanager
async def connect(address: Address) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(address.dsn())
    try:
        yield connection
    finally:
        await connection.close()


async def follow(connection: Connection, step: str, **replaced: str) -> Any:
    """Run a step of the recipe, and return the last value."""
    value = None
    for statement in RECIPE[step]:
        for old, new in replaced.items():
            statement = statement.replace(old, new)
        value = await connection.fetchval(statement)
    return value


async def repeat(connection: Connection, step: str, wanted: object) -> None:
    """Repeat a step of the recipe until it returns a value."""
    async with asyncio.timeout(MAX_WAIT_SECONDS):
        while await follow(connection, step) != wanted:  # noqa: ASYNC110  # PostgreSQL reports no event
            await asyncio.sleep(0.2)


async def write_until(stopped: asyncio.Event, store: Store) -> list[str]:
    """Insert, update and delete rows until the event, and return the keys of the live ones."""
    written: list[str] = []
    while not stopped.is_set():
        row = await store.upsert(Resource(name=f"Live {len(written)}", graph_edges=[Edge(dst="live-0")]))
        await store.upsert(row.model_copy(update={"content": "Written during the copy."}))
        await store.delete(await store.upsert(Resource(name=f"Gone {len(written)}")))
        written.append(row.name)
    return written


async def restart_for_logical_replication(server: EmbeddedServer) -> Address:
    async with connect(server.ensure_running()) as admin:
        await admin.execute("ALTER SYSTEM SET wal_level = 'logical'")
    server.stop()
    return server.ensure_running()


async def migrate_divided(settings: Settings) -> None:
    async with Database(settings).unpooled_connection() as connection:
        await migrate_schema(connection, settings, await read_server_info(connection), PARTITIONS)


async def test_recipe_copies_a_memory_that_is_in_use(
    servers: tuple[EmbeddedServer, EmbeddedServer], tmp_path: Path
) -> None:
    old_server, new_server = servers
    old_settings, new_settings = Settings(rem_home=tmp_path / "old"), Settings(rem_home=tmp_path / "new")
    old_address = await restart_for_logical_replication(old_server)
    stopped = asyncio.Event()
    async with Rem.open(old_settings) as rem:
        await rem.register(Project)
        await fill(rem)
        await migrate_divided(new_settings)
        async with Rem.open(new_settings) as new_rem:
            await new_rem.register(Project)
        new_address = new_server.ensure_running()
        async with connect(old_address) as old, connect(new_address) as new:
            writing = asyncio.create_task(write_until(stopped, rem.for_user("carol@example.com", tenant="acme").store))
            await follow(old, "publish")
            source = f"host={old_address.socket_dir} port={old_address.port} dbname={old_address.database} user=rem"
            await follow(new, "subscribe", **{"host=old.example.com dbname=rem user=rem": source})
            await repeat(new, "count_missing", 0)
            await follow(new, "index")
            written_before = await rem.for_user("carol@example.com", tenant="acme").store.count(Resource)
            stopped.set()
            written = await writing
            await rem.index()
            # The row that was about to be deleted may have been counted.
            assert len(written) + 1 >= written_before > 0
            await follow(old, "stop")
            await repeat(old, "is_complete", True)
            await follow(new, "finish")
            assert await count_partitions(new) == PARTITIONS
    before, after = await read_all_rows(old_address.dsn()), await read_all_rows(new_address.dsn())
    assert before["rem.passages"]
    for table in before.keys() - NOT_COPIED:
        assert after[table] == before[table], table
    async with Rem.open(new_settings) as rem:
        assert (await check_mirrors(rem.database)).is_exact
        carol = rem.for_user("carol@example.com", tenant="acme").store
        assert {row.name for row in await carol.find(Resource, limit=len(written) + 10)} == set(written)
        assert (await rem.for_user("alice@example.com").query("LOOKUP grace-hopper")).count == 1
        assert (await rem.for_user("alice@example.com").query('SEARCH "linker"')).count
        await carol.upsert(Resource(name="After", content="Rows after the switch get new numbers."))
        await rem.index()
        assert (await rem.for_user("carol@example.com", tenant="acme").query('SEARCH "after the switch"')).count


async def test_publishing_needs_logical_replication(sql: Connection) -> None:
    with pytest.raises(asyncpg.PostgresError, match="wal_level = logical"):
        await follow(sql, "publish")


async def test_copy_is_refused_by_a_database_with_rows(sql: Connection) -> None:
    await sql.execute("INSERT INTO resources (name) VALUES ('Boat')")
    with pytest.raises(asyncpg.PostgresError, match="resources has rows"):
        await sql.execute("SELECT rem.rem_receive_copy()")
    assert await sql.fetchval("SELECT count(*) FROM installation") == 1
