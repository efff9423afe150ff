"""Reads go to a streaming replica that is up to date, and to the primary otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from rem.app import Rem
from rem.db.sql import query
from rem.errors import MigrationError, SettingsError
from rem.models import Edge, Resource
from rem.settings import Settings
from tests.conftest import settings_for
from tests.deployment.servers import PostgresServer, migrate
from tests.jobs.conftest import eventually

USER = "alice@example.com"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A migrated primary and its replica, which logs its statements."""
    folder = tmp_path_factory.mktemp("replica")
    primary = PostgresServer(folder / "primary")

    async def start() -> PostgresServer:
        await primary.create()
        await migrate(settings_for(primary.dsn(), replica_connection_string=SecretStr(primary.dsn())))
        return await primary.replicate(folder / "replica", log_statement="all")

    replica = asyncio.run(start())
    yield primary, replica
    replica.remove()
    primary.remove()


@pytest.fixture
def primary(servers: tuple[PostgresServer, PostgresServer]) -> PostgresServer:
    return servers[0]


@pytest.fixture
def replica(servers: tuple[PostgresServer, PostgresServer]) -> PostgresServer:
    return servers[1]


@pytest.fixture
def settings(primary: PostgresServer, replica: PostgresServer) -> Settings:
    """Settings with both servers."""
    return settings_for(primary.dsn(), replica_connection_string=SecretStr(replica.dsn()))


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """An open REM that uses the replica."""
    async with Rem.open(settings) as rem:
        await eventually(lambda: _uses_replica(rem))
        yield rem


async def _uses_replica(rem: Rem) -> bool:
    return bool(await rem.database.read(lambda connection: connection.fetchval("SELECT pg_is_in_recovery()")))


async def test_all_verbs_read_from_the_replica(rem: Rem, replica: PostgresServer) -> None:
    store = rem.for_user(USER).store
    edges = [Edge(dst="Harbour", rel_type="lies_in")]
    await store.upsert(Resource(name="Albatross", content="A sailing boat with a torn mainsail.", graph_edges=edges))
    await store.upsert(Resource(name="Harbour", content="Where boats lie."))
    await rem.for_user(USER).query('SEARCH "boat" FROM resources')  # indexes the new rows
    for text, block in (
        ("LOOKUP Albatross", query("db/lookup", "exact")),
        ("FUZZY albatros", "rem_fuzzy("),
        ('SEARCH "sailing boat" FROM resources', "rem_search("),
        ("TRAVERSE lies_in WITH LOOKUP Albatross", "rem_traverse"),
    ):
        await eventually(partial(_runs_on_replica, rem, text, replica, block))


async def _runs_on_replica(rem: Rem, text: str, replica: PostgresServer, statement: str) -> bool:
    """Return whether the replica has run the statement of a query. It may be behind at this moment."""
    before = len(replica.read_log())
    result = await rem.for_user(USER).query(text)
    assert result.count
    return statement in replica.read_log()[before:]


async def test_lists_read_from_the_replica(rem: Rem, replica: PostgresServer) -> None:
    store = rem.for_user(USER).store
    await store.upsert(Resource(name="Listed"))

    async def lists() -> bool:
        before = len(replica.read_log())
        assert "Listed" in [row.name for row in await store.find(Resource)]
        return 'FROM rem."resources"' in replica.read_log()[before:]

    await eventually(lists)


async def test_every_process_reads_what_any_process_has_written(rem: Rem, settings: Settings) -> None:
    async with Rem.open(settings) as other:
        await eventually(lambda: _uses_replica(other))

        async def write_and_read(number: int) -> None:
            for row in range(25):
                name = f"Boat {number} {row}"
                await rem.for_user(f"user-{number}").store.upsert(Resource(name=name))
                assert await other.for_user(f"user-{number}").store.lookup(name), name

        await asyncio.gather(*(write_and_read(number) for number in range(4)))


async def test_paused_replica_is_not_read(rem: Rem, settings: Settings, replica: PostgresServer) -> None:
    async with Rem.open(settings) as other:
        await eventually(lambda: _uses_replica(other))
        await replica.execute("SELECT pg_wal_replay_pause()")
        try:
            for number in range(5):
                await rem.for_user(USER).store.upsert(Resource(name=f"Paused {number}"))
                for reader in (rem, other):
                    assert (await reader.for_user(USER).query(f'LOOKUP "Paused {number}"')).count == 1
                    assert (await reader.for_user(USER).query(f'FUZZY "paused {number}"')).count
            assert not await _uses_replica(rem)
        finally:
            await replica.execute("SELECT pg_wal_replay_resume()")
        await eventually(lambda: _uses_replica(rem))


async def test_frozen_replica_is_not_waited_for(rem: Rem, replica: PostgresServer) -> None:
    replica.freeze()
    try:
        await rem.for_user(USER).store.upsert(Resource(name="Frozen"))
        async with asyncio.timeout(30):
            for _ in range(20):
                assert (await rem.for_user(USER).query("LOOKUP Frozen")).count == 1
    finally:
        replica.freeze(is_frozen=False)
    await eventually(lambda: _uses_replica(rem), 60)


async def test_killed_replica_costs_no_read(rem: Rem, settings: Settings, replica: PostgresServer) -> None:
    await rem.for_user(USER).store.upsert(Resource(name="Killed"))
    ends = asyncio.Event()

    async def keep_reading() -> int:
        reads = 0
        while not ends.is_set():
            assert (await rem.for_user(USER).query("LOOKUP Killed")).count == 1
            reads += 1
        return reads

    readers = [asyncio.create_task(keep_reading()) for _ in range(4)]
    await asyncio.sleep(0.2)
    replica.kill()
    await eventually(lambda: _reads_from_primary(rem))
    async with Rem.open(settings) as started_without_replica:
        assert (await started_without_replica.for_user(USER).query("LOOKUP Killed")).count == 1
    ends.set()
    assert all([await reader for reader in readers])
    await replica.start(log_statement="all")
    await eventually(lambda: _uses_replica(rem), 60)


async def _reads_from_primary(rem: Rem) -> bool:
    return not await _uses_replica(rem)


async def test_another_server_is_refused(primary: PostgresServer, tmp_path: Path) -> None:
    other = PostgresServer(tmp_path / "other")
    await other.create()
    try:
        with pytest.raises(SettingsError, match="not a replica of the primary"):
            async with Rem.open(settings_for(primary.dsn(), replica_connection_string=SecretStr(other.dsn()))):
                pass
    finally:
        other.remove()


async def test_unlogged_key_cache_is_refused(dsn: str) -> None:
    with pytest.raises(MigrationError, match="rem db migrate"):
        async with Rem.open(settings_for(dsn, replica_connection_string=SecretStr(dsn))):
            pass
