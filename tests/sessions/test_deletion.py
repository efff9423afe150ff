"""Deleting sessions and messages: its cost, and its effect on the search index."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.models.message import Role
from rem.sessions.message import NewMessage


async def count_rows_read(rem: Rem, sql: asyncpg.Connection[asyncpg.Record], messages: int) -> int:
    """Return the number of message rows that are read when a session with `messages` messages is deleted."""
    session_id = uuid4()
    new_messages = [NewMessage(role=Role.USER, content=f"Message {number}") for number in range(messages)]
    await rem.for_user("alice").sessions.append(session_id, new_messages, create_session=True)
    async with sql.transaction():
        await sql.execute("UPDATE rem.sessions SET deleted_at = now() WHERE id = $1", session_id)
        read = (
            "SELECT coalesce(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'messages'"
        )
        return int(await sql.fetchval(read))


async def test_deleting_a_session_costs_linear_time(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    short, long = await count_rows_read(rem, sql, 100), await count_rows_read(rem, sql, 1000)
    assert long < 20 * short


@pytest.mark.parametrize("deleted", [[4], [4, 5], [4, 6], [2, 3, 4, 5, 6]])
async def test_neighbours_of_deleted_messages_are_not_found_by_the_deleted_text(rem: Rem, deleted: list[int]) -> None:
    memory, session_id = rem.for_user("alice").sessions, uuid4()
    texts = [f"Reply number {index}" for index in range(10)]
    for index in deleted:
        texts[index] = f"A zeppelin over the harbour, part {index}"
    stored = await memory.append(
        session_id, [NewMessage(role=Role.USER, content=text) for text in texts], create_session=True
    )
    await rem.for_user("alice").index()
    assert await count_hits(rem) >= len(deleted)
    store = rem.for_user("alice").store
    for message in await memory.load_session(session_id):
        if message.message_index in deleted:
            await store.delete(message)
    await rem.for_user("alice").index()
    assert len(stored) == 10
    assert await count_hits(rem) == 0


async def count_hits(rem: Rem) -> int:
    """Return the number of messages that a search for the deleted text finds."""
    return (await rem.for_user("alice").query('SEARCH "zeppelin" FROM messages MODE text LIMIT 20')).count
