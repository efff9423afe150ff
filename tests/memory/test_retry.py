"""A database that is busy is asked again, a few times; then the caller hears of it."""

from __future__ import annotations

import asyncio
from time import perf_counter
from uuid import UUID

import asyncpg
import pytest

from rem.db.retry import retry_when_busy
from rem.errors import ConflictError, DatabaseError, InvalidInputError, RemError
from rem.memory.manager import MemoryManager
from tests.memory.sample_messages import said


async def _raise_once_in(sql: asyncpg.Connection[asyncpg.Record], state: str, times: int) -> None:
    """Let the next writes of messages fail as a busy server does; a sequence counts past the rollback."""
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
async def test_a_busy_database_is_asked_again(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record], state: str
) -> None:
    await _raise_once_in(sql, state, 2)
    turn = await ours.begin_turn(session_id, said("Are you there?"))
    assert turn.message_index == 0
    assert [message.content for message in await ours.load_session(session_id)] == ["Are you there?"]
    assert (await ours.get_session(session_id)).message_count == 1


async def test_it_is_not_asked_for_ever(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _raise_once_in(sql, "40001", 1000)
    started = perf_counter()
    with pytest.raises(ConflictError, match="try again"):
        await ours.append(session_id, [said("Are you there?")], creates=True)
    assert 0.5 < perf_counter() - started < 10
    assert await sql.fetchval("SELECT last_value FROM public.attempts") == 6
    assert await ours.list_sessions() == []


async def test_other_failures_are_told_at_once(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await _raise_once_in(sql, "22000", 1)
    with pytest.raises(InvalidInputError):
        await ours.append(session_id, [said("Hello")], creates=True)
    assert await sql.fetchval("SELECT last_value FROM public.attempts") == 1


async def test_a_lock_that_is_released_in_time_is_no_failure(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await ours.append(session_id, [said("one")], creates=True)
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("SELECT FROM sessions FOR UPDATE")

    async def impatient() -> list[str]:
        async with ours.store.executor.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '50ms'")
            await connection.execute("SELECT FROM rem.sessions FOR NO KEY UPDATE")
        return ["done"]

    waiting = asyncio.create_task(retry_when_busy(impatient))
    await asyncio.sleep(0.2)
    await transaction.rollback()
    assert await waiting == ["done"]


async def test_what_is_not_of_the_database_is_not_tried_again() -> None:
    attempts = 0

    async def fails() -> None:
        nonlocal attempts
        attempts += 1
        raise DatabaseError("The disk is full.")

    with pytest.raises(RemError, match="disk"):
        await retry_when_busy(fails)
    assert attempts == 1
