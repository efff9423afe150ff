"""Recall: what was said before, found by meaning and by words, and brought into a question."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.errors import InvalidInputError
from rem.memory.manager import MemoryManager
from rem.memory.tokens import count_tokens
from rem.settings import Settings
from tests.memory.sample_messages import answered, called, said


async def remember_things(memory: MemoryManager) -> UUID:
    session_id = uuid4()
    await memory.append(session_id, [said("My bicycle is a red Peugeot."), answered("A fine bicycle!")], creates=True)
    await memory.append(uuid4(), [said("Pasta needs ten minutes."), answered("And salt.")], creates=True)
    return session_id


async def test_messages_are_found_in_all_sessions_or_in_one(ours: MemoryManager, theirs: MemoryManager) -> None:
    await remember_things(ours)
    other = uuid4()
    await ours.append(other, [said("The bicycle has a flat tyre.")], creates=True)
    await remember_things(theirs)
    found = await ours.search_similar("bicycle")
    assert {message.content[:14] for message in found} == {"My bicycle is ", "A fine bicycle", "The bicycle ha"}
    assert [message.content for message in await ours.search_similar("bicycle", session_id=other)] == [
        "The bicycle has a flat tyre."
    ]
    assert len(await ours.search_similar("bicycle", top_k=1)) == 1
    assert await ours.search_similar("bicycle", session_id=uuid4()) == []
    for wrong in ({"top_k": 0}, {"min_similarity": 2.0}):
        with pytest.raises(InvalidInputError):
            await ours.search_similar("bicycle", **wrong)
    with pytest.raises(InvalidInputError, match="words"):
        await ours.search_similar("  ")


async def test_the_context_stays_within_its_budget(ours: MemoryManager) -> None:
    for number in range(20):
        await ours.append(uuid4(), [said(f"The bicycle number {number} is red.")], creates=True)
    context = await ours.get_relevant_context("bicycle", max_tokens=50)
    assert 3 <= len(context) <= 7
    assert sum(count_tokens(message.content) for message in context) <= 50
    assert await ours.get_relevant_context("bicycle", max_tokens=1) == []


async def test_the_question_is_told_with_its_context_and_stored_without(ours: MemoryManager, session_id: UUID) -> None:
    long = "My bicycle is a red Peugeot. " + "I ride it daily. " * 20
    await ours.append(uuid4(), [said(long)], creates=True)
    await ours.append(uuid4(), [said("Pasta needs ten minutes.")], creates=True)
    question = "Which bicycle do I have?"
    turn = await ours.begin_turn(session_id, said(question))
    assert (
        await ours.recall(question, turn=turn)
        == f"""RELEVANT CONTEXT FROM PAST CONVERSATIONS:
---
[USER]: {long[:200]}...
---

Now answer the current user question using the context above if relevant.

USER QUESTION: {question}"""
    )
    assert [message.content for message in await ours.load_session(session_id)] == [question]


async def test_what_the_model_is_given_anyway_is_not_repeated(ours: MemoryManager) -> None:
    session_id = await remember_things(ours)
    turn = await ours.begin_turn(session_id, said("Which bicycle do I have?"))
    assert len(turn.history) == 2
    assert await ours.recall("Which bicycle do I have?", turn=turn) is None
    short = await ours.begin_turn(session_id, said("Tell me of the bicycle"), max_tokens=20)
    assert "red Peugeot" in str(await ours.recall("Tell me of the bicycle", turn=short))
    assert "red Peugeot" in str(await ours.recall("Tell me of the bicycle"))
    assert await ours.recall("Tell me of the bicycle", session_id) is None, "the history that it has by now"
    assert await ours.recall("Tell me of the pasta", session_id), "from another session"
    assert await ours.recall("pasta", within=session_id) is None
    assert "red Peugeot" in str(await ours.recall("Tell me of the bicycle", uuid4()))


async def test_nothing_that_fits_means_no_context(ours: MemoryManager) -> None:
    assert await ours.recall("anything at all") is None
    await remember_things(ours)
    assert await ours.recall("quantum chromodynamics") is None


async def test_notes_of_tools_do_not_crowd_out_what_was_said(ours: MemoryManager, session_id: UUID) -> None:
    note = called("register_metadata", "n", {"summary": "prefers tea"}, '{"summary": "prefers tea"}')
    await ours.append(session_id, [said("I drink tea."), *[note] * 5], creates=True)
    assert [message.content for message in await ours.search_similar("tea")] == ["I drink tea."]


async def test_messages_are_found_by_meaning(settings: Settings) -> None:
    async with Rem.open(settings) as rem:
        memory = rem.memory("alice@example.com")
        await remember_things(memory)
        found = await memory.search_similar("What do I ride to work?", top_k=2, min_similarity=0.05)
        assert any("bicycle" in message.content for message in found)
