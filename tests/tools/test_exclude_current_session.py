"""A search does not return the question itself or messages of the current session."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.context import AgentContext
from rem.memory.message import NewMessage
from rem.models import Resource
from rem.models.message import Role
from rem.tools.env import ToolEnv
from rem.tools.search import search_rem

_QUESTION = "How fast is the harbour ferry?"


async def store_message(rem: Rem, session: UUID, role: Role, content: str) -> None:
    tool = {"tool_call_id": "c", "tool_name": "register_metadata"} if role is Role.TOOL else {}
    await rem.memory("alice").begin_turn(session, NewMessage(role=role, content=content, **tool))


@pytest.fixture
async def repeated_session(rem: Rem) -> UUID:
    """Some facts, and a user who asked for them in twelve conversations and asks now in another."""
    store = rem.store("alice")
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
    env = ToolEnv(AgentContext(user_id="alice", session_id=str(repeated_session)), rem)
    mode = "rem-dialect" if query.startswith("SEARCH") else "natural-language"
    result = await search_rem(env, query, mode)  # type: ignore[arg-type]
    assert sum(row["table"] == "resources" for row in result["results"]) == 8
    contents = [row["record"].get("content", "") for row in result["results"]]
    assert _QUESTION not in contents
    assert f"{_QUESTION} Tell me!" not in contents


async def test_tool_messages_are_not_searched(rem: Rem, repeated_session: UUID) -> None:
    result = await rem.query('SEARCH "confidence sources harbour ferry fast" FROM messages LIMIT 30', user="alice")
    assert {row["record"]["role"] for row in result.results} == {"user"}
    assert (await rem.check_index()).unindexed_rows == 0


async def test_messages_of_other_sessions_are_at_most_half_of_the_rows(rem: Rem, repeated_session: UUID) -> None:
    other = uuid4()
    for number in range(9):
        await store_message(rem, other, Role.USER, f"I heard the harbour ferry makes {number + 30} knots.")
    env = ToolEnv(AgentContext(user_id="alice", session_id=str(repeated_session)), rem)
    result = (await search_rem(env, "harbour ferry knots", "natural-language"))["results"]
    tables = [row["table"] for row in result]
    assert len(result) == 10
    assert tables.count("messages") == 5
