"""Turns: the user message is stored, and the history before it is returned."""

from __future__ import annotations

import asyncio
import re
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.context import AgentContext, resolve_session_id
from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError
from rem.models import Message, Role
from rem.sessions.manager import MemoryManager
from rem.sessions.message import NewMessage
from tests.sessions.sample_messages import add_turns, assistant_message, tool_call, user_message

_HINT = re.compile(r"\n\n\.\.\. \[Message truncated - REM LOOKUP (\S+) to recover full content\] \.\.\.\n\n")


async def test_first_message_creates_the_session(alice: MemoryManager, session_id: UUID) -> None:
    turn = await alice.begin_turn(session_id, user_message("Hello"), agent="rem", metadata={"client": "test"})
    assert (turn.is_new, turn.message_index, turn.history, turn.summary) == (True, 0, [], None)
    session = await alice.get_session(session_id)
    assert (session.agent_schema, session.metadata, session.message_count) == ("rem", {"client": "test"}, 1)
    (message,) = await alice.load_session(session_id)
    assert (message.id, message.content, message.role, message.token_count) == (turn.message_id, "Hello", "user", 1)


async def test_messages_are_stored_in_order(alice: MemoryManager, session_id: UUID) -> None:
    await alice.begin_turn(session_id, user_message("What is 日本語 🎉?"))
    stored = await alice.append(
        session_id, [tool_call("search", "c1", {"q": "日本語"}), assistant_message("Japanese.", model="m")]
    )
    assert [row.message_index for row in stored] == [1, 2]
    turn = await alice.begin_turn(session_id, user_message("And who speaks it?"))
    assert (turn.is_new, turn.message_index) == (False, 3)
    question, call, answer = turn.history
    assert (question.role, question.content, question.is_truncated) == (Role.USER, "What is 日本語 🎉?", False)
    assert (call.tool_name, call.tool_call_id, call.tool_arguments) == ("search", "c1", {"q": "日本語"})
    assert call.tool_calls == [{"id": "c1", "name": "search", "arguments": {"q": "日本語"}}]
    assert answer.content == "Japanese."
    assert all(line.tokens > 0 for line in turn.history)
    session = await alice.get_session(session_id)
    assert session.message_count == 4
    assert session.total_tokens == sum(row.token_count or 0 for row in await alice.load_session(session_id))


async def test_every_truncation_hint_leads_to_the_full_text(rem: Rem, alice: MemoryManager, session_id: UUID) -> None:
    texts = {}
    for number in range(25):
        text = "".join(f"{number}·{line} Käse 🧀\n" for line in range(50 + number * 7)) + f" end {number}"
        await alice.begin_turn(session_id, user_message(f"Tell me all about {number}. " + "Really all. " * 60))
        (stored,) = await alice.append(session_id, [assistant_message(text)])
        texts[stored.key] = text
    turn = await alice.begin_turn(session_id, user_message("Thanks"), max_tokens=100_000)
    assert len(turn.history) == 50
    hints = {}
    for line in turn.history:
        if line.role == Role.USER:
            assert not line.is_truncated
            assert len(line.content) > 400
            continue
        assert line.is_truncated
        start, key, end = _HINT.split(line.content)
        hints[key] = (start, end)
        assert len(line.content) < 600
    assert hints.keys() == texts.keys()
    for key, (start, end) in hints.items():
        result = await rem.for_user(alice.scope).query(f"LOOKUP {key}")
        (row,) = result.hits
        assert row.record["content"] == texts[key]
        assert (start, end) == (texts[key][:200], texts[key][-200:])


async def test_answer_of_400_characters_is_not_shortened(alice: MemoryManager, session_id: UUID) -> None:
    for length in (400, 401):
        await alice.begin_turn(session_id, user_message("?"))
        await alice.append(session_id, [assistant_message("é" * length)])
    history = (await alice.begin_turn(session_id, user_message("!"))).history
    assert [(len(line.content) == 400, line.is_truncated) for line in history if line.role == Role.ASSISTANT] == [
        (True, False),
        (False, True),
    ]


async def test_long_note_is_not_shortened(alice: MemoryManager, session_id: UUID) -> None:
    note = '{"summary": "' + "x" * 2000 + '"}'
    await alice.append(
        session_id,
        [user_message("Note it"), tool_call("register_metadata", "n1", {"summary": "x"}, note)],
        create_session=True,
    )
    assert (await alice.begin_turn(session_id, user_message("?"))).history[1].content == note


async def test_session_of_another_user_is_not_found(alice: MemoryManager, bob: MemoryManager, session_id: UUID) -> None:
    await alice.append(session_id, [user_message("My secret is blue.")], create_session=True)
    for attempt in (
        bob.begin_turn(session_id, user_message("What was the secret?")),
        bob.append(session_id, [user_message("I was here")]),
        bob.load_session(session_id),
        bob.get_session(session_id),
        bob.create_session(session_id=session_id),
        bob.get_recent_messages(session_id),
        bob.rename_session(session_id, "mine"),
        bob.clear_session(session_id),
        bob.delete_session(session_id),
        bob.delete_session(session_id, erase=True),
        bob.restore_session(session_id),
        bob.clone_session(session_id),
        bob.share_session(session_id, "carol@example.com"),
        bob.flag_message(session_id, 0),
    ):
        with pytest.raises(NotFoundError) as refused:
            await attempt
        assert "secret" not in str(refused.value)
    assert await bob.unshare_session(session_id) == 0
    assert await bob.get_titles([session_id]) == {}
    assert await bob.search_similar("secret blue") == []
    assert await bob.refresh_summary(session_id, strategy="hybrid", max_tokens=1) is None
    assert [message.content for message in await alice.load_session(session_id)] == ["My secret is blue."]
    assert await bob.list_sessions() == []


async def test_same_id_in_another_tenant_is_another_session(rem: Rem, session_id: UUID) -> None:
    here, there = rem.for_user("alice@example.com").sessions, rem.for_user("alice@example.com", tenant="other").sessions
    await here.append(session_id, [user_message("here")], create_session=True)
    turn = await there.begin_turn(session_id, user_message("there"))
    assert turn.is_new
    assert [message.content for message in await here.load_session(session_id)] == ["here"]


async def test_anonymous_session_owns_itself(rem: Rem) -> None:
    context = AgentContext(session_id=str(uuid4()))
    session_id = UUID(context.session_id)
    memory = rem.for_user(context.scope).sessions
    await memory.begin_turn(session_id, user_message("Nobody knows me"))
    assert len((await memory.begin_turn(session_id, user_message("still?"))).history) == 1
    other = AgentContext(session_id=str(uuid4()))
    with pytest.raises(NotFoundError):
        await rem.for_user(other.scope).sessions.begin_turn(session_id, user_message("Who are you?"))


async def test_without_a_user_nothing_is_stored(rem: Rem, session_id: UUID) -> None:
    memory = rem.for_user(AgentContext().scope).sessions
    for attempt in (
        memory.begin_turn(session_id, user_message("Hello")),
        memory.list_sessions(),
        memory.search_similar("x"),
        memory.delete_session(session_id),
        memory.refresh_summary(session_id, strategy="hybrid"),
    ):
        with pytest.raises(InvalidInputError, match="have an owner"):
            await attempt


async def test_deleted_session_stays_deleted_until_restored(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 2)
    await alice.delete_session(session_id)
    with pytest.raises(DeletedError, match="restore it"):
        await alice.begin_turn(session_id, user_message("Still there?"))
    with pytest.raises(DeletedError):
        await alice.append(session_id, [assistant_message("I am.")])
    assert await alice.list_sessions() == []
    await alice.restore_session(session_id)
    assert len((await alice.begin_turn(session_id, user_message("And now?"))).history) == 4


async def test_answer_does_not_recreate_an_erased_session(alice: MemoryManager, session_id: UUID) -> None:
    await alice.begin_turn(session_id, user_message("Forget me"))
    await alice.delete_session(session_id, erase=True)
    with pytest.raises(NotFoundError):
        await alice.append(session_id, [assistant_message("Too late.")])
    with pytest.raises(NotFoundError):
        await alice.save_message(session_id, assistant_message("Too late."), create_session=False)
    with pytest.raises(NotFoundError):
        await alice.load_session(session_id, create_session=False)
    assert await alice.list_sessions() == []


async def test_missing_session_is_created_by_save_and_load(
    alice: MemoryManager, bob: MemoryManager, session_id: UUID
) -> None:
    assert await alice.load_session(session_id) == []
    assert [session.id for session in await alice.list_sessions()] == [session_id]
    other = uuid4()
    stored = await alice.save_message(other, user_message("A new one"))
    assert (stored.message_index, (await alice.get_session(other)).message_count) == (0, 1)
    assert [message.content for message in await alice.load_session(other)] == ["A new one"]
    with pytest.raises(NotFoundError):
        await bob.load_session(other)
    with pytest.raises(NotFoundError):
        await bob.save_message(other, user_message("Mine now"))
    await alice.delete_session(other)
    with pytest.raises(NotFoundError):
        await alice.load_session(other)
    assert await bob.list_sessions() == []


async def test_seed_session_stores_messages_once(alice: MemoryManager, session_id: UUID) -> None:
    earlier = [user_message("What is 2 + 2?"), assistant_message("4.")]

    async def request(number: int) -> bool:
        brought = await alice.seed_session(session_id, earlier, agent="rem", name="Sums")
        turn = await alice.begin_turn(session_id, user_message(f"And times {number}?"), name="Other")
        assert [line.content for line in turn.history[:2]] == ["What is 2 + 2?", "4."]
        return brought

    brought = await asyncio.gather(*(request(number) for number in range(6)))
    assert sorted(brought) == [*[False] * 5, True]
    messages = await alice.load_session(session_id)
    assert [message.message_index for message in messages] == list(range(8))
    session = await alice.get_session(session_id)
    assert (session.message_count, session.agent_schema, session.name) == (8, "rem", "Sums")
    assert session.total_tokens == sum(message.token_count or 0 for message in messages)


async def test_seed_session_does_not_touch_existing_sessions(
    alice: MemoryManager, bob: MemoryManager, session_id: UUID
) -> None:
    assert not await alice.seed_session(session_id, [])
    assert await alice.list_sessions() == []
    await alice.begin_turn(session_id, user_message("Mine"))
    assert not await alice.seed_session(session_id, [user_message("x")])
    with pytest.raises(NotFoundError):
        await bob.seed_session(session_id, [user_message("x")])
    await alice.delete_session(session_id)
    with pytest.raises(DeletedError):
        await alice.seed_session(session_id, [user_message("x")])
    await alice.restore_session(session_id)
    assert [message.content for message in await alice.load_session(session_id)] == ["Mine"]


async def test_session_is_named_when_it_is_created(alice: MemoryManager, bob: MemoryManager) -> None:
    session_id = await alice.resolve_session_id("Trip to Rome")
    await alice.begin_turn(session_id, user_message("Hello"), name="Trip to Rome")
    assert (await alice.get_session(session_id)).name == "Trip to Rome"
    await alice.begin_turn(session_id, user_message("Again"), name="Something else")
    assert (await alice.get_session(session_id)).name == "Trip to Rome"
    await bob.begin_turn(other := uuid4(), user_message("Hello"), name="Trip to Rome")
    assert (await bob.get_session(other)).name == "Trip to Rome", "names are the user's own"


@pytest.mark.parametrize(
    "name",
    [
        "trip_to_rome",
        "",
        " ",
        "\u200b",
        "a\0b",
        "\ud800",
        "x" * 2000,
        "\ufdfa" * 100,
        "f5a7ee4c-1c2d-4a3e-9b8f-0a1b2c3d4e5f",
    ],
)
async def test_invalid_session_name_is_ignored(alice: MemoryManager, session_id: UUID, name: str) -> None:
    await alice.create_session(name="Trip to Rome")
    turn = await alice.begin_turn(session_id, user_message("Hello"), name=name)
    assert turn.is_new
    assert (await alice.get_session(session_id)).name is None
    assert await alice.seed_session(other := uuid4(), [user_message("Hello")], name=name)
    assert (await alice.get_session(other)).name is None


async def test_concurrent_sessions_with_one_name_name_one_session(alice: MemoryManager) -> None:
    await asyncio.gather(*(alice.begin_turn(uuid4(), user_message("Hello"), name="Same") for _ in range(6)))
    assert sorted(str(session.name) for session in await alice.list_sessions()) == [*["None"] * 5, "Same"]


async def test_client_text_resolves_to_one_session(rem: Rem, alice: MemoryManager, bob: MemoryManager) -> None:
    session = await alice.create_session(name="Trip to Rome")
    for text in ("Trip to Rome", "trip_to_rome", " TripToRome ", str(session.id), f"{{{session.id}}}"):
        assert await alice.resolve_session_id(text) == session.id, text
    derived = await bob.resolve_session_id("Trip to Rome")
    assert await bob.resolve_session_id("Trip to Rome") == derived != session.id
    assert derived != resolve_session_id("Trip to Rome", bob.scope), "nobody else can compute it"
    await alice.rename_session(session.id, "Trip to Milan")
    assert await alice.resolve_session_id("Trip to Rome") not in (session.id, derived)
    assert await alice.resolve_session_id("trip-to-milan") == session.id
    await alice.delete_session(session.id)
    assert await alice.resolve_session_id("trip-to-milan") != session.id
    for odd in ("", "🎉", "x" * 100_000, "' OR true --"):
        assert await alice.resolve_session_id(odd) == await alice.resolve_session_id(odd)
    for bad in ("a\0b", "\ud800"):
        with pytest.raises(InvalidInputError):
            await alice.resolve_session_id(bad)
    nobody = rem.for_user(AgentContext().scope).sessions
    assert await nobody.resolve_session_id("x") == await nobody.resolve_session_id("x")


async def test_taken_session_id_does_not_block_its_name(alice: MemoryManager, bob: MemoryManager) -> None:
    for taken in (resolve_session_id("diary", alice.scope), await alice.resolve_session_id("diary")):
        await bob.create_session(session_id=taken)
        session_id = await alice.resolve_session_id("diary")
        assert session_id != taken
    turn = await alice.begin_turn(session_id, user_message("Mine"), name="diary")
    assert turn.is_new
    assert await alice.resolve_session_id("diary") == session_id


async def test_concurrent_requests_on_one_session_are_stored_in_order(alice: MemoryManager, session_id: UUID) -> None:
    async def turn(number: int) -> None:
        begun = await alice.begin_turn(session_id, user_message(f"question {number}"))
        stored = await alice.append(
            session_id, [tool_call("t", f"c{number}", {}), assistant_message(f"answer {number}")]
        )
        assert begun.message_index < stored[0].message_index == stored[1].message_index - 1

    await asyncio.gather(*(turn(number) for number in range(20)))
    messages = await alice.load_session(session_id)
    assert [message.message_index for message in messages] == list(range(60))
    assert {message.content for message in messages if message.content} == {
        f"{word} {number}" for word in ("question", "answer") for number in range(20)
    }
    times = [message.created_at for message in messages]
    assert times == sorted(times)
    assert (await alice.get_session(session_id)).message_count == 60


async def test_concurrent_first_messages_share_one_session(alice: MemoryManager) -> None:
    """Concurrent inserts can conflict on the primary key or on the key index first. Each round may hit either."""
    for session_id in (uuid4() for _ in range(60)):
        turns = await asyncio.gather(
            *(alice.begin_turn(session_id, user_message(f"question {number}")) for number in range(4))
        )
        assert sorted(turn.message_index for turn in turns) == [0, 1, 2, 3]
        assert [turn.is_new for turn in turns].count(True) == 1


async def test_session_named_like_another_id_is_a_conflict(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await alice.begin_turn(other := uuid4(), user_message("one"))
    await sql.execute("UPDATE sessions SET name = $1 WHERE id = $2", str(session_id), other)
    async with asyncio.timeout(5):
        with pytest.raises(ConflictError, match=str(session_id)):
            await alice.begin_turn(session_id, user_message("two"))


async def test_writing_does_not_wait_for_readers(
    alice: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Writing a message locks its session with KEY SHARE. Assigning an index must not wait for that."""
    await alice.append(session_id, [user_message("one")], create_session=True)
    async with sql.transaction():
        await sql.fetch("SELECT FROM sessions WHERE id = $1 FOR KEY SHARE", session_id)
        async with asyncio.timeout(5):
            await alice.begin_turn(session_id, user_message("two"))


@pytest.mark.parametrize("content", ["", "  \n", "a\0b", "\ud800"])
def test_unstorable_user_text_is_rejected(content: str) -> None:
    with pytest.raises(InvalidInputError):
        user_message(content)


async def test_unstorable_characters_of_an_answer_are_replaced(alice: MemoryManager, session_id: UUID) -> None:
    deep: dict[str, object] = {}
    for _ in range(300):
        deep = {"deeper": deep}
    call = tool_call("t\0", "c\ud800", {"a": "\0", "big": 2**100, "none": float("nan"), "deep": deep})
    await alice.append(session_id, [user_message("?"), assistant_message("a\0b\ud800c 🎉"), call], create_session=True)
    _, answer, stored = await alice.load_session(session_id)
    assert answer.content.replace("\ufffd", "?") == "a?b?c 🎉"
    arguments = stored.tool_calls[0]["arguments"]
    assert (arguments["a"], arguments["big"], arguments["none"]) == ("\ufffd", str(2**100), None)


async def test_huge_message_is_stored_and_returned(alice: MemoryManager, session_id: UUID) -> None:
    huge = "A pasted book. " * 200_000
    await alice.begin_turn(session_id, user_message(huge))
    await alice.append(session_id, [assistant_message("Read.")])
    turn = await alice.begin_turn(session_id, user_message("What was it?"))
    assert [line.content for line in turn.history] == [huge, "Read."]
    assert turn.history[0].tokens > 500_000
    assert (await alice.load_session(session_id))[0].content == huge


async def test_message_indexes_are_never_reused(alice: MemoryManager, session_id: UUID) -> None:
    await add_turns(alice, session_id, 3)
    assert await alice.clear_session(session_id) == 6
    assert (await alice.get_session(session_id)).message_count == 0
    turn = await alice.begin_turn(session_id, user_message("Anew"))
    assert (turn.message_index, turn.history) == (6, [])
    assert [message.message_index for message in await alice.load_session(session_id)] == [6]


async def test_messages_written_by_the_store_belong_to_the_session(
    rem: Rem, alice: MemoryManager, session_id: UUID
) -> None:
    await alice.append(session_id, [NewMessage(role=Role.SYSTEM, content="You are kind.")], create_session=True)
    store = rem.for_user(alice.scope).store
    await store.upsert(Message(session_id=session_id, message_index=70, role=Role.USER, content="From a YAML file"))
    turn = await alice.begin_turn(session_id, NewMessage(role=Role.USER, content="Next"))
    assert turn.message_index == 71
    assert [(line.role, line.content) for line in turn.history] == [
        ("system", "You are kind."),
        ("user", "From a YAML file"),
    ]
    assert turn.history[1].tokens == 4 + 4
