"""Dreams that run at once, and dreams that are killed: as if it were one, and as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from typing import Any, TypeAlias

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.settings import Settings
from tests.conftest import fresh_database, settings_for
from tests.dreaming.sample_sessions import contents, dream, fifty_sessions, moments, tables_with
from tests.rem_command import REPOSITORY, environment

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_USER = "alice@example.com"


def _sleeper(settings: Settings) -> subprocess.Popen[str]:
    """A process that dreams, when it is about to begin."""
    connection = settings.postgres.connection_string
    assert connection is not None
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.dreaming.dream_process",
            connection.get_secret_value(),
            str(settings.rem_home),
            _USER,
        ],
        cwd=REPOSITORY,
        env={**environment({}), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


_undisturbed_tells: list[tuple[Any, ...]] = []


async def _undisturbed() -> list[tuple[Any, ...]]:
    """What a dream in peace tells; the same for all tests."""
    if not _undisturbed_tells:
        async with fresh_database() as dsn, Rem.open(settings_for(dsn)) as rem:
            store = rem.store(_USER)
            await fifty_sessions(store)
            await dream(rem, store, "moments", "affinity")
            _undisturbed_tells.extend(await _told(dsn))
    return _undisturbed_tells


async def _told(dsn: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return await contents(connection)
    finally:
        await connection.close()


async def _kill_after(process: subprocess.Popen[str], statements: int, sql: Sql) -> bool:
    """Kill a process when it has said so much; whether it was not done yet."""
    while process.poll() is None and await sql.fetchval("SELECT count(*) FROM statements") < statements:
        await asyncio.to_thread(time.sleep, 0.005)
    await asyncio.sleep(random.uniform(0, 0.05))
    process.kill()
    out, _ = await asyncio.to_thread(process.communicate)
    return "done" not in out


async def test_killed_again_and_again_the_dream_ends_as_if_undisturbed(
    rem: Rem, alice: Store, dsn: str, sql: Sql
) -> None:
    await fifty_sessions(alice)
    for statements in (0, 15, 70, 120):
        process = await asyncio.to_thread(_sleeper, settings_for(dsn))
        assert await _kill_after(process, statements, sql)
    assert await moments(alice)
    await dream(rem, alice, "moments", "affinity")
    assert await _told(dsn) == await _undisturbed()
    assert (await dream(rem, alice, "moments", "affinity", rescan=True)).statement_count == 0


async def test_three_at_once_and_another_process_are_as_one(
    rem: Rem, settings: Settings, alice: Store, dsn: str
) -> None:
    await fifty_sessions(alice)
    process = await asyncio.to_thread(_sleeper, settings)
    started = time.monotonic()
    reports = await asyncio.gather(*(dream(rem, alice, "moments", "affinity") for _ in range(3)))
    await asyncio.to_thread(process.communicate, None, 120)
    assert process.returncode == 0, f"after {time.monotonic() - started:.0f} s"
    assert sum(1 for report in reports if report.statement_count) <= 1
    assert await _told(dsn) == await _undisturbed()


async def test_conversations_that_are_deleted_while_one_dreams_leave_nothing(rem: Rem, alice: Store, sql: Sql) -> None:
    ids = await fifty_sessions(alice)
    memory = rem.memory(_USER)

    async def forget() -> None:
        for session in ids[::2]:
            await memory.delete_session(session, erase=True)
            await asyncio.sleep(0.02)

    await asyncio.gather(dream(rem, alice), forget())
    await dream(rem, alice)
    gone = [str(session) for session in ids[::2]]
    for session in gone:
        assert await tables_with(sql, session) == []
    assert not {str(moment.source_session_id) for moment in await moments(alice)} & set(gone)
    assert len(await moments(alice)) >= 15
