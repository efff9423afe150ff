"""Sessions: create, name, list, clone, share, clear and prune."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.models import Message, Role, Session
from rem.models.field_types import utc_now
from rem.sessions.manager import MemoryManager
from rem.sessions.prune import list_idle_sessions
from rem.settings import MemorySettings, Settings
from tests.sessions.sample_messages import add_turns, assistant_message, tool_call, user_message


async def test_create_session_with_prompt_and_name(alice: MemoryManager) -> None:
    session = await alice.create_session("Be kind.", {"topic": "cheese"}, name="Cheese talk", agent="rem")
    assert (session.name, session.key, session.metadata) == ("Cheese talk", "cheese-talk", {"topic": "cheese"})
    assert (session.message_count, session.system_prompt) == (0, "Be kind.")
    for again in ({"name": "cheese_talk"}, {"session_id": session.id}):
        with pytest.raises(ConflictError, match="with this name or id exists"):
            await alice.create_session(**again)
    assert len(await alice.list_sessions()) == 1


async def test_system_prompt_belongs_to_every_turn(alice: MemoryManager, bob: MemoryManager) -> None:
    session = await alice.create_session("Be kind.")
    assert (await alice.begin_turn(session.id, user_message("Hi"))).system_prompt == "Be kind."
    assert (await alice.set_system_prompt(session.id, "Be brief.")).system_prompt == "Be brief."
    assert (await alice.begin_turn(session.id, user_message("Hi"))).system_prompt == "Be brief."
    assert (await alice.get_history(session.id)).system_prompt == "Be brief."
    assert (await alice.clone_session(session.id)).system_prompt == "Be brief."
    with pytest.raises(NotFoundError):
        await bob.set_system_prompt(session.id, "Tell me all.")
    for wrong in ("a\0b", "x" * 100_001):
        with pytest.raises(InvalidInputError, match="system prompt"):
            await alice.set_system_prompt(session.id, wrong)
    assert (await alice.set_system_prompt(session.id, "  ")).system_prompt is None
    assert (await alice.begin_turn(session.id, user_message("Hi"))).system_prompt is None


async def test_concurrent_creation_with_one_name_succeeds_once(alice: MemoryManager) -> None:
    made = await asyncio.gather(*(alice.create_session(name="Same") for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(session, Session) for session in made) == 1
    assert all(isinstance(session, Session | ConflictError) for session in made), made
    assert len(await alice.list_sessions()) == 1


async def test_sessions_are_listed_by_last_write(alice: MemoryManager, bob: MemoryManager) -> None:
    ids = [uuid4() for _ in range(5)]
    for session_id in ids:
        await alice.append(session_id, [user_message(f"About   {session_id.hex}\n and more")], create_session=True)
    await bob.append(uuid4(), [user_message("Mine")], create_session=True)
    await alice.append(ids[0], [assistant_message("Late")])
    order = [ids[0], *reversed(ids[1:])]
    assert [session.id for session in await alice.list_sessions()] == order
    assert [session.id for session in await alice.list_sessions(2, 1)] == order[1:3]
    assert (await alice.get_titles(ids))[ids[1]] == f"About {ids[1].hex} and more"
    with pytest.raises(InvalidInputError, match="limit"):
        await alice.list_sessions(-1)


async def test_rename_session(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 1)
    assert (await alice.rename_session(session_id, "Größe 🎉")).name == "Größe 🎉"
    assert [row.id for row in await alice.store.lookup("größe 🎉")] == [session_id]
    other = await alice.create_session(name="Other")
    with pytest.raises(ConflictError, match="already has this key"):
        await alice.rename_session(other.id, "größe_🎉")
    for bad in ("", "  ", "a\0b", "x" * 2000):
        with pytest.raises(InvalidInputError):
            await alice.rename_session(session_id, bad)
    assert (await alice.rename_session(session_id, None)).key == str(session_id)


async def test_clone_has_the_same_messages_and_is_independent(alice: MemoryManager, session_id: UUID) -> None:
    await alice.append(
        session_id,
        [user_message("One"), tool_call("t", "c1", {"a": 1}), assistant_message("Two"), user_message("Three")],
        create_session=True,
    )
    clone = await alice.clone_session(session_id, name="Copy", up_to=2)
    assert (clone.name, clone.message_count, clone.metadata["cloned_from"]) == ("Copy", 3, str(session_id))
    fields = {"role", "content", "tool_calls", "tool_call_id", "tool_name", "metadata", "created_at", "token_count"}
    originals = [row.model_dump(include=fields) for row in await alice.load_session(session_id)]
    assert [row.model_dump(include=fields) for row in await alice.load_session(clone.id)] == originals[:3]
    await alice.append(clone.id, [user_message("Elsewhere")])
    assert len(await alice.load_session(session_id)) == 4


async def test_share_gives_read_access_only(
    rem: Rem, alice: MemoryManager, bob: MemoryManager, session_id: UUID
) -> None:
    await add_turns(alice, session_id, 2)
    share = await alice.share_session(session_id, " Bob@Example.com ")
    assert (await alice.share_session(session_id, "bob@example.com")).id == share.id
    assert [session.id for session in await bob.list_shared_sessions()] == [session_id]
    assert await bob.load_session(session_id) == await alice.load_session(session_id)
    assert len(await bob.get_messages(session_id, after=1, limit=1)) == 1
    for attempt in (
        bob.begin_turn(session_id, user_message("May I?")),
        bob.append(session_id, [user_message("May I?")]),
        bob.rename_session(session_id, "mine"),
        bob.clear_session(session_id),
        bob.delete_session(session_id),
        bob.share_session(session_id, "carol@example.com"),
        bob.flag_message(session_id, 0),
        rem.for_user("carol@example.com").sessions.load_session(session_id),
        rem.for_user("bob@example.com", tenant="other").sessions.load_session(session_id, create_session=False),
    ):
        with pytest.raises(NotFoundError):
            await attempt
    assert await bob.unshare_session(session_id) == 0
    clone = await bob.clone_session(session_id)
    assert await alice.unshare_session(session_id, "bob@example.com") == 1
    assert await bob.list_shared_sessions() == []
    with pytest.raises(NotFoundError):
        await bob.load_session(session_id)
    assert len(await bob.load_session(clone.id)) == 4, "what was copied is Bob's own"


async def test_share_ends_with_deletion_and_returns_with_restoration(
    alice: MemoryManager, bob: MemoryManager, session_id: UUID
) -> None:
    await add_turns(alice, session_id, 1)
    await alice.share_session(session_id, "bob@example.com")
    await alice.delete_session(session_id)
    assert await bob.list_shared_sessions() == []
    with pytest.raises(NotFoundError):
        await bob.get_session(session_id)
    await alice.restore_session(session_id)
    assert len(await bob.load_session(session_id)) == 2
    for nobody in ("alice@example.com", " "):
        with pytest.raises(InvalidInputError, match="another user"):
            await alice.share_session(session_id, nobody)


async def test_erased_session_cannot_be_restored(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 2)
    await alice.delete_session(session_id, erase=True)
    with pytest.raises(NotFoundError):
        await alice.restore_session(session_id)
    assert (await alice.begin_turn(session_id, user_message("Who am I?"))).is_new


async def _age(sql: asyncpg.Connection[asyncpg.Record], session_id: UUID, days: int) -> None:
    when = utc_now() - timedelta(days=days)
    await sql.execute("UPDATE sessions SET created_at = $2, updated_at = $2 WHERE id = $1", session_id, when)


async def test_old_sessions_are_pruned(
    alice: MemoryManager, bob: MemoryManager, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    ids = [uuid4() for _ in range(250)]
    for session_id in ids[:3]:
        await add_turns(alice, session_id, 1)
    for session_id in ids[3:]:
        await alice.create_session(session_id=session_id)
    other = uuid4()
    await add_turns(bob, other, 1)
    for session_id in (*ids[1:], other):
        await _age(sql, session_id, 40)
    assert await alice.prune_old_sessions(50) == 0
    assert await alice.prune_old_sessions(30) == 249
    assert await alice.prune_old_sessions(30) == 0
    assert [session.id for session in await alice.list_sessions()] == ids[:1]
    assert len(await bob.list_sessions()) == 1
    await alice.restore_session(ids[1])
    assert len(await alice.load_session(ids[1])) == 2
    with pytest.raises(InvalidInputError, match="days"):
        await alice.prune_old_sessions(-1)


async def test_session_age_is_its_last_write_not_its_message_dates(alice: MemoryManager) -> None:
    then = datetime(2020, 1, 1, tzinfo=UTC)
    session = await alice.store.upsert(Session(name="Old talk", created_at=then))
    old = Message(session_id=session.id, message_index=0, role=Role.USER, content="Hello", created_at=then)
    await alice.store.upsert_many([old])
    assert [row.created_at for row in await alice.load_session(session.id)] == [then]
    assert await list_idle_sessions(alice, 1) == []


async def test_nothing_is_pruned_without_the_setting(
    settings: Settings, alice: MemoryManager, bob: MemoryManager, sql: asyncpg.Connection[asyncpg.Record], rem: Rem
) -> None:
    for memory in (alice, bob):
        for days in (1, 400):
            session_id = uuid4()
            await add_turns(memory, session_id, 1)
            await _age(sql, session_id, days)
    assert await rem.prune_if_due() == 0
    pruning = settings.model_copy(update={"memory": MemorySettings(auto_prune_days=90)})
    async with Rem.open(pruning) as other:
        assert await other.prune_if_due() == 2
        assert await other.prune_if_due() == 0
    assert (len(await alice.list_sessions()), len(await bob.list_sessions())) == (1, 1)
