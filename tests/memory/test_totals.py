"""Totals and indexes of a session: right whatever becomes of its messages, and never given twice."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.errors import ConflictError, InvalidInputError, RemError
from rem.memory.manager import MemoryManager
from rem.memory.prune import list_idle_sessions
from rem.models import Message, Role, Session
from tests.memory.sample_messages import answered, said, talk

_FAR = 2**31 - 1


async def _is_counted(memory: MemoryManager, session_id: UUID) -> int:
    """How many messages there are, if the session says the same."""
    session, messages = await memory.store.get(Session, session_id), await memory.load_session(session_id)
    assert session.message_count == len(messages)
    assert session.total_tokens == sum(message.token_count or 0 for message in messages)
    return session.message_count


async def test_totals_follow_messages_that_are_deleted_restored_and_erased(
    ours: MemoryManager, session_id: UUID
) -> None:
    await talk(ours, session_id, 3)
    messages = await ours.load_session(session_id)
    await ours.store.delete(messages[1])
    await ours.store.delete(messages[4])
    assert await _is_counted(ours, session_id) == 4
    await ours.store.restore(Message, messages[1].id)
    assert await _is_counted(ours, session_id) == 5
    await ours.store.erase(messages[0])
    await ours.store.erase(messages[4])
    assert await _is_counted(ours, session_id) == 4
    await ours.begin_turn(session_id, said("And now?"))
    assert await _is_counted(ours, session_id) == 5


async def test_totals_are_those_of_the_messages_that_a_restored_session_has(
    ours: MemoryManager, session_id: UUID
) -> None:
    await talk(ours, session_id, 3)
    await ours.store.delete((await ours.load_session(session_id))[2])
    await ours.delete_session(session_id)
    await ours.restore_session(session_id)
    assert await _is_counted(ours, session_id) == 5
    await ours.clear_session(session_id)
    assert await _is_counted(ours, session_id) == 0


async def test_messages_that_were_stored_directly_are_counted_with_the_others(
    ours: MemoryManager, session_id: UUID
) -> None:
    await ours.create_session(session_id=session_id)
    rows = [
        Message(session_id=session_id, message_index=n, role=Role.USER, content="x", token_count=n) for n in range(5)
    ]
    await ours.store.upsert_many(rows)
    await ours.store.delete(rows[1])
    assert await _is_counted(ours, session_id) == 4


async def test_messages_that_were_stored_directly_are_shown_in_the_totals(
    ours: MemoryManager, theirs: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await ours.create_session(session_id=session_id)
    await ours.share_session(session_id, "bob@example.com")
    rows = [Message(session_id=session_id, message_index=n, role=Role.USER, content="x", token_count=2) for n in (0, 1)]
    await ours.store.upsert_many(rows)
    listed = [*await ours.list_sessions(), *await theirs.list_shared_sessions(), *await list_idle_sessions(ours, 0)]
    shown = [await ours.get_session(session_id), *listed]
    assert [(session.message_count, session.total_tokens) for session in shown] == [(2, 4)] * 4
    await sql.execute("UPDATE messages SET expires_at = now() WHERE message_index = 1")
    assert (await ours.get_session(session_id)).message_count == 1


async def test_a_session_of_another_is_not_counted(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    other = uuid4()
    await talk(ours, session_id, 2)
    await talk(ours, other, 3)
    await sql.execute("UPDATE messages SET deleted_at = now() WHERE message_index = 1")
    assert (await _is_counted(ours, session_id), await _is_counted(ours, other)) == (3, 5)


async def test_totals_are_right_when_much_happens_at_once(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 15)
    messages = await ours.load_session(session_id)

    async def turn(number: int) -> None:
        await ours.begin_turn(session_id, said(f"Question {number}"))
        await ours.append(session_id, [answered(f"Answer {number}")])

    removals = [ours.store.erase(row) if row.message_index % 3 else ours.store.delete(row) for row in messages]
    async with asyncio.timeout(30):
        await asyncio.gather(*removals, *(turn(number) for number in range(10)))
    assert await _is_counted(ours, session_id) == 20


@pytest.mark.parametrize("ending", ["delete", "erase", "clear"])
async def test_messages_and_their_session_are_deleted_at_once_without_a_deadlock(
    ours: MemoryManager, sql: asyncpg.Connection[asyncpg.Record], ending: str
) -> None:
    """Each waits for what the other holds: the message for its session's totals, the session for its messages."""
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = await sql.fetchval(deadlocks)
    for _ in range(5):
        session_id = uuid4()
        await talk(ours, session_id, 10)
        messages = await ours.load_session(session_id)
        endings = {
            "delete": ours.store.delete(Session(id=session_id)),
            "erase": ours.store.erase(Session(id=session_id)),
            "clear": ours.clear_session(session_id),
        }
        chosen = endings.pop(ending)
        for unused in endings.values():
            unused.close()
        removals = [ours.store.delete(row) for row in messages]
        done = await asyncio.gather(*removals[:8], chosen, *removals[8:], return_exceptions=True)
        failures = [
            error for error in done if isinstance(error, ConflictError) or not isinstance(error, RemError | None | int)
        ]
        assert failures == []
        if ending == "delete":
            await ours.restore_session(session_id)
        if ending != "erase":
            await _is_counted(ours, session_id)
    await asyncio.sleep(1.2)
    assert await sql.fetchval(deadlocks) == before


@pytest.mark.parametrize("ending", ["delete", "clear"])
async def test_a_message_is_deleted_while_its_session_waits_for_it(
    ours: MemoryManager, session_id: UUID, ending: str
) -> None:
    await talk(ours, session_id, 3)
    messages = await ours.load_session(session_id)
    async with ours.store.transaction() as transaction:
        # It holds the message; whoever deletes the session holds the session, and waits.
        await transaction.modify(Message, messages[2].id, lambda row: row.metadata.update(seen=True))
        await transaction.modify(Message, messages[2].id, lambda row: row.tags.append("x"))
        racing = asyncio.create_task(
            ours.delete_session(session_id) if ending == "delete" else ours.clear_session(session_id)
        )
        await asyncio.sleep(0.2)
        assert not racing.done()
        await transaction.delete(messages[2])
    await racing
    if ending == "delete":
        await ours.restore_session(session_id)
    await ours.begin_turn(session_id, said("Anew"))
    assert await _is_counted(ours, session_id) == (6 if ending == "delete" else 1)


async def test_who_holds_a_session_does_not_keep_its_messages_from_being_deleted(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await talk(ours, session_id, 3)
    async with sql.transaction():
        await sql.execute("UPDATE sessions SET description = 'busy' WHERE id = $1", session_id)
        async with asyncio.timeout(5):
            await ours.store.delete((await ours.load_session(session_id))[0])
    await ours.begin_turn(session_id, said("Anew"))
    assert await _is_counted(ours, session_id) == 6, "the next turn counts what could not be counted then"
    await ours.append(session_id, [answered("Yes")])
    assert await _is_counted(ours, session_id) == 7


async def test_the_key_of_an_erased_message_is_not_given_again(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 1)
    for message in await ours.load_session(session_id):
        await ours.store.erase(message)
    turn = await ours.begin_turn(session_id, said("What was it?"))
    assert (turn.message_index, turn.history) == (2, [])
    (answer,) = await ours.append(session_id, [answered("Gone.")])
    assert answer.message_index == 3
    await ours.store.erase(Message(id=answer.id, session_id=session_id, message_index=3, role="user", content="x"))
    assert (await ours.begin_turn(session_id, said("Really?"))).message_index == 4


async def test_an_erased_session_leaves_nothing_behind(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await talk(ours, session_id, 2)
    await ours.store.erase((await ours.load_session(session_id))[-1])
    assert await sql.fetchval("SELECT count(*) FROM session_counters") == 1
    await ours.delete_session(session_id, erase=True)
    assert await sql.fetchval("SELECT count(*) FROM session_counters") == 0
    assert (await ours.begin_turn(session_id, said("Who am I?"))).message_index == 0


async def test_an_index_at_the_end_of_the_integers_is_refused(rem: Rem, ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 1)
    for far in (_FAR, 1_500_000_000):
        message = Message(session_id=session_id, message_index=far, role=Role.USER, content="far")
        with pytest.raises(InvalidInputError, match=f"message_index {far} is far beyond .* which is 2"):
            await ours.store.upsert(message)
    assert (await ours.begin_turn(session_id, said("Still there?"))).message_index == 2
    await ours.store.upsert(Message(session_id=session_id, message_index=999_999_999, role=Role.USER, content="odd"))
    stored = await ours.append(session_id, [answered("Fine."), said("And on"), answered("And on.")])
    assert [row.message_index for row in stored] == [1_000_000_000, 1_000_000_001, 1_000_000_002]
