"""A turn: what the user says is stored first, and the model is given what was said before."""

from __future__ import annotations

import asyncio
import re
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.context import AgentContext, resolve_session_id
from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError
from rem.memory.manager import MemoryManager
from rem.memory.message import NewMessage
from rem.models import Message, Role
from tests.memory.sample_messages import answered, called, said, talk

_HINT = re.compile(r"\n\n\.\.\. \[Message truncated - REM LOOKUP (\S+) to recover full content\] \.\.\.\n\n")


async def test_the_first_message_makes_the_session(ours: MemoryManager, session_id: UUID) -> None:
    turn = await ours.begin_turn(session_id, said("Hello"), agent="rem", metadata={"client": "test"})
    assert (turn.is_new, turn.message_index, turn.history, turn.summary) == (True, 0, [], None)
    session = await ours.get_session(session_id)
    assert (session.agent_schema, session.metadata, session.message_count) == ("rem", {"client": "test"}, 1)
    (message,) = await ours.load_session(session_id)
    assert (message.id, message.content, message.role, message.token_count) == (turn.message_id, "Hello", "user", 1)


async def test_a_conversation_is_remembered_in_its_order(ours: MemoryManager, session_id: UUID) -> None:
    await ours.begin_turn(session_id, said("What is 日本語 🎉?"))
    stored = await ours.append(session_id, [called("search", "c1", {"q": "日本語"}), answered("Japanese.", model="m")])
    assert [row.message_index for row in stored] == [1, 2]
    turn = await ours.begin_turn(session_id, said("And who speaks it?"))
    assert (turn.is_new, turn.message_index) == (False, 3)
    question, call, answer = turn.history
    assert (question.role, question.content, question.is_truncated) == (Role.USER, "What is 日本語 🎉?", False)
    assert (call.tool_name, call.tool_call_id, call.tool_arguments) == ("search", "c1", {"q": "日本語"})
    assert call.tool_calls == [{"id": "c1", "name": "search", "arguments": {"q": "日本語"}}]
    assert answer.content == "Japanese."
    assert all(line.tokens > 0 for line in turn.history)
    session = await ours.get_session(session_id)
    assert session.message_count == 4
    assert session.total_tokens == sum(row.token_count or 0 for row in await ours.load_session(session_id))


async def test_every_hint_of_a_long_session_leads_to_the_exact_text(
    rem: Rem, ours: MemoryManager, session_id: UUID
) -> None:
    texts = {}
    for number in range(25):
        text = "".join(f"{number}·{place} Käse 🧀\n" for place in range(50 + number * 7)) + f" end {number}"
        await ours.begin_turn(session_id, said(f"Tell me all about {number}. " + "Really all. " * 60))
        (stored,) = await ours.append(session_id, [answered(text)])
        texts[stored.key] = text
    turn = await ours.begin_turn(session_id, said("Thanks"), max_tokens=100_000)
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
        result = await rem.query(f"LOOKUP {key}", user=ours.scope)
        (found,) = result.results
        assert found["record"]["content"] == texts[key]
        assert (start, end) == (texts[key][:200], texts[key][-200:])


async def test_an_answer_of_400_characters_is_given_whole(ours: MemoryManager, session_id: UUID) -> None:
    for length in (400, 401):
        await ours.begin_turn(session_id, said("?"))
        await ours.append(session_id, [answered("é" * length)])
    history = (await ours.begin_turn(session_id, said("!"))).history
    assert [(len(line.content) == 400, line.is_truncated) for line in history if line.role == Role.ASSISTANT] == [
        (True, False),
        (False, True),
    ]


async def test_a_long_note_is_never_shortened(ours: MemoryManager, session_id: UUID) -> None:
    note = '{"summary": "' + "x" * 2000 + '"}'
    await ours.append(
        session_id, [said("Note it"), called("register_metadata", "n1", {"summary": "x"}, note)], creates=True
    )
    assert (await ours.begin_turn(session_id, said("?"))).history[1].content == note


async def test_another_users_session_does_not_exist(
    ours: MemoryManager, theirs: MemoryManager, session_id: UUID
) -> None:
    await ours.append(session_id, [said("My secret is blue.")], creates=True)
    for attempt in (
        theirs.begin_turn(session_id, said("What was the secret?")),
        theirs.append(session_id, [said("I was here")]),
        theirs.load_session(session_id),
        theirs.get_session(session_id),
        theirs.create_session(session_id=session_id),
        theirs.get_recent_messages(session_id),
        theirs.rename_session(session_id, "mine"),
        theirs.clear_session(session_id),
        theirs.delete_session(session_id),
        theirs.delete_session(session_id, erase=True),
        theirs.restore_session(session_id),
        theirs.clone_session(session_id),
        theirs.share_session(session_id, "carol@example.com"),
        theirs.flag_message(session_id, 0),
    ):
        with pytest.raises(NotFoundError) as refused:
            await attempt
        assert "secret" not in str(refused.value)
    assert await theirs.unshare_session(session_id) == 0
    assert await theirs.get_titles([session_id]) == {}
    assert await theirs.search_similar("secret blue") == []
    assert await theirs.refresh_summary(session_id, strategy="hybrid", max_tokens=1) is None
    assert [message.content for message in await ours.load_session(session_id)] == ["My secret is blue."]
    assert await theirs.list_sessions() == []


async def test_the_same_id_in_another_tenant_is_another_session(rem: Rem, session_id: UUID) -> None:
    here, there = rem.memory("alice@example.com"), rem.memory("alice@example.com", tenant="other")
    await here.append(session_id, [said("here")], creates=True)
    turn = await there.begin_turn(session_id, said("there"))
    assert turn.is_new
    assert [message.content for message in await here.load_session(session_id)] == ["here"]


async def test_an_anonymous_conversation_owns_itself(rem: Rem) -> None:
    context = AgentContext(session_id=str(uuid4()))
    session_id = UUID(context.session_id)
    memory = rem.memory(context.scope)
    await memory.begin_turn(session_id, said("Nobody knows me"))
    assert len((await memory.begin_turn(session_id, said("still?"))).history) == 1
    other = AgentContext(session_id=str(uuid4()))
    with pytest.raises(NotFoundError):
        await rem.memory(other.scope).begin_turn(session_id, said("Who are you?"))


async def test_without_a_user_nothing_is_stored(rem: Rem, session_id: UUID) -> None:
    memory = rem.memory(AgentContext().scope)
    for attempt in (
        memory.begin_turn(session_id, said("Hello")),
        memory.list_sessions(),
        memory.search_similar("x"),
        memory.delete_session(session_id),
        memory.refresh_summary(session_id, strategy="hybrid"),
    ):
        with pytest.raises(InvalidInputError, match="have an owner"):
            await attempt


async def test_a_deleted_session_stays_deleted_and_can_be_restored(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 2)
    await ours.delete_session(session_id)
    with pytest.raises(DeletedError, match="restore it"):
        await ours.begin_turn(session_id, said("Still there?"))
    with pytest.raises(DeletedError):
        await ours.append(session_id, [answered("I am.")])
    assert await ours.list_sessions() == []
    await ours.restore_session(session_id)
    assert len((await ours.begin_turn(session_id, said("And now?"))).history) == 4


async def test_an_answer_does_not_bring_an_erased_session_back(ours: MemoryManager, session_id: UUID) -> None:
    await ours.begin_turn(session_id, said("Forget me"))
    await ours.delete_session(session_id, erase=True)
    with pytest.raises(NotFoundError):
        await ours.append(session_id, [answered("Too late.")])
    with pytest.raises(NotFoundError):
        await ours.save_message(session_id, answered("Too late."))
    assert await ours.list_sessions() == []
    await ours.save_message(session_id, said("A new one"), creates=True)
    assert (await ours.get_session(session_id)).message_count == 1


async def test_a_conversation_from_elsewhere_is_brought_along_once(ours: MemoryManager, session_id: UUID) -> None:
    earlier = [said("What is 2 + 2?"), answered("4.")]

    async def request(number: int) -> bool:
        brought = await ours.seed_session(session_id, earlier, agent="rem", name="Sums")
        turn = await ours.begin_turn(session_id, said(f"And times {number}?"), name="Other")
        assert [line.content for line in turn.history[:2]] == ["What is 2 + 2?", "4."]
        return brought

    brought = await asyncio.gather(*(request(number) for number in range(6)))
    assert sorted(brought) == [*[False] * 5, True]
    messages = await ours.load_session(session_id)
    assert [message.message_index for message in messages] == list(range(8))
    session = await ours.get_session(session_id)
    assert (session.message_count, session.agent_schema, session.name) == (8, "rem", "Sums")
    assert session.total_tokens == sum(message.token_count or 0 for message in messages)


async def test_nothing_is_brought_along_into_what_is_there_or_is_not_the_users_own(
    ours: MemoryManager, theirs: MemoryManager, session_id: UUID
) -> None:
    assert not await ours.seed_session(session_id, [])
    assert await ours.list_sessions() == []
    await ours.begin_turn(session_id, said("Mine"))
    assert not await ours.seed_session(session_id, [said("x")])
    with pytest.raises(NotFoundError):
        await theirs.seed_session(session_id, [said("x")])
    await ours.delete_session(session_id)
    with pytest.raises(DeletedError):
        await ours.seed_session(session_id, [said("x")])
    await ours.restore_session(session_id)
    assert [message.content for message in await ours.load_session(session_id)] == ["Mine"]


async def test_a_session_is_named_when_it_is_made(ours: MemoryManager, theirs: MemoryManager) -> None:
    session_id = await ours.resolve_session_id("Trip to Rome")
    await ours.begin_turn(session_id, said("Hello"), name="Trip to Rome")
    assert (await ours.get_session(session_id)).name == "Trip to Rome"
    await ours.begin_turn(session_id, said("Again"), name="Something else")
    assert (await ours.get_session(session_id)).name == "Trip to Rome"
    await theirs.begin_turn(other := uuid4(), said("Hello"), name="Trip to Rome")
    assert (await theirs.get_session(other)).name == "Trip to Rome", "names are the user's own"


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
async def test_a_name_that_a_session_cannot_have_is_left_out(ours: MemoryManager, session_id: UUID, name: str) -> None:
    await ours.create_session(name="Trip to Rome")
    turn = await ours.begin_turn(session_id, said("Hello"), name=name)
    assert turn.is_new
    assert (await ours.get_session(session_id)).name is None
    assert await ours.seed_session(other := uuid4(), [said("Hello")], name=name)
    assert (await ours.get_session(other)).name is None


async def test_of_many_that_want_a_name_at_once_one_gets_it(ours: MemoryManager) -> None:
    await asyncio.gather(*(ours.begin_turn(uuid4(), said("Hello"), name="Same") for _ in range(6)))
    assert sorted(str(session.name) for session in await ours.list_sessions()) == [*["None"] * 5, "Same"]


async def test_what_a_client_calls_a_session_means_one(rem: Rem, ours: MemoryManager, theirs: MemoryManager) -> None:
    session = await ours.create_session(name="Trip to Rome")
    for text in ("Trip to Rome", "trip_to_rome", " TripToRome ", str(session.id), f"{{{session.id}}}"):
        assert await ours.resolve_session_id(text) == session.id, text
    derived = resolve_session_id("Trip to Rome", theirs.scope)
    assert await theirs.resolve_session_id("Trip to Rome") == derived != session.id
    await ours.rename_session(session.id, "Trip to Milan")
    assert await ours.resolve_session_id("Trip to Rome") == resolve_session_id("Trip to Rome", ours.scope)
    assert await ours.resolve_session_id("trip-to-milan") == session.id
    await ours.delete_session(session.id)
    assert await ours.resolve_session_id("trip-to-milan") == resolve_session_id("trip-to-milan", ours.scope)
    for odd in ("", "🎉", "x" * 100_000, "' OR true --"):
        assert await ours.resolve_session_id(odd) == resolve_session_id(odd, ours.scope)
    for bad in ("a\0b", "\ud800"):
        with pytest.raises(InvalidInputError):
            await ours.resolve_session_id(bad)
    nobody = rem.memory(AgentContext().scope)
    assert await nobody.resolve_session_id("x") == resolve_session_id("x", nobody.scope)


async def test_requests_at_once_on_one_session_are_all_stored_in_order(ours: MemoryManager, session_id: UUID) -> None:
    async def turn(number: int) -> None:
        begun = await ours.begin_turn(session_id, said(f"question {number}"))
        stored = await ours.append(session_id, [called("t", f"c{number}", {}), answered(f"answer {number}")])
        assert begun.message_index < stored[0].message_index == stored[1].message_index - 1

    await asyncio.gather(*(turn(number) for number in range(20)))
    messages = await ours.load_session(session_id)
    assert [message.message_index for message in messages] == list(range(60))
    assert {message.content for message in messages if message.content} == {
        f"{word} {number}" for word in ("question", "answer") for number in range(20)
    }
    times = [message.created_at for message in messages]
    assert times == sorted(times)
    assert (await ours.get_session(session_id)).message_count == 60


async def test_whoever_makes_a_session_first_the_others_go_on_in_it(ours: MemoryManager) -> None:
    """A new row meets another in any of the indexes first, the one of the keys too: each pair is a try at that."""
    for session_id in (uuid4() for _ in range(60)):
        turns = await asyncio.gather(*(ours.begin_turn(session_id, said(f"question {number}")) for number in range(4)))
        assert sorted(turn.message_index for turn in turns) == [0, 1, 2, 3]
        assert [turn.is_new for turn in turns].count(True) == 1


async def test_a_session_with_the_name_of_anothers_id_is_told_of(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await ours.begin_turn(other := uuid4(), said("one"))
    await sql.execute("UPDATE sessions SET name = $1 WHERE id = $2", str(session_id), other)
    async with asyncio.timeout(5):
        with pytest.raises(ConflictError, match=str(session_id)):
            await ours.begin_turn(session_id, said("two"))


async def test_a_message_waits_for_no_reader_of_the_session(
    ours: MemoryManager, session_id: UUID, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Foreign keys hold the session by KEY SHARE while a message is written; giving indexes must not wait for them."""
    await ours.append(session_id, [said("one")], creates=True)
    async with sql.transaction():
        await sql.fetch("SELECT FROM sessions WHERE id = $1 FOR KEY SHARE", session_id)
        async with asyncio.timeout(5):
            await ours.begin_turn(session_id, said("two"))


@pytest.mark.parametrize("content", ["", "  \n", "a\0b", "\ud800"])
def test_what_cannot_be_stored_is_refused_before(content: str) -> None:
    with pytest.raises(InvalidInputError):
        said(content)


async def test_an_answer_is_kept_even_with_characters_that_cannot(ours: MemoryManager, session_id: UUID) -> None:
    deep: dict[str, object] = {}
    for _ in range(300):
        deep = {"deeper": deep}
    call = called("t\0", "c\ud800", {"a": "\0", "big": 2**100, "none": float("nan"), "deep": deep})
    await ours.append(session_id, [said("?"), answered("a\0b\ud800c 🎉"), call], creates=True)
    _, answer, stored = await ours.load_session(session_id)
    assert answer.content.replace("\ufffd", "?") == "a?b?c 🎉"
    arguments = stored.tool_calls[0]["arguments"]
    assert (arguments["a"], arguments["big"], arguments["none"]) == ("\ufffd", str(2**100), None)


async def test_a_huge_message_is_stored_and_given(ours: MemoryManager, session_id: UUID) -> None:
    huge = "A pasted book. " * 200_000
    await ours.begin_turn(session_id, said(huge))
    await ours.append(session_id, [answered("Read.")])
    turn = await ours.begin_turn(session_id, said("What was it?"))
    assert [line.content for line in turn.history] == [huge, "Read."]
    assert turn.history[0].tokens > 500_000
    assert (await ours.load_session(session_id))[0].content == huge


async def test_indexes_are_never_used_again(ours: MemoryManager, session_id: UUID) -> None:
    await talk(ours, session_id, 3)
    assert await ours.clear_session(session_id) == 6
    assert (await ours.get_session(session_id)).message_count == 0
    turn = await ours.begin_turn(session_id, said("Anew"))
    assert (turn.message_index, turn.history) == (6, [])
    assert [message.message_index for message in await ours.load_session(session_id)] == [6]


async def test_messages_that_the_store_wrote_belong_to_the_conversation(
    rem: Rem, ours: MemoryManager, session_id: UUID
) -> None:
    await ours.create_session("You are kind.", session_id=session_id)
    store = rem.store(ours.scope)
    await store.upsert(Message(session_id=session_id, message_index=70, role=Role.USER, content="From a YAML file"))
    turn = await ours.begin_turn(session_id, NewMessage(role=Role.USER, content="Next"))
    assert turn.message_index == 71
    assert [(line.role, line.content) for line in turn.history] == [
        ("system", "You are kind."),
        ("user", "From a YAML file"),
    ]
    assert turn.history[1].tokens == 4 + 4
