"""Totals of a session follow its messages, and message indexes are never reused."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.errors import ConflictError, InvalidInputError, RemError
from rem.models import Message, Role, Session
from rem.sessions.manager import MemoryManager
from rem.sessions.prune import list_idle_sessions
from tests.sessions.sample_messages import add_turns, assistant_message, user_message

_FAR = 2**31 - 1


async def _is_counted(memory: MemoryManager, session_id: UUID) -> int:
    """Return the number of messages, after checking that the session has the same total."""
    session, messages = await memory.store.get(Session, session_id), await memory.load_session(session_id)
    assert session.message_count == len(messages)
    assert session.total_tokens == sum(message.token_count or 0 for message in messages)
    return session.message_count


async def test_totals_follow_deleted_restored_and_erased_messages(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 3)
    messages = await alice.load_session(session_id)
    await alice.store.delete(messages[1])
    await alice.store.delete(messages[4])
    assert await _is_counted(alice, session_id) == 4
    await alice.store.restore(Message, messages[1].id)
    assert await _is_counted(alice, session_id) == 5
    await alice.store.erase(messages[0])
    await alice.store.erase(messages[4])
    assert await _is_counted(alice, session_id) == 4
    await alice.begin_turn(session_id, user_message("And now?"))
    assert await _is_counted(alice, session_id) == 5


async def test_restored_session_has_the_totals_of_its_messages(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 3)
    await alice.store.delete((await alice.load_session(session_id))[2])
    await alice.delete_session(session_id)
    await alice.restore_session(session_id)
    assert await _is_counted(alice, session_id) == 5
    await alice.clear_session(session_id)
    assert await _is_counted(alice, session_id) == 0


async def test_directly_stored_messages_are_counted(alice: MemoryManager, session_id: UUID) -> None:
    await alice.create_session(session_id=session_id)
    rows = [
        Message(session_id=session_id, message_index=n, role=Role.USER, content="x", token_count=n) for n in range(5)
    ]
    await alice.store.upsert_many(rows)
    await alice.store.delete(rows[1])
    assert await _is_counted(alice, session_id) == 4


async def test_directly_stored_messages_are_in_the_totals(
    alice: MemoryManager, bob: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await alice.create_session(session_id=session_id)
    await alice.share_session(session_id, "bob@example.com")
    rows = [Message(session_id=session_id, message_index=n, role=Role.USER, content="x", token_count=2) for n in (0, 1)]
    await alice.store.upsert_many(rows)
    listed = [*await alice.list_sessions(), *await bob.list_shared_sessions(), *await list_idle_sessions(alice, 0)]
    shown = [await alice.get_session(session_id), *listed]
    assert [(session.message_count, session.total_tokens) for session in shown] == [(2, 4)] * 4
    await sql.execute("UPDATE messages SET expires_at = now() WHERE message_index = 1")
    assert (await alice.get_session(session_id)).message_count == 1


async def test_session_of_another_user_is_not_counted(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    other = uuid4()
    await add_turns(alice, session_id, 2)
    await add_turns(alice, other, 3)
    await sql.execute("UPDATE messages SET deleted_at = now() WHERE message_index = 1")
    assert (await _is_counted(alice, session_id), await _is_counted(alice, other)) == (3, 5)


async def test_totals_are_correct_after_concurrent_changes(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 15)
    messages = await alice.load_session(session_id)

    async def turn(number: int) -> None:
        await alice.begin_turn(session_id, user_message(f"Question {number}"))
        await alice.append(session_id, [assistant_message(f"Answer {number}")])

    removals = [alice.store.erase(row) if row.message_index % 3 else alice.store.delete(row) for row in messages]
    async with asyncio.timeout(30):
        await asyncio.gather(*removals, *(turn(number) for number in range(10)))
    assert await _is_counted(alice, session_id) == 20


@pytest.mark.parametrize("ending", ["delete", "erase", "clear"])
async def test_concurrent_deletion_of_messages_and_their_session_has_no_deadlock(
    alice: MemoryManager, sql: asyncpg.Connection[asyncpg.Record], ending: str
) -> None:
    """The message waits for the totals of its session, and the session for its messages."""
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = await sql.fetchval(deadlocks)
    for _ in range(5):
        session_id = uuid4()
        await add_turns(alice, session_id, 10)
        messages = await alice.load_session(session_id)
        endings = {
            "delete": alice.store.delete(Session(id=session_id)),
            "erase": alice.store.erase(Session(id=session_id)),
            "clear": alice.clear_session(session_id),
        }
        chosen = endings.pop(ending)
        for unused in endings.values():
            unused.close()
        removals = [alice.store.delete(row) for row in messages]
        done = await asyncio.gather(*removals[:8], chosen, *removals[8:], return_exceptions=True)
        failures = [
            error for error in done if isinstance(error, ConflictError) or not isinstance(error, RemError | None | int)
        ]
        assert failures == []
        if ending == "delete":
            await alice.restore_session(session_id)
        if ending != "erase":
            await _is_counted(alice, session_id)
    await asyncio.sleep(1.2)
    assert await sql.fetchval(deadlocks) == before


@pytest.mark.parametrize("ending", ["delete", "clear"])
async def test_message_is_deleted_while_its_session_waits_for_it(
    alice: MemoryManager, session_id: UUID, ending: str
) -> None:
    await add_turns(alice, session_id, 3)
    messages = await alice.load_session(session_id)
    async with alice.store.transaction() as transaction:
        # It holds the message; whoever deletes the session holds the session, and waits.
        await transaction.modify(Message, messages[2].id, lambda row: row.metadata.update(seen=True))
        await transaction.modify(Message, messages[2].id, lambda row: row.tags.append("x"))
        racing = asyncio.create_task(
            alice.delete_session(session_id) if ending == "delete" else alice.clear_session(session_id)
        )
        await asyncio.sleep(0.2)
        assert not racing.done()
        await transaction.delete(messages[2])
    await racing
    if ending == "delete":
        await alice.restore_session(session_id)
    await alice.begin_turn(session_id, user_message("Anew"))
    assert await _is_counted(alice, session_id) == (6 if ending == "delete" else 1)


async def test_locked_session_does_not_block_deletion_of_its_messages(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await add_turns(alice, session_id, 3)
    async with sql.transaction():
        await sql.execute("UPDATE sessions SET description = 'busy' WHERE id = $1", session_id)
        async with asyncio.timeout(5):
            await alice.store.delete((await alice.load_session(session_id))[0])
    await alice.begin_turn(session_id, user_message("Anew"))
    assert await _is_counted(alice, session_id) == 6, "the next turn counts what could not be counted then"
    await alice.append(session_id, [assistant_message("Yes")])
    assert await _is_counted(alice, session_id) == 7


async def test_key_of_an_erased_message_is_not_reused(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 1)
    for message in await alice.load_session(session_id):
        await alice.store.erase(message)
    turn = await alice.begin_turn(session_id, user_message("What was it?"))
    assert (turn.message_index, turn.history) == (2, [])
    (answer,) = await alice.append(session_id, [assistant_message("Gone.")])
    assert answer.message_index == 3
    await alice.store.erase(Message(id=answer.id, session_id=session_id, message_index=3, role="user", content="x"))
    assert (await alice.begin_turn(session_id, user_message("Really?"))).message_index == 4


async def test_erased_session_leaves_no_rows(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await add_turns(alice, session_id, 2)
    await alice.store.erase((await alice.load_session(session_id))[-1])
    assert await sql.fetchval("SELECT count(*) FROM session_counters") == 1
    await alice.delete_session(session_id, erase=True)
    assert await sql.fetchval("SELECT count(*) FROM session_counters") == 0
    assert (await alice.begin_turn(session_id, user_message("Who am I?"))).message_index == 0


async def test_index_near_the_largest_integer_is_rejected(rem: Rem, alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 1)
    for far in (_FAR, 1_500_000_000):
        message = Message(session_id=session_id, message_index=far, role=Role.USER, content="far")
        with pytest.raises(InvalidInputError, match=f"message_index {far} is far beyond .* which is 2"):
            await alice.store.upsert(message)
    assert (await alice.begin_turn(session_id, user_message("Still there?"))).message_index == 2
    await alice.store.upsert(Message(session_id=session_id, message_index=999_999_999, role=Role.USER, content="odd"))
    stored = await alice.append(
        session_id, [assistant_message("Fine."), user_message("And on"), assistant_message("And on.")]
    )
    assert [row.message_index for row in stored] == [1_000_000_000, 1_000_000_001, 1_000_000_002]
