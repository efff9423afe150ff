"""REM works behind Debian's PgBouncer in transaction mode."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr

from rem.app import Rem
from rem.dreams.owner_lock import OwnerBusyError, hold_owner_lock
from rem.errors import SettingsError
from rem.jobs.queue import JobQueue
from rem.jobs.worker import WorkerConnection
from rem.models import Edge, Moment, Resource
from rem.settings import Settings
from rem.settings.security import EncryptionSettings
from tests.cli.test_doctor import run_doctor
from tests.conftest import settings_for
from tests.deployment.pgbouncer import SERVER_CONNECTIONS, Pooler, running_pooler
from tests.deployment.servers import PostgresServer
from tests.dreams.sample_sessions import store_session
from tests.jobs.conftest import eventually
from tests.rem_command import output, start_rem

pytestmark = pytest.mark.deployment
WRITERS = 4 * SERVER_CONNECTIONS
ROUNDS = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server of its own: the roles of all databases of a server are the same."""
    server = PostgresServer(tmp_path_factory.mktemp("pgbouncer") / "server")
    asyncio.run(server.create())
    yield server
    server.remove()


@pytest.fixture(scope="module")
def pooler(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pooler]:
    """PgBouncer in front of a migrated database."""
    folder = tmp_path_factory.mktemp("pooler")
    with running_pooler(folder, server) as pooler:
        assert "0001_schema" in output("db", "migrate", settings=variables(server, pooler))
        yield pooler


def variables(server: PostgresServer, pooler: Pooler) -> dict[str, str]:
    """Return the settings of a deployment with PgBouncer as environment variables."""
    return {
        "POSTGRES__CONNECTION_STRING": pooler.dsn,
        "POSTGRES__DIRECT_CONNECTION_STRING": server.dsn(),
        "POSTGRES__PREPARED_STATEMENTS": str(pooler.can_prepare).lower(),
    }


@pytest.fixture(params=[False, True], ids=["unprepared", "as the version allows"])
def settings(server: PostgresServer, pooler: Pooler, request: pytest.FixtureRequest) -> Settings:
    """Settings with and without prepared statements, as far as this PgBouncer supports them."""
    return settings_for(
        pooler.dsn,
        direct_connection_string=SecretStr(server.dsn()),
        prepared_statements=request.param and pooler.can_prepare,
    )


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """An open REM behind PgBouncer."""
    async with Rem.open(settings) as rem:
        yield rem


async def test_concurrent_writes_and_all_verbs(rem: Rem) -> None:
    async def work(number: int) -> None:
        store = rem.for_user(f"writer-{number}").store
        for row in range(ROUNDS):
            edges = [Edge(dst=f"albatross {number} 0", rel_type="follows")]
            await store.upsert(
                Resource(name=f"Albatross {number} {row}", content=f"The mainsail of boat {row}.", graph_edges=edges)
            )
            assert [found.key for found in await store.lookup(f"albatross {number} {row}")] == [
                f"albatross-{number}-{row}"
            ]
        for text in (
            f'LOOKUP "Albatross {number} 1"',
            f'FUZZY "albatros {number} 1"',
            'SEARCH "a sail" FROM resources',
            f'TRAVERSE follows WITH LOOKUP "Albatross {number} 1"',
        ):
            result = await rem.for_user(store.scope).query(text)
            assert result.count, text
        counted = await rem.for_user(store.scope).query("SQL SELECT count(*) AS n FROM resources")
        assert counted.rows[0]["n"] == ROUNDS

    await asyncio.gather(*(work(number) for number in range(WRITERS)))


async def test_batches_and_cursors(rem: Rem, settings: Settings) -> None:
    async with Rem.open(settings) as other:
        for number in range(ROUNDS):
            await asyncio.gather(*(_write_and_forget(one, number, user) for one, user in ((rem, "x"), (other, "y"))))


async def _write_and_forget(rem: Rem, number: int, user: str) -> None:
    await rem.for_user(user).store.upsert_many(
        Resource(name=f"Row {row}", content="Sarah Chen sails.") for row in range(60)
    )
    await rem.for_user(user).store.upsert(Resource(name=f"Sarah Chen {number}", content="She sails."))
    report = await rem.for_user(user).forget(await rem.for_user(user).plan_forget(f"Sarah Chen {number}"))
    assert report.left == []


async def test_session_locks_and_dreams(rem: Rem, settings: Settings) -> None:
    alice = rem.for_user("alice@example.com").store
    await store_session(alice, "sailing", "user: Sarah Chen <sarah@acme.com> repairs the mainsail of the Albatross.")
    async with Rem.open(settings) as other, hold_owner_lock(rem.database, alice.scope):
        # Many transactions meet on each connection. None of them may release the lock.
        await asyncio.gather(*(rem.for_user(alice.scope).query("LOOKUP nobody") for _ in range(20)))
        with pytest.raises(OwnerBusyError):
            async with hold_owner_lock(other.database, alice.scope, timeout_seconds=0):
                pass
    await rem.dreamer().dream(alice.scope)
    assert len(await alice.find(Moment)) == 1


async def test_listener_gets_notifications_of_transactions_behind_the_pooler(rem: Rem) -> None:
    received: asyncio.Queue[str] = asyncio.Queue()
    listener = WorkerConnection(rem.database, 30, "news", received.put_nowait, _ignore)
    try:
        await listener.fetch("SELECT 1")
        async with rem.database.connection() as connection:
            await connection.execute("SELECT pg_notify('news', $1)", "hello")
        assert await asyncio.wait_for(received.get(), 30) == "hello"
    finally:
        await listener.close()


async def _ignore(_connection: object) -> None:
    return None


async def test_worker_process_runs_jobs(rem: Rem, server: PostgresServer, pooler: Pooler, tmp_path: Path) -> None:
    settings = {**variables(server, pooler), "WORKER__IN_PROCESS": "false", "REM_HOME": str(tmp_path)}
    jobs = JobQueue(rem.database)
    with (tmp_path / "worker.log").open("w") as log:
        worker = start_rem("worker", settings=settings, stderr=log, stdout=subprocess.DEVNULL)
    try:
        for number in range(10):
            await jobs.enqueue("dream", {"tenant_id": "default", "user_id": f"owner-{number}"})
        await eventually(lambda: _is_empty(jobs), 60)
    finally:
        worker.kill_with_children()
        worker.wait()


async def _is_empty(jobs: JobQueue) -> bool:
    counts = await jobs.counts()
    return not counts["queued"] and not counts["running"] and not counts["dead"]


async def test_lookup_survives_a_crash_of_the_server(rem: Rem, server: PostgresServer) -> None:
    await rem.for_user("crash").store.upsert(Resource(name="Albatross"))
    server.kill()
    await server.start()

    async def finds() -> bool:
        return len(await rem.for_user("crash").store.lookup("albatross")) == 1

    await eventually(finds, 60)
    # The clients of PgBouncer did not notice the crash, so nothing would have filled an empty kv_store.
    assert await server.execute("SELECT relpersistence = 'p' FROM pg_class WHERE oid = 'rem.kv_store'::regclass")


def test_commands_use_the_server_itself(server: PostgresServer, pooler: Pooler, tmp_path: Path) -> None:
    settings = {**variables(server, pooler), "REM_HOME": str(tmp_path / "home")}
    output("db", "backup", str(tmp_path / "copy"), settings=settings)
    assert f"127.0.0.1:{pooler.port}" in output("db", "status", settings=settings)
    assert "SQL" in output("doctor", settings=settings)


def test_doctor_names_the_pooler(server: PostgresServer, pooler: Pooler) -> None:
    settings = variables(server, pooler)
    mark, finding = run_doctor(settings)["pooler"]
    assert (mark, finding.startswith(f"127.0.0.1:{pooler.port}/rem, in front of the same database")) == ("ok", True)
    mark, finding = run_doctor({**settings, "POSTGRES__CONNECTION_STRING": server.dsn()})["pooler"]
    assert (mark, finding.startswith("none answers")) == ("ok", True)
    mark, finding = run_doctor({"POSTGRES__CONNECTION_STRING": pooler.dsn})["database"]
    assert (mark, "set POSTGRES__DIRECT_CONNECTION_STRING" in finding) == ("problem", True)


async def test_doctor_detects_a_pooler_that_ignores_settings(server: PostgresServer, pooler: Pooler) -> None:
    ignored = "search_path,jit,plan_cache_mode"
    console = await asyncpg.connect(pooler.console, statement_cache_size=0)
    await console.execute(f"SET ignore_startup_parameters = '{ignored}'")
    try:
        # It accepts the connection now, so only its greeting tells that it is not the server.
        alone = await asyncio.to_thread(run_doctor, {"POSTGRES__CONNECTION_STRING": pooler.dsn})
        twice = {**variables(server, pooler), "POSTGRES__DIRECT_CONNECTION_STRING": pooler.dsn}
        both = await asyncio.to_thread(run_doctor, twice)
    finally:
        await console.execute("SET ignore_startup_parameters = ''")
        await console.close()
    for checks in (alone, both):
        mark, finding = checks["database"]
        assert mark == "problem"
        assert f"A connection pooler answers at 127.0.0.1:{pooler.port}/rem: set" in finding


def test_doctor_refuses_a_direct_address_of_another_database(server: PostgresServer, pooler: Pooler, dsn: str) -> None:
    mark, finding = run_doctor({**variables(server, pooler), "POSTGRES__DIRECT_CONNECTION_STRING": dsn})["pooler"]
    assert (mark, "lead to different databases" in finding) == ("problem", True)


async def test_pooler_without_the_direct_address_is_named(pooler: Pooler) -> None:
    with pytest.raises(SettingsError, match="POSTGRES__DIRECT_CONNECTION_STRING"):
        async with Rem.open(settings_for(pooler.dsn)):
            pass


async def test_encryption_is_refused(settings: Settings) -> None:
    key = SecretStr(f"first:{base64.b64encode(bytes(32)).decode()}")
    encrypting = settings.model_copy(update={"encryption": EncryptionSettings(enabled=True, keys=key)})
    with pytest.raises(SettingsError, match="connection pooler"):
        async with Rem.open(encrypting):
            pass


async def test_missing_role_settings_are_named(settings: Settings, server: PostgresServer, pooler: Pooler) -> None:
    await server.execute("ALTER ROLE rem IN DATABASE rem SET search_path = public")
    try:
        await _reconnect(pooler)
        with pytest.raises(SettingsError, match="rem db migrate"):
            async with Rem.open(settings):
                pass
    finally:
        output("db", "migrate", settings=variables(server, pooler))
        await _reconnect(pooler)


async def _reconnect(pooler: Pooler) -> None:
    """Let PgBouncer replace its connections to the server, as an administrator does."""
    console = await asyncpg.connect(pooler.console, statement_cache_size=0)
    await console.execute("RECONNECT")
    await console.close()
