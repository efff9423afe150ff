"""The kind of a message decides where SEARCH finds it, and whose context it is."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from rem.agents.chat import AgentRequest
from rem.app import Rem
from rem.context import AgentContext
from rem.models import MessageKind, Role
from rem.sessions.message import NewMessage
from rem.tools.env import TurnWindow
from rem.tools.search import search_rem
from tests.tools.tool_env import env_for

_USER = "alice"


def user_says(*texts: str) -> list[NewMessage]:
    return [NewMessage(role=Role.USER, content=text) for text in texts]


async def search(rem: Rem, query: str) -> list[str]:
    return [row.record["content"] for row in (await rem.for_user(_USER).query(query)).hits]


async def test_search_over_everything_ranks_questions_and_commands_below_statements(rem: Rem) -> None:
    fact, question = "Yusuf is allergic to peanuts.", "What is Yusuf allergic to?"
    await rem.for_user(_USER).sessions.append(
        uuid4(), user_says(question, fact, "tell me about Yusuf"), create_session=True
    )
    found = await search(rem, 'SEARCH "What is Yusuf allergic to?"')
    assert found == [fact, "tell me about Yusuf", question]
    assert set(await search(rem, 'SEARCH "Yusuf" FROM messages')) == {fact, question, "tell me about Yusuf"}


_NOTES = ("The boat is in the yard.", "We eat at seven.", "Ines plays chess on Monday.", "My bike is red.")


@pytest.mark.parametrize("kind", [kind for kind in MessageKind if kind is not MessageKind.ANSWER])
async def test_message_of_any_kind_is_found(rem: Rem, kind: MessageKind) -> None:
    fact = NewMessage(role=Role.USER, content="I'm diabetic.", kind=kind)
    await rem.for_user(_USER).sessions.append(uuid4(), [*user_says(*_NOTES), fact], create_session=True)
    for mode in ("hybrid", "vector", "text"):
        assert "I'm diabetic." in await search(rem, f'SEARCH "diabetic" MODE {mode}')
    tool_rows = (await search_rem(env_for(rem, _USER), 'SEARCH "I\'m diabetic."'))["results"]
    assert "I'm diabetic." in [row["text"] for row in tool_rows]


async def test_bare_fact_that_was_taken_for_small_talk_comes_first_if_it_is_asked_for(rem: Rem) -> None:
    fact = NewMessage(role=Role.USER, content="I'm diabetic.", kind=MessageKind.SMALL_TALK)
    await rem.for_user(_USER).sessions.append(uuid4(), [*user_says(*_NOTES), fact], create_session=True)
    assert (await search(rem, 'SEARCH "Am I diabetic?"'))[0] == "I'm diabetic."
    assert (await rem.for_user(_USER).ask("Am I diabetic?")).hits[0].record["content"] == "I'm diabetic."


async def test_many_questions_leave_a_statement_its_place(rem: Rem) -> None:
    asked = [f"Where did I put the blue passport on day {day}?" for day in range(600)]
    await rem.for_user(_USER).sessions.append(
        uuid4(), user_says(*asked, "The passport is in the desk."), create_session=True
    )
    await rem.for_user(_USER).index()
    assert (await search(rem, 'SEARCH "Where did I put the blue passport?"'))[0] == "The passport is in the desk."


async def test_repeated_question_does_not_make_an_answer_clear(rem: Rem) -> None:
    question = "What is the number of my locker?"
    await rem.for_user(_USER).sessions.append(
        uuid4(), user_says(*_NOTES, *_NOTES[:2], question, question), create_session=True
    )
    assert (await rem.for_user(_USER).ask(question)).status != "answered"


async def test_question_of_this_turn_is_not_its_own_answer(rem: Rem) -> None:
    memory = rem.for_user(_USER).sessions
    session_id = uuid4()
    await memory.append(session_id, user_says("My locker is 214."), create_session=True)
    turn = await memory.begin_turn(session_id, NewMessage(role=Role.USER, content="Which locker is mine?"))
    window = TurnWindow("Which locker is mine?", frozenset({(turn.session_id, turn.message_index)}))
    env = replace(env_for(rem, _USER), window=window)
    rows = (await search_rem(env, 'SEARCH "Which locker is mine?"'))["results"]
    assert [row["text"] for row in rows] == ["My locker is 214."]


async def test_hits_carry_the_time_they_happened(rem: Rem) -> None:
    stored = await rem.for_user(_USER).sessions.append(uuid4(), user_says("Yusuf likes tea."), create_session=True)
    (row,) = (await rem.for_user(_USER).query('SEARCH "tea"')).hits
    assert row.happened_at == row.entity.created_at
    assert row.key == stored[0].key


@pytest.mark.parametrize(("text", "kind"), [("Where is Tom?", "question"), ("Tom is in Rome.", "statement")])
async def test_stored_message_has_its_kind(rem: Rem, text: str, kind: str) -> None:
    session_id = uuid4()
    await rem.for_user(_USER).sessions.append(session_id, user_says(text), create_session=True)
    (message,) = await rem.for_user(_USER).sessions.load_session(session_id)
    assert message.kind == MessageKind(kind)


async def test_recall_quotes_statements(rem: Rem) -> None:
    memory = rem.for_user(_USER).sessions
    await memory.append(
        uuid4(), user_says("Where is my passport?", "My passport is in the blue box."), create_session=True
    )
    prompt = await memory.recall("Where is my passport?")
    assert prompt is not None
    assert "[USER]: My passport is in the blue box." in prompt


async def test_answer_of_the_local_model_is_neither_found_nor_context(rem: Rem) -> None:
    session_id = str(uuid4())
    for text in (
        "Our boiler makes a zeppelin noise.",
        "What noise does the boiler make?",
        "The cat is called Miso.",
    ):
        context = AgentContext(user_id=_USER, session_id=session_id)
        await rem.agents.run(AgentRequest(context=context, text=text))
    found = (await rem.for_user(_USER).query('SEARCH "zeppelin" FROM messages MODE text')).hits
    assert found[0].record["content"] == "Our boiler makes a zeppelin noise."
    assert {row.record["role"] for row in found} == {"user"}
    assert await search(rem, 'SEARCH "configured" FROM messages MODE text') == []


async def test_topic_for_the_local_model_is_a_question(rem: Rem) -> None:
    assert await get_stored_kind(rem, "boiler noise") is MessageKind.QUESTION
    assert await get_stored_kind(rem, "thanks!") is MessageKind.SMALL_TALK


async def get_stored_kind(rem: Rem, text: str) -> MessageKind | None:
    """Return the kind of a message that is sent to `rem:local`."""
    session_id = uuid4()
    context = AgentContext(user_id=_USER, session_id=str(session_id))
    await rem.agents.run(AgentRequest(context=context, text=text))
    return (await rem.for_user(_USER).sessions.load_session(session_id))[0].kind
