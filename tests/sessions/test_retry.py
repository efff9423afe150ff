"""Statements on a busy database are retried a few times; then the error is raised."""

from __future__ import annotations

import asyncio
from time import perf_counter
from uuid import UUID

import asyncpg
import pytest

from rem.db.retry import retry_when_busy
from rem.errors import ConflictError, DatabaseError, InvalidInputError, RemError
from rem.sessions.manager import MemoryManager
from tests.sessions.sample_messages import user_message


async def _raise_once_in(sql: asyncpg.Connection[asyncpg.Record], state: str, times: int) -> None:
    """Let the next writes of messages fail like on a busy server. A sequence counts them across rollbacks."""
    await sql.execute(
        f"""CREATE SEQUENCE public.attempts;
            CREATE FUNCTION public.be_busy() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
              IF nextval('public.attempts') <= {times} THEN
                RAISE EXCEPTION 'busy' USING ERRCODE = '{state}';
              END IF;
              RETURN NEW;
            END $$;
            CREATE TRIGGER busy BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION public.be_busy()"""
    )


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "53300"])
async def test_busy_database_is_retried(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record], state: str
) -> None:
    await _raise_once_in(sql, state, 2)
    turn = await alice.begin_turn(session_id, user_message("Are you there?"))
    assert turn.message_index == 0
    assert [message.content for message in await alice.load_session(session_id)] == ["Are you there?"]
    assert (await alice.get_session(session_id)).message_count == 1


async def test_retries_are_limited(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _raise_once_in(sql, "40001", 1000)
    started = perf_counter()
    with pytest.raises(ConflictError, match="try again"):
        await alice.append(session_id, [user_message("Are you there?")], create_session=True)
    assert 0.5 < perf_counter() - started < 10
    assert await sql.fetchval("SELECT last_value FROM public.attempts") == 6
    assert await alice.list_sessions() == []


async def test_other_failures_are_not_retried(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _raise_once_in(sql, "22000", 1)
    with pytest.raises(InvalidInputError):
        await alice.append(session_id, [user_message("Hello")], create_session=True)
    assert await sql.fetchval("SELECT last_value FROM public.attempts") == 1


async def test_lock_that_is_released_in_time_is_no_failure(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await alice.append(session_id, [user_message("one")], create_session=True)
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("SELECT FROM sessions FOR UPDATE")

    async def impatient() -> list[str]:
        async with alice.store.executor.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '50ms'")
            await connection.execute("SELECT FROM rem.sessions FOR NO KEY UPDATE")
        return ["done"]

    waiting = asyncio.create_task(retry_when_busy(impatient))
    await asyncio.sleep(0.2)
    await transaction.rollback()
    assert await waiting == ["done"]


async def test_errors_outside_the_database_are_not_retried() -> None:
    attempts = 0

    async def fails() -> None:
        nonlocal attempts
        attempts += 1
        raise DatabaseError("The disk is full.")

    with pytest.raises(RemError, match="disk"):
        await retry_when_busy(fails)
    assert attempts == 1
