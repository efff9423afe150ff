"""A query of a user cannot keep the embedded server busy: its backend ends, its memory is bounded, the server stops."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from bench.attack_list import DEAF_STATEMENTS, HUNGRY_STATEMENTS

from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.errors import QueryLimitError, QueryTimeoutError
from rem.settings import EmbeddingSettings, PostgresSettings, Settings, SqlSettings

TIMEOUT = 0.3


@pytest.fixture(scope="module")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an embedded server of its own."""
    home = tmp_path_factory.mktemp("home")
    yield home
    EmbeddedServer(home).stop()


@pytest.fixture
async def rem(own_home: Path) -> AsyncIterator[Rem]:
    """REM on an embedded server of its own, with a short timeout."""
    settings = Settings(
        rem_home=own_home,
        sql=SqlSettings(timeout_seconds=TIMEOUT, max_memory_bytes=128_000_000),
        embedding=EmbeddingSettings(provider="none"),
    )
    async with Rem.open(settings) as rem:
        yield rem


async def read_start(rem: Rem) -> object:
    async with rem.database.connection() as connection:
        return await connection.fetchval("SELECT pg_postmaster_start_time()")


async def count_backends(rem: Rem) -> int:
    """Count the backends that work on a query of a user."""
    async with rem.database.connection() as connection:
        return int(
            await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rem sql' AND state = 'active'"
            )
        )


async def comes_to(rem: Rem, count: int) -> bool:
    """Wait until so many backends work on a query of a user."""
    for _ in range(500):
        if await count_backends(rem) == count:
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize("name", DEAF_STATEMENTS)
async def test_backend_ends_inside_of_a_function_that_ignores_the_timeout(rem: Rem, name: str) -> None:
    started_at, connection_count = await read_start(rem), await count_backends(rem)
    start = time.monotonic()
    with pytest.raises(QueryLimitError, match=r"took longer than 0\.3 s and was stopped"):
        await rem.for_user("alice").query(DEAF_STATEMENTS[name])
    assert time.monotonic() - start < 15
    assert await count_backends(rem) == connection_count == 0
    assert await read_start(rem) == started_at, "the whole server was restarted"
    assert (await rem.for_user("alice").query("SELECT 1 AS n")).rows == [{"n": 1}]


async def test_backend_ends_when_its_caller_leaves(rem: Rem) -> None:
    asking = asyncio.create_task(rem.for_user("alice").query(DEAF_STATEMENTS["overlap of arrays"]))
    assert await comes_to(rem, 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await comes_to(rem, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit the memory of a running process")
@pytest.mark.parametrize("name", HUNGRY_STATEMENTS)
async def test_memory_of_a_query_is_bounded_by_the_system(rem: Rem, name: str) -> None:
    started_at = await read_start(rem)
    with pytest.raises(QueryLimitError, match=r"needs more memory than its limit|took longer"):
        await rem.for_user("alice").query(HUNGRY_STATEMENTS[name])
    assert await read_start(rem) == started_at
    async with rem.database.connection() as connection:
        pids = await connection.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = 'rem sql'")
        own_pid = await connection.fetchval("SELECT pg_backend_pid()")
    for (pid,) in pids:
        assert "Max data size             128000000" in Path(f"/proc/{pid}/limits").read_text()
        assert psutil.Process(pid).nice() > psutil.Process(own_pid).nice()


async def test_slow_queries_of_one_user_do_not_delay_another(rem: Rem) -> None:
    slow = "SELECT count(*) FROM generate_series(1, 1000000000)"
    asked = [asyncio.create_task(rem.for_user("alice").query(slow)) for _ in range(50)]
    assert await comes_to(rem, 2)
    start = time.monotonic()
    assert (await rem.for_user("bob").query("SELECT 1 AS n")).rows == [{"n": 1}]
    assert time.monotonic() - start < 2
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_server_with_a_deaf_backend_can_be_stopped(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    address = server.ensure_running()
    connection = await asyncpg.connect(address.dsn())
    await connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    running = asyncio.create_task(connection.fetch(DEAF_STATEMENTS["overlap of arrays"]))
    await asyncio.sleep(0.5)
    assert await asyncio.to_thread(server.stop, timeout_seconds=6)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await running
    assert not server.status().running
    # Nothing that was committed is lost.
    again = await asyncpg.connect(server.ensure_running().dsn())
    assert await again.fetchval("SELECT n FROM kept") == 1
    await again.close()
    server.stop()


async def test_read_ends_although_its_backend_does_not_answer(own_home: Path) -> None:
    settings = Settings(
        rem_home=own_home,
        postgres=PostgresSettings(read_timeout_seconds=TIMEOUT),
        embedding=EmbeddingSettings(provider="none"),
    )
    async with Rem.open(settings) as rem:
        async with rem.database.connection() as connection:
            backend = psutil.Process(connection.get_server_pid())
        backend.suspend()
        try:
            with pytest.raises(QueryTimeoutError, match=r"took longer than 0\.3 s and was stopped"):
                await rem.for_user().query("LOOKUP nothing")
            # The stuck connection is given up, so this is another one.
            assert (await rem.for_user().query("LOOKUP nothing")).count == 0
        finally:
            backend.resume()


@pytest.mark.skipif(sys.platform != "linux", reason="PostgreSQL notices a lost client on Linux")
async def test_statement_of_a_killed_client_ends(rem: Rem) -> None:
    dsn = rem.database.get_connection_string()
    program = "import asyncio, asyncpg, sys\nasync def main():\n    connection = await asyncpg.connect(sys.argv[1])\n"
    program += "    await connection.execute('SELECT pg_sleep(600)')\nasyncio.run(main())"
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", program, dsn)
    try:
        assert await comes_to_sleep(rem, 1)
    finally:
        client.kill()
        await client.wait()
    assert await comes_to_sleep(rem, 0)


async def comes_to_sleep(rem: Rem, count: int) -> bool:
    """Wait until so many backends sleep."""
    statement = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'"
    for _ in range(600):
        async with rem.database.connection() as connection:
            if await connection.fetchval(statement) == count:
                return True
        await asyncio.sleep(0.1)
    return False
