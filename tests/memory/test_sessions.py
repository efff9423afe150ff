"""Sessions: made, named, listed, cloned, shared, cleared, pruned."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.memory.manager import MemoryManager
from rem.memory.prune import list_idle_sessions
from rem.models import Message, Role, Session
from rem.models.field_types import utc_now
from rem.settings import MemorySettings, Settings
from tests.memory.sample_messages import answered, called, said, talk


async def test_a_session_is_made_with_its_prompt_and_name(ours: MemoryManager) -> None:
    session = await ours.create_session("Be kind.", {"topic": "cheese"}, name="Cheese talk", agent="rem")
    assert (session.name, session.key, session.metadata) == ("Cheese talk", "cheese-talk", {"topic": "cheese"})
    assert session.message_count == 1
    (prompt,) = await ours.load_session(session.id)
    assert (prompt.role, prompt.content) == (Role.SYSTEM, "Be kind.")
    for again in ({"name": "cheese_talk"}, {"session_id": session.id}):
        with pytest.raises(ConflictError, match="with this name or id exists"):
            await ours.create_session(**again)
    assert len(await ours.list_sessions()) == 1


async def test_of_two_with_the_same_name_at_once_one_is_made(ours: MemoryManager) -> None:
    made = await asyncio.gather(*(ours.create_session(name="Same") for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(session, Session) for session in made) == 1
    assert all(isinstance(session, Session | ConflictError) for session in made), made
    assert len(await ours.list_sessions()) == 1


async def test_the_list_begins_with_what_was_written_to_last(ours: MemoryManager, theirs: MemoryManager) -> None:
    ids = [uuid4() for _ in range(5)]
    for session_id in ids:
        await ours.append(session_id, [said(f"About   {session_id.hex}\n and more")], creates=True)
    await theirs.append(uuid4(), [said("Mine")], creates=True)
    await ours.append(ids[0], [answered("Late")])
    order = [ids[0], *reversed(ids[1:])]
    assert [session.id for session in await ours.list_sessions()] == order
    assert [session.id for session in await ours.list_sessions(2, 1)] == order[1:3]
    assert (await ours.get_titles(ids))[ids[1]] == f"About {ids[1].hex} and more"
    with pytest.raises(InvalidInputError, match="limit"):
        await ours.list_sessions(-1)


async def test_a_session_is_renamed(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 1)
    assert (await ours.rename_session(session_id, "Größe 🎉")).name == "Größe 🎉"
    assert [row.id for row in await ours.store.lookup("größe 🎉")] == [session_id]
    other = await ours.create_session(name="Other")
    with pytest.raises(ConflictError, match="already has this key"):
        await ours.rename_session(other.id, "größe_🎉")
    for bad in ("", "  ", "a\0b", "x" * 2000):
        with pytest.raises(InvalidInputError):
            await ours.rename_session(session_id, bad)
    assert (await ours.rename_session(session_id, None)).key == str(session_id)


async def test_a_clone_has_the_same_messages_and_goes_its_own_way(ours: MemoryManager, session_id: UUID) -> None:
    await ours.append(
        session_id, [said("One"), called("t", "c1", {"a": 1}), answered("Two"), said("Three")], creates=True
    )
    clone = await ours.clone_session(session_id, name="Copy", up_to=2)
    assert (clone.name, clone.message_count, clone.metadata["cloned_from"]) == ("Copy", 3, str(session_id))
    fields = {"role", "content", "tool_calls", "tool_call_id", "tool_name", "metadata", "created_at", "token_count"}
    originals = [row.model_dump(include=fields) for row in await ours.load_session(session_id)]
    assert [row.model_dump(include=fields) for row in await ours.load_session(clone.id)] == originals[:3]
    await ours.append(clone.id, [said("Elsewhere")])
    assert len(await ours.load_session(session_id)) == 4


async def test_sharing_gives_the_right_to_read_and_nothing_else(
    rem: Rem, ours: MemoryManager, theirs: MemoryManager, session_id: UUID
) -> None:
    await talk(ours, session_id, 2)
    share = await ours.share_session(session_id, " Bob@Example.com ")
    assert (await ours.share_session(session_id, "bob@example.com")).id == share.id
    assert [session.id for session in await theirs.list_shared_sessions()] == [session_id]
    assert await theirs.load_session(session_id) == await ours.load_session(session_id)
    assert len(await theirs.get_messages(session_id, after=1, limit=1)) == 1
    for attempt in (
        theirs.begin_turn(session_id, said("May I?")),
        theirs.append(session_id, [said("May I?")]),
        theirs.rename_session(session_id, "mine"),
        theirs.clear_session(session_id),
        theirs.delete_session(session_id),
        theirs.share_session(session_id, "carol@example.com"),
        theirs.flag_message(session_id, 0),
        rem.memory("carol@example.com").load_session(session_id),
        rem.memory("bob@example.com", tenant="other").load_session(session_id),
    ):
        with pytest.raises(NotFoundError):
            await attempt
    assert await theirs.unshare_session(session_id) == 0
    clone = await theirs.clone_session(session_id)
    assert await ours.unshare_session(session_id, "bob@example.com") == 1
    assert await theirs.list_shared_sessions() == []
    with pytest.raises(NotFoundError):
        await theirs.load_session(session_id)
    assert len(await theirs.load_session(clone.id)) == 4, "what was copied is Bob's own"


async def test_a_deleted_session_is_shared_no_longer_and_again_when_it_is_back(
    ours: MemoryManager, theirs: MemoryManager, session_id: UUID
) -> None:
    await talk(ours, session_id, 1)
    await ours.share_session(session_id, "bob@example.com")
    await ours.delete_session(session_id)
    assert await theirs.list_shared_sessions() == []
    with pytest.raises(NotFoundError):
        await theirs.get_session(session_id)
    await ours.restore_session(session_id)
    assert len(await theirs.load_session(session_id)) == 2
    for nobody in ("alice@example.com", " "):
        with pytest.raises(InvalidInputError, match="another user"):
            await ours.share_session(session_id, nobody)


async def test_an_erased_session_is_gone_for_good(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 2)
    await ours.delete_session(session_id, erase=True)
    with pytest.raises(NotFoundError):
        await ours.restore_session(session_id)
    assert (await ours.begin_turn(session_id, said("Who am I?"))).is_new


async def _age(sql: asyncpg.Connection[asyncpg.Record], session_id: UUID, days: int) -> None:
    when = utc_now() - timedelta(days=days)
    await sql.execute("UPDATE sessions SET created_at = $2, updated_at = $2 WHERE id = $1", session_id, when)


async def test_old_sessions_are_pruned(
    ours: MemoryManager, theirs: MemoryManager, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    ids = [uuid4() for _ in range(250)]
    for session_id in ids[:3]:
        await talk(ours, session_id, 1)
    for session_id in ids[3:]:
        await ours.create_session(session_id=session_id)
    other = uuid4()
    await talk(theirs, other, 1)
    for session_id in (*ids[1:], other):
        await _age(sql, session_id, 40)
    assert await ours.prune_old_sessions(50) == 0
    assert await ours.prune_old_sessions(30) == 249
    assert await ours.prune_old_sessions(30) == 0
    assert [session.id for session in await ours.list_sessions()] == ids[:1]
    assert len(await theirs.list_sessions()) == 1
    await ours.restore_session(ids[1])
    assert len(await ours.load_session(ids[1])) == 2
    with pytest.raises(InvalidInputError, match="days"):
        await ours.prune_old_sessions(-1)


async def test_a_session_is_as_old_as_its_last_writing_and_not_as_its_messages(ours: MemoryManager) -> None:
    then = datetime(2020, 1, 1, tzinfo=UTC)
    session = await ours.store.upsert(Session(name="Old talk", created_at=then))
    old = Message(session_id=session.id, message_index=0, role=Role.USER, content="Hello", created_at=then)
    await ours.store.upsert_many([old])
    assert [row.created_at for row in await ours.load_session(session.id)] == [then]
    assert await list_idle_sessions(ours, 1) == []


async def test_nothing_is_pruned_unless_the_settings_say_so(
    settings: Settings, ours: MemoryManager, theirs: MemoryManager, sql: asyncpg.Connection[asyncpg.Record], rem: Rem
) -> None:
    for memory in (ours, theirs):
        for days in (1, 400):
            session_id = uuid4()
            await talk(memory, session_id, 1)
            await _age(sql, session_id, days)
    assert await rem.prune_if_due() == 0
    pruning = settings.model_copy(update={"memory": MemorySettings(auto_prune_days=90)})
    async with Rem.open(pruning) as other:
        assert await other.prune_if_due() == 2
        assert await other.prune_if_due() == 0
    assert (len(await ours.list_sessions()), len(await theirs.list_sessions())) == (1, 1)
