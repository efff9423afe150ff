"""Recall: earlier messages are found and put in front of a question."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.errors import InvalidInputError
from rem.sessions.manager import MemoryManager
from rem.sessions.tokens import count_tokens
from rem.settings import RagSettings, Settings
from tests.sessions.sample_messages import assistant_message, tool_call, user_message


async def store_bicycle_messages(memory: MemoryManager) -> UUID:
    session_id = uuid4()
    await memory.append(
        session_id,
        [user_message("My bicycle is a red Peugeot."), assistant_message("A fine bicycle!")],
        create_session=True,
    )
    await memory.append(
        uuid4(), [user_message("Pasta needs ten minutes."), assistant_message("And salt.")], create_session=True
    )
    return session_id


async def test_search_covers_all_sessions_or_one(alice: MemoryManager, bob: MemoryManager) -> None:
    await store_bicycle_messages(alice)
    other = uuid4()
    await alice.append(other, [user_message("The bicycle has a flat tyre.")], create_session=True)
    await store_bicycle_messages(bob)
    messages = await alice.search_similar("bicycle")
    assert {message.content[:14] for message in messages} == {"My bicycle is ", "A fine bicycle", "The bicycle ha"}
    assert [message.content for message in await alice.search_similar("bicycle", session_id=other)] == [
        "The bicycle has a flat tyre."
    ]
    assert len(await alice.search_similar("bicycle", top_k=1)) == 1
    assert await alice.search_similar("bicycle", session_id=uuid4()) == []
    for wrong in ({"top_k": 0}, {"min_similarity": 2.0}):
        with pytest.raises(InvalidInputError):
            await alice.search_similar("bicycle", **wrong)
    with pytest.raises(InvalidInputError, match="words"):
        await alice.search_similar("  ")


async def test_context_stays_within_its_budget(alice: MemoryManager) -> None:
    for number in range(20):
        await alice.append(uuid4(), [user_message(f"The bicycle number {number} is red.")], create_session=True)
    context = await alice.get_relevant_context("bicycle", max_tokens=50)
    assert 3 <= len(context) <= 7
    assert sum(count_tokens(message.content) for message in context) <= 50
    assert await alice.get_relevant_context("bicycle", max_tokens=1) == []


async def test_question_is_stored_without_its_context(alice: MemoryManager, session_id: UUID) -> None:
    long = "My bicycle is a red Peugeot. " + "I ride it daily. " * 20
    await alice.append(uuid4(), [user_message(long)], create_session=True)
    await alice.append(uuid4(), [user_message("Pasta needs ten minutes.")], create_session=True)
    question = "Which bicycle do I have?"
    turn = await alice.begin_turn(session_id, user_message(question))
    assert (
        await alice.recall(question, turn=turn)
        == f"""RELEVANT CONTEXT FROM PAST CONVERSATIONS:
---
[USER]: {long[:200]}... ({datetime.now(UTC):%-d %B %Y})
---

Now answer the current user question using the context above if relevant.

USER QUESTION: {question}"""
    )
    assert [message.content for message in await alice.load_session(session_id)] == [question]


async def test_recall_does_not_repeat_the_history(alice: MemoryManager) -> None:
    session_id = await store_bicycle_messages(alice)
    turn = await alice.begin_turn(session_id, user_message("Which bicycle do I have?"))
    assert len(turn.history) == 2
    assert await alice.recall("Which bicycle do I have?", turn=turn) is None
    short = await alice.begin_turn(session_id, user_message("Tell me of the bicycle"), max_tokens=20)
    assert "red Peugeot" in str(await alice.recall("Tell me of the bicycle", turn=short))
    assert "red Peugeot" in str(await alice.recall("Tell me of the bicycle"))
    assert await alice.recall("Tell me of the bicycle", session_id) is None, "the history that it has by now"
    assert await alice.recall("Tell me of the pasta", session_id), "from another session"
    assert await alice.recall("pasta", within=session_id) is None
    assert "red Peugeot" in str(await alice.recall("Tell me of the bicycle", uuid4()))


async def test_no_matching_message_means_no_context(alice: MemoryManager) -> None:
    assert await alice.recall("anything at all") is None
    await store_bicycle_messages(alice)
    assert await alice.recall("quantum chromodynamics") is None


async def test_tool_notes_do_not_crowd_out_messages(alice: MemoryManager, session_id: UUID) -> None:
    note = tool_call("register_metadata", "n", {"summary": "prefers tea"}, '{"summary": "prefers tea"}')
    await alice.append(session_id, [user_message("I drink tea."), *[note] * 5], create_session=True)
    assert [message.content for message in await alice.search_similar("tea")] == ["I drink tea."]


async def test_given_minimum_similarity_is_strict(settings: Settings) -> None:
    async with Rem.open(settings) as rem:
        memory = rem.for_user("alice@example.com").sessions
        await store_bicycle_messages(memory)
        texts = [message.content for message in await memory.search_similar("bicycle")]
        assert set(texts) == {"My bicycle is a red Peugeot.", "A fine bicycle!"}, "both have the word"
        strict = await memory.search_similar("bicycle", top_k=1, min_similarity=0.7)
        assert [message.content for message in strict] == ["A fine bicycle!"]
        assert await memory.search_similar("bicycle", min_similarity=0.99) == []
        assert await memory.recall("bicycle", min_similarity=0.99) is None
    rag = RagSettings(min_similarity=0.99)
    with_threshold = settings.model_copy(update={"memory": settings.memory.model_copy(update={"rag": rag})})
    async with Rem.open(with_threshold) as rem:
        assert await rem.for_user("alice@example.com").sessions.recall("bicycle") is None


async def test_messages_are_found_by_meaning(settings: Settings) -> None:
    async with Rem.open(settings) as rem:
        memory = rem.for_user("alice@example.com").sessions
        await store_bicycle_messages(memory)
        messages = await memory.search_similar("What do I ride to work?", top_k=2, min_similarity=0.05)
        assert any("bicycle" in message.content for message in messages)
