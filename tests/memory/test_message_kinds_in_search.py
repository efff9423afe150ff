"""The kind of a message decides where SEARCH finds it, and whose context it is."""

from __future__ import annotations

from uuid import uuid4

import pytest

from rem.agents.chat import AgentRequest
from rem.agents.service import Agents
from rem.app import Rem
from rem.context import AgentContext
from rem.memory.message import NewMessage
from rem.models import MessageKind, Role

_USER = "alice"


def user_says(*texts: str) -> list[NewMessage]:
    return [NewMessage(role=Role.USER, content=text) for text in texts]


async def search(rem: Rem, query: str) -> list[str]:
    return [row["record"]["content"] for row in (await rem.query(query, user=_USER)).results]


async def test_search_over_everything_ranks_statements_only(rem: Rem) -> None:
    fact, question = "Yusuf is allergic to peanuts.", "What is Yusuf allergic to?"
    await rem.memory(_USER).append(uuid4(), user_says(question, fact, "tell me about Yusuf"), create_session=True)
    assert await search(rem, 'SEARCH "What is Yusuf allergic to?"') == [fact]
    assert set(await search(rem, 'SEARCH "Yusuf" FROM messages')) == {fact, question, "tell me about Yusuf"}


async def test_hits_carry_the_time_they_happened(rem: Rem) -> None:
    stored = await rem.memory(_USER).append(uuid4(), user_says("Yusuf likes tea."), create_session=True)
    (row,) = (await rem.query('SEARCH "tea"', user=_USER)).results
    assert row["happened_at"] == row["record"]["created_at"]
    assert row["key"] == stored[0].key


@pytest.mark.parametrize(("text", "kind"), [("Where is Tom?", "question"), ("Tom is in Rome.", "statement")])
async def test_stored_message_has_its_kind(rem: Rem, text: str, kind: str) -> None:
    session_id = uuid4()
    await rem.memory(_USER).append(session_id, user_says(text), create_session=True)
    (message,) = await rem.memory(_USER).load_session(session_id)
    assert message.kind == MessageKind(kind)


async def test_recall_quotes_no_earlier_questions(rem: Rem) -> None:
    memory = rem.memory(_USER)
    await memory.append(
        uuid4(), user_says("Where is my passport?", "My passport is in the blue box."), create_session=True
    )
    prompt = await memory.recall("Where is my passport?")
    assert prompt is not None
    assert "[USER]: My passport is in the blue box." in prompt
    assert "[USER]: Where is my passport?" not in prompt


async def test_answer_of_the_local_model_is_neither_found_nor_context(rem: Rem) -> None:
    agents, session_id = Agents(rem, rem.settings), str(uuid4())
    try:
        for text in (
            "Our boiler makes a zeppelin noise.",
            "What noise does the boiler make?",
            "The cat is called Miso.",
        ):
            context = AgentContext(user_id=_USER, session_id=session_id)
            await agents.run(AgentRequest(context=context, text=text))
    finally:
        await agents.close()
    found = (await rem.query('SEARCH "zeppelin" FROM messages MODE text', user=_USER)).results
    assert found[0]["record"]["content"] == "Our boiler makes a zeppelin noise."
    assert {row["record"]["role"] for row in found} == {"user"}
    assert await search(rem, 'SEARCH "configured" FROM messages MODE text') == []


async def test_topic_for_the_local_model_is_a_question(rem: Rem) -> None:
    assert await get_stored_kind(rem, "boiler noise") is MessageKind.QUESTION
    assert await get_stored_kind(rem, "thanks!") is MessageKind.SMALL_TALK


async def get_stored_kind(rem: Rem, text: str) -> MessageKind | None:
    """Return the kind of a message that is sent to `rem:local`."""
    agents, session_id = Agents(rem, rem.settings), uuid4()
    try:
        context = AgentContext(user_id=_USER, session_id=str(session_id))
        await agents.run(AgentRequest(context=context, text=text))
    finally:
        await agents.close()
    return (await rem.memory(_USER).load_session(session_id))[0].kind
