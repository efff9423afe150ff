"""After any crash, acknowledged writes are complete, other writes are absent, and recovery is automatic."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TypeAlias

import asyncpg
import psutil
import pytest
from loguru import logger

from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.errors import DatabaseUnavailableError
from rem.models import Edge, Resource
from rem.settings import Settings
from tests.conftest import settings_for

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
BATCH = 250
NOBODY_ELSE = "NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'rem.resources'::regclass AND pid <> pg_backend_pid())"

WRITER = f"""
import asyncio
from rem import Rem
from rem.models import Edge, Resource

async def main():
    async with Rem.open() as rem:
        for number in range(1_000):
            await rem.for_user("alice@example.com").store.upsert_many(
                Resource(name=f"batch {{number}} row {{row}}", graph_edges=[Edge(dst=f"batch {{number}} row 0")])
                for row in range({BATCH}))
            print(number, flush=True)

asyncio.run(main())
"""


def batch(number: int) -> list[Resource]:
    edges = [Edge(dst=f"batch {number} row 0")]
    return [Resource(name=f"batch {number} row {row}", graph_edges=edges) for row in range(BATCH)]


async def write_batches(store: Store, acknowledged: list[int]) -> None:
    """Store one batch after another, and append the number of each acknowledged batch."""
    for number in count():
        await store.upsert_many(batch(number))
        acknowledged.append(number)


async def wait_until(connection: Connection, condition: str) -> None:
    """Wait until an SQL condition holds."""
    async with asyncio.timeout(20):
        await connection.execute(f"DO $$ BEGIN WHILE NOT ({condition}) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$")


@asynccontextmanager
async def halfway_through_a_batch(connection: Connection) -> AsyncIterator[None]:
    """Run the block while the writer has stored rows of a batch, waits to store their edges, and has not committed."""
    async with connection.transaction():
        await connection.execute("LOCK TABLE rem.edges IN SHARE MODE")
        await wait_until(
            connection, "EXISTS (SELECT FROM pg_locks WHERE relation = 'rem.edges'::regclass AND NOT granted)"
        )
        yield


def connect_to(home: Path) -> Awaitable[Connection]:
    address = EmbeddedServer(home).ensure_running()
    return asyncpg.connect(
        host=str(address.socket_dir), port=address.port, user=address.user, database=address.database
    )


def kill(home: Path, *, with_children: bool) -> None:
    """Kill the server of the test with SIGKILL: all its processes, as in a power cut, or the postmaster alone."""
    pid = EmbeddedServer(home).status().pid
    assert pid is not None
    postmaster = psutil.Process(pid)
    victims = [postmaster, *(postmaster.children() if with_children else [])]
    for victim in victims:
        victim.kill()
    psutil.wait_procs(victims, timeout=10)


async def assert_exactly(rem: Rem, acknowledged: list[int]) -> None:
    """Check that exactly these batches are stored, and that the mirrors match them."""
    store = rem.for_user("alice@example.com").store
    for number in (*acknowledged, len(acknowledged)):
        entities = await store.lookup(f"Batch {number} Row 0", f"batch-{number}-row-{BATCH - 1}")
        assert len(entities) == (2 if number in acknowledged else 0)
    assert await store.count(Resource) == len(acknowledged) * BATCH
    mirrors = await check_mirrors(rem.database)
    assert mirrors.is_exact
    assert (mirrors.keys, mirrors.edges) == (len(acknowledged) * BATCH,) * 2


async def crash_in_the_middle_of_a_load(rem: Rem, home: Path, *, with_children: bool) -> list[int]:
    """Kill the server halfway through a batch, and return the acknowledged batches."""
    acknowledged: list[int] = []
    task = asyncio.create_task(write_batches(rem.for_user("alice@example.com").store, acknowledged))
    connection = await connect_to(home)
    try:
        await wait_until(connection, f"(SELECT count(*) FROM rem.resources) >= {2 * BATCH}")
        async with halfway_through_a_batch(connection):
            kill(home, with_children=with_children)
            with pytest.raises(DatabaseUnavailableError):
                await task
    except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        pass  # the lock of this connection went with the server
    finally:
        connection.terminate()
    assert isinstance(task.exception(), DatabaseUnavailableError)
    return acknowledged


@pytest.mark.parametrize("with_children", [False, True], ids=["the postmaster", "every process"])
async def test_killed_server_recovers_all_acknowledged_writes(home: Path, with_children: bool) -> None:
    settings = Settings(rem_home=home)
    async with Rem.open(settings) as rem:
        acknowledged = await crash_in_the_middle_of_a_load(rem, home, with_children=with_children)
    messages: list[str] = []
    sink = logger.add(messages.append, level="WARNING", format="{message}")
    async with Rem.open(settings) as rem:
        await assert_exactly(rem, acknowledged)
    logger.remove(sink)
    assert messages == ["kv_store was empty after a crash of PostgreSQL. It was rebuilt from the tables.\n"]


async def test_open_rem_continues_after_a_crash(home: Path) -> None:
    async with Rem.open(Settings(rem_home=home)) as rem:
        acknowledged = await crash_in_the_middle_of_a_load(rem, home, with_children=False)
        await assert_exactly(rem, acknowledged)
        store = rem.for_user("alice@example.com").store
        await store.upsert_many(batch(len(acknowledged)))
        await assert_exactly(rem, [*acknowledged, len(acknowledged)])


async def test_concurrent_calls_after_a_crash_start_one_server(home: Path) -> None:
    async with Rem.open(Settings(rem_home=home)) as rem:
        store = rem.for_user("alice@example.com").store
        await store.upsert_many(batch(0))
        await asyncio.gather(*(store.lookup("batch 0 row 0") for _ in range(10)))
        await asyncio.to_thread(kill, home, with_children=True)
        entities = await asyncio.gather(*(store.lookup(f"batch 0 row {row}") for row in range(50)))
        assert [entity.key for (entity,) in entities] == [f"batch-0-row-{row}" for row in range(50)]
        await assert_exactly(rem, [0])


async def test_call_during_a_crash_fails_and_the_next_one_works(home: Path) -> None:
    async with Rem.open(Settings(rem_home=home)) as rem:
        store = rem.for_user("alice@example.com").store
        await store.upsert_many(batch(0))
        kill(home, with_children=True)  # the event loop had no chance to notice
        with pytest.raises(DatabaseUnavailableError, match="does not respond"):
            await store.lookup("batch 0 row 0")
        await assert_exactly(rem, [0])


async def test_server_that_was_stopped_between_two_calls_is_started_again(home: Path) -> None:
    async with Rem.open(Settings(rem_home=home)) as rem:
        store = rem.for_user("alice@example.com").store
        await store.upsert_many(batch(0))
        assert await asyncio.to_thread(EmbeddedServer(home).stop)
        await assert_exactly(rem, [0])
        assert EmbeddedServer(home).status().running


async def test_killed_writer_leaves_only_complete_batches(dsn: str, rem: Rem, sql: Connection, tmp_path: Path) -> None:
    environment = {"POSTGRES__CONNECTION_STRING": dsn, "HOME": str(tmp_path)}
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, env=environment, stdout=PIPE)
    assert writer.stdout is not None
    for expected in (b"0\n", b"1\n"):
        assert await writer.stdout.readline() == expected
    async with halfway_through_a_batch(sql):
        writer.send_signal(signal.SIGKILL)
        assert await writer.wait() == -signal.SIGKILL
    acknowledged = [0, 1, *(int(line) for line in (await writer.stdout.read()).split())]
    await wait_until(sql, NOBODY_ELSE)
    await assert_exactly(rem, acknowledged)


async def test_killed_loader_leaves_nothing(dsn: str, rem: Rem, sql: Connection, tmp_path: Path) -> None:
    path = tmp_path / "rows.yaml"
    rows = "".join(f"    - {{name: row {number}, graph_edges: [{{dst: row 0}}]}}\n" for number in range(500))
    moments = "- {table: moments, key_field: name, rows: [{name: before}]}\n"
    path.write_text(f"{moments}- table: resources\n  key_field: name\n  rows:\n{rows}")
    environment = {"POSTGRES__CONNECTION_STRING": dsn, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "rem", "db", "load", str(path)]
    loader = await asyncio.create_subprocess_exec(*command, env=environment)
    async with halfway_through_a_batch(sql):
        loader.send_signal(signal.SIGKILL)
        await loader.wait()
    await wait_until(sql, NOBODY_ELSE)
    assert await sql.fetchval("SELECT count(*) FROM rem.resources") == 0
    assert await sql.fetchval("SELECT count(*) FROM rem.moments") == 0
    assert (await check_mirrors(rem.database)).is_exact


async def test_lost_connection_undoes_its_transaction(dsn: str, rem: Rem, sql: Connection) -> None:
    async with Rem.open(settings_for(dsn)) as other:
        store = other.for_user("alice@example.com").store
        with pytest.raises(DatabaseUnavailableError):
            await lose_the_connection_halfway(store, sql)
        await assert_exactly(rem, [])
        await store.upsert_many(batch(0))
        await assert_exactly(other, [0])


async def lose_the_connection_halfway(store: Store, sql: Connection) -> None:
    async with store.transaction() as transaction:
        await transaction.upsert_many(batch(0))
        await sql.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND state = 'idle in transaction'"""
        )
        await transaction.upsert_many(batch(1))
