"""Deleting a conversation costs as much as it is long, not the square of it."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.memory.message import NewMessage
from rem.models.message import Role


async def rows_read(rem: Rem, sql: asyncpg.Connection[asyncpg.Record], messages: int) -> int:
    """How many rows of messages are read when a conversation of so many is deleted."""
    session_id = uuid4()
    said = [NewMessage(role=Role.USER, content=f"Message {number}") for number in range(messages)]
    await rem.memory("alice").append(session_id, said, creates=True)
    async with sql.transaction():
        await sql.execute("UPDATE rem.sessions SET deleted_at = now() WHERE id = $1", session_id)
        read = (
            "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'messages'"
        )
        return int(await sql.fetchval(read))


async def test_the_cost_grows_with_the_length(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    short, long = await rows_read(rem, sql, 100), await rows_read(rem, sql, 1000)
    assert long < 20 * short


@pytest.mark.parametrize("gone", [[4], [4, 5], [4, 6], [2, 3, 4, 5, 6]])
async def test_what_follows_a_gap_is_no_longer_found_by_what_was_said_there(rem: Rem, gone: list[int]) -> None:
    memory, session_id = rem.memory("alice"), uuid4()
    said = [f"Reply number {place}" for place in range(10)]
    for place in gone:
        said[place] = f"A zeppelin over the harbour, part {place}"
    stored = await memory.append(session_id, [NewMessage(role=Role.USER, content=text) for text in said], creates=True)
    await rem.index(user="alice")
    assert await found(rem) >= len(gone)
    store = rem.store("alice")
    for message in await memory.load_session(session_id):
        if message.message_index in gone:
            await store.delete(message)
    await rem.index(user="alice")
    assert len(stored) == 10
    assert await found(rem) == 0


async def found(rem: Rem) -> int:
    """How many messages the words of the gap lead to."""
    return (await rem.query('SEARCH "zeppelin" FROM messages MODE text LIMIT 20', user="alice")).count
