"""Concurrent and killed runs give the same result as one undisturbed run."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from typing import Any, TypeAlias

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.settings import Settings
from tests.conftest import fresh_database, settings_for
from tests.dreams.sample_sessions import (
    fetch_moments_content,
    find_tables_with,
    list_moments,
    run_dreams,
    store_fifty_sessions,
)
from tests.forked_process import ForkedProcess
from tests.rem_command import REPOSITORY, environment

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_USER = "alice@example.com"


def _start_dream_process(settings: Settings) -> ForkedProcess:
    """Start a process that dreams, and return it when it is about to begin."""
    connection = settings.postgres.connection_string
    assert connection is not None
    arguments = (connection.get_secret_value(), str(settings.rem_home), _USER)
    process = ForkedProcess(
        ["-m", "tests.dreams.dream_process", *arguments],
        environment=environment({}),
        folder=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


_undisturbed_tells: list[tuple[Any, ...]] = []


async def _fetch_undisturbed_content() -> list[tuple[Any, ...]]:
    """Return the moments of one undisturbed run; computed once for all tests."""
    if not _undisturbed_tells:
        async with fresh_database() as dsn, Rem.open(settings_for(dsn)) as rem:
            store = rem.for_user(_USER).store
            await store_fifty_sessions(store)
            await run_dreams(rem, store, "moments", "affinity")
            _undisturbed_tells.extend(await _fetch_moments(dsn))
    return _undisturbed_tells


async def _fetch_moments(dsn: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return await fetch_moments_content(connection)
    finally:
        await connection.close()


async def _kill_after(process: ForkedProcess, statements: int, sql: Sql) -> bool:
    """Kill a process when it has stored so many statements. Return whether it was still running."""
    while process.poll() is None and await sql.fetchval("SELECT count(*) FROM statements") < statements:
        await asyncio.to_thread(time.sleep, 0.005)
    await asyncio.sleep(random.uniform(0, 0.05))
    process.kill()
    out, _ = await asyncio.to_thread(process.communicate)
    return "done" not in out


async def test_run_after_killed_runs_gives_the_same_result(rem: Rem, alice: Store, dsn: str, sql: Sql) -> None:
    await store_fifty_sessions(alice)
    for statements in (0, 15, 70, 120):
        process = await asyncio.to_thread(_start_dream_process, settings_for(dsn))
        assert await _kill_after(process, statements, sql)
    assert await list_moments(alice)
    await run_dreams(rem, alice, "moments", "affinity")
    assert await _fetch_moments(dsn) == await _fetch_undisturbed_content()
    assert (await run_dreams(rem, alice, "moments", "affinity", rescan=True)).statement_count == 0


async def test_concurrent_runs_give_the_result_of_one(rem: Rem, settings: Settings, alice: Store, dsn: str) -> None:
    await store_fifty_sessions(alice)
    process = await asyncio.to_thread(_start_dream_process, settings)
    started = time.monotonic()
    reports = await asyncio.gather(*(run_dreams(rem, alice, "moments", "affinity") for _ in range(3)))
    await asyncio.to_thread(process.communicate, "", 120)
    assert process.returncode == 0, f"after {time.monotonic() - started:.0f} s"
    assert sum(1 for report in reports if report.statement_count) <= 1
    assert await _fetch_moments(dsn) == await _fetch_undisturbed_content()


async def test_sessions_deleted_during_a_run_leave_nothing(rem: Rem, alice: Store, sql: Sql) -> None:
    ids = await store_fifty_sessions(alice)
    memory = rem.for_user(_USER).sessions

    async def forget() -> None:
        for session in ids[::2]:
            await memory.delete_session(session, erase=True)
            await asyncio.sleep(0.02)

    await asyncio.gather(run_dreams(rem, alice), forget())
    await run_dreams(rem, alice)
    gone = [str(session) for session in ids[::2]]
    for session in gone:
        assert await find_tables_with(sql, session) == []
    assert not {str(moment.source_session_id) for moment in await list_moments(alice)} & set(gone)
    assert len(await list_moments(alice)) >= 15
