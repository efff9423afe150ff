"""A search does not return the question itself or messages that the model already has, but all other messages."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.context import AgentContext
from rem.models import Resource
from rem.models.message import Role
from rem.sessions.message import NewMessage
from rem.tools.env import ToolEnv, TurnWindow
from rem.tools.search import fuzzy, search_rem

_QUESTION = "How fast is the harbour ferry?"


async def store_message(rem: Rem, session: UUID, role: Role, content: str) -> None:
    tool = {"tool_call_id": "c", "tool_name": "register_metadata"} if role is Role.TOOL else {}
    await rem.for_user("alice").sessions.begin_turn(session, NewMessage(role=role, content=content, **tool))
    # A search of many new rows leaves some of them out if the machine is busy.
    await rem.for_user("alice").index()


def make_env(rem: Rem, session: UUID, *indexes: int, question: str = _QUESTION) -> ToolEnv:
    """The environment of a model that already has these messages of the session."""
    window = TurnWindow(question, frozenset((session, index) for index in indexes))
    return ToolEnv(AgentContext(user_id="alice", session_id=str(session)), rem, window=window)


@pytest.fixture
async def repeated_session(rem: Rem) -> UUID:
    """Some facts, and a user who asked for them in twelve conversations and asks now in another."""
    store = rem.for_user("alice").store
    for number in range(8):
        await store.upsert(Resource(name=f"Ferry fact {number}", content=f"The harbour ferry is fast: fact {number}."))
    for _ in range(12):
        session = uuid4()
        await store_message(rem, session, Role.USER, _QUESTION)
        await store_message(rem, session, Role.TOOL, '{"confidence": 0.5, "sources": ["harbour-ferry-fast"]}')
    now = uuid4()
    await store_message(rem, now, Role.USER, f"{_QUESTION} Tell me!")
    return now


@pytest.mark.parametrize("query", [_QUESTION, f'SEARCH "{_QUESTION}" LIMIT 10'])
async def test_search_returns_facts_and_not_the_question(rem: Rem, repeated_session: UUID, query: str) -> None:
    env = make_env(rem, repeated_session, 0, question=f"{_QUESTION} Tell me!")
    mode = "rem-dialect" if query.startswith("SEARCH") else "natural-language"
    result = await search_rem(env, query, mode)  # type: ignore[arg-type]
    assert sum(row["table"] == "resources" for row in result["results"]) == 8
    texts = [row["text"] for row in result["results"]]
    assert _QUESTION not in texts
    assert f"{_QUESTION} Tell me!" not in texts


async def test_only_messages_of_the_window_are_hidden(rem: Rem) -> None:
    session = uuid4()
    for text in ("My boat is called Albatross.", "My boat is green.", "My boat is old.", "Tell me of my boat!"):
        await store_message(rem, session, Role.USER, text)
    env = make_env(rem, session, 2, 3, question="Tell me of my boat!")
    for query in ('SEARCH "my boat"', 'SEARCH "my boat" FROM messages', 'FUZZY "my boat is" THRESHOLD 0.1'):
        rows = (await search_rem(env, query))["results"]
        assert {row["text"] for row in rows} == {"My boat is called Albatross.", "My boat is green."}, query
        assert {row["session"] for row in rows} == {"current"}
    assert len((await fuzzy(env, "my boat is"))["results"]) == 2


async def test_a_key_is_looked_up_even_if_the_model_has_the_message(rem: Rem) -> None:
    session = uuid4()
    await store_message(rem, session, Role.USER, "My boat is green.")
    (row,) = (await search_rem(make_env(rem, session, 0), f"LOOKUP session-{session}-msg-0"))["results"]
    assert row["text"] == "My boat is green."


async def test_hidden_messages_are_replaced_by_other_rows(rem: Rem) -> None:
    session, other = uuid4(), uuid4()
    for number in range(30):
        await store_message(rem, session, Role.USER, f"The harbour ferry makes {number} knots.")
    for number in range(3):
        await store_message(rem, other, Role.USER, f"The ferry to the island {number} is slow.")
    result = await search_rem(make_env(rem, session, *range(30)), 'SEARCH "harbour ferry knots" LIMIT 3')
    assert len(result["results"]) == 3
    assert all("slow" in row["text"] for row in result["results"])


async def test_tool_messages_are_not_searched(rem: Rem, repeated_session: UUID) -> None:
    result = await rem.for_user("alice").query('SEARCH "confidence sources harbour ferry fast" FROM messages LIMIT 30')
    assert {row["record"]["role"] for row in result.list_rows()} == {"user"}
    assert (await rem.check_index()).unindexed_rows == 0


async def test_statements_of_the_user_come_before_notes_that_fit_less(rem: Rem, repeated_session: UUID) -> None:
    other = uuid4()
    for number in range(9):
        await store_message(rem, other, Role.USER, f"I heard the harbour ferry makes {number + 30} knots.")
    result = (await search_rem(make_env(rem, repeated_session, 0), "harbour ferry knots", "natural-language"))[
        "results"
    ]
    assert [row["table"] for row in result].count("messages") == 9


async def test_answers_of_assistants_come_last_and_are_at_most_three(rem: Rem, repeated_session: UUID) -> None:
    other = uuid4()
    for number in range(9):
        await store_message(rem, other, Role.ASSISTANT, f"The harbour ferry makes {number + 30} knots.")
    result = (await search_rem(make_env(rem, repeated_session, 0), "harbour ferry knots", "natural-language"))[
        "results"
    ]
    assert len(result) == 10
    assert [row.get("said_by") for row in result] == [None] * 7 + ["assistant"] * 3


@pytest.mark.parametrize(
    ("query", "mode"), [('SEARCH "where do I live"', "rem-dialect"), ("Where do I live?", "natural-language")]
)
async def test_newer_statement_comes_before_the_one_that_it_replaces(rem: Rem, query: str, mode: str) -> None:
    old, new = uuid4(), uuid4()
    await store_message(rem, old, Role.USER, "I live in Svendborg.")
    await store_message(rem, new, Role.USER, "I live in Aarhus now, no longer in Svendborg.")
    rows = (await search_rem(make_env(rem, uuid4(), question="Where do I live?"), query, mode))["results"]  # type: ignore[arg-type]
    assert [row["key"] for row in rows] == [f"session-{new}-msg-0", f"session-{old}-msg-0"]
    assert "superseded_by" not in rows[0]
    assert rows[1]["superseded_by"] == rows[0]["key"]
    assert rows[1]["superseded_at"]
