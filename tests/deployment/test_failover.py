"""The primary is killed and its replica promoted: REM continues, and no acknowledged write is lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from rem.app import Rem
from rem.jobs.queue import JobQueue
from rem.models import Resource
from tests.cli.test_serve import serving
from tests.conftest import settings_for
from tests.deployment.load import WriteLoad
from tests.deployment.servers import USER, PostgresServer, migrate
from tests.jobs.conftest import TRACES, StartWorker, Traces, eventually

JOBS = 30


@pytest.fixture
async def primary(tmp_path: Path) -> AsyncIterator[PostgresServer]:
    """A primary that acknowledges a commit when its replica has it on disk."""
    primary = PostgresServer(tmp_path / "primary")
    await primary.create()
    await migrate(settings_for(primary.dsn()))
    await primary.execute(TRACES)
    yield primary
    primary.remove()


@pytest.fixture
async def replica(primary: PostgresServer, tmp_path: Path) -> AsyncIterator[PostgresServer]:
    replica = await primary.replicate(tmp_path / "replica")
    await primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    await primary.execute("SELECT pg_reload_conf()")
    await eventually(lambda: _is_synchronous(primary))
    yield replica
    replica.remove()


async def _is_synchronous(primary: PostgresServer) -> bool:
    return bool(await primary.execute("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"))


def multi_host_dsn(*servers: PostgresServer | int) -> str:
    """Return one connection string for all servers, of which the primary is used."""
    ports = (server.port if isinstance(server, PostgresServer) else server for server in servers)
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://{USER}@{hosts}/rem?target_session_attrs=read-write"


async def test_acknowledged_writes_and_jobs_survive_the_primary(
    primary: PostgresServer, replica: PostgresServer, start_worker: StartWorker, tmp_path: Path
) -> None:
    dsn = multi_host_dsn(primary, replica)
    settings = {
        "POSTGRES__CONNECTION_STRING": dsn,
        # Requests wait this long for a primary, and get a clear error then.
        "POSTGRES__CONNECT_TIMEOUT_SECONDS": "1",
        "WORKER__IN_PROCESS": "false",
        "REM_HOME": str(tmp_path / "home"),
    }
    start_worker(dsn, WORKER__ATTEMPTS="10")
    with serving(settings=settings) as (address, _):
        async with Rem.open(settings_for(dsn)) as rem:
            jobs, traces = JobQueue(rem.database), Traces(rem)
            for number in range(JOBS):
                owner = {"tenant_id": "acme", "user_id": "alice"}
                await jobs.enqueue("slow", {**owner, "name": f"job-{number}", "seconds": 0.2})
            load = WriteLoad(address)
            async with load.running():
                await load.wait_for_writes(40)
                primary.kill()
                await eventually(lambda: _has_failures(load))
                await replica.promote()
                await load.wait_for_writes(40)
            assert load.unexpected == []
            stored = await _read_names(replica)
            assert [name for name in load.acknowledged if name not in stored] == []
            # The keys, which only the primary had, are complete again.
            assert await rem.for_user("user-0").query(f'LOOKUP "{load.acknowledged[0]}"')
            await eventually(lambda: _all_done(traces), 120)
            assert (await jobs.counts())["dead"] == 0
            # The worker listens on the new primary.
            await jobs.enqueue("slow", {"tenant_id": "acme", "user_id": "alice", "name": "after"})
            await eventually(lambda: _is_done(traces, "after"), 60)


async def _has_failures(load: WriteLoad) -> bool:
    return load.failures["503"] > 0


async def _read_names(server: PostgresServer) -> set[str]:
    connection = await asyncpg.connect(server.dsn())
    names = {row["name"] for row in await connection.fetch("SELECT name FROM rem.resources")}
    await connection.close()
    return names


async def _all_done(traces: Traces) -> bool:
    done = {row["name"] for row in await traces.rows("WHERE what = 'done'")}
    return done >= {f"job-{number}" for number in range(JOBS)}


async def _is_done(traces: Traces, name: str) -> bool:
    return "done" in await traces.events(name)


async def test_sql_verb_works_with_several_hosts(primary: PostgresServer, replica: PostgresServer) -> None:
    async with Rem.open(settings_for(multi_host_dsn(replica, primary))) as rem:
        await rem.for_user("alice").store.upsert(Resource(name="Albatross"))
        assert (await rem.for_user("alice").query("SQL SELECT name FROM resources")).count == 1


async def test_host_that_never_answers_does_not_block_the_others(primary: PostgresServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = multi_host_dsn(int(silent.getsockname()[1]), primary)
        async with asyncio.timeout(60), Rem.open(settings_for(dsn, connect_timeout_seconds=4)) as rem:
            await rem.for_user("alice").store.upsert(Resource(name="Albatross"))
