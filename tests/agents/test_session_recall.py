"""An agent finds what was said in the same session, beyond what the model still sees of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from rem.agents.model_registry import LOCAL_MODEL
from rem.app import Rem
from rem.settings import Settings
from tests.agents.running_agents import agents_with, make_request
from tests.scripted_model import Call, ScriptedModel, Step, has_result, last_text

_FACT = "My code word for the boat is heliotrope-91."
_QUESTION = "What is my code word for the boat?"
_CHATTER = "We talked at length about the garden, the weather and what to cook, and then about it once again. " * 12


def _search(query: str) -> Any:
    def script(body: dict[str, Any]) -> list[Step]:
        if last_text(body) != _QUESTION:
            return ["All right."]
        return ["Done."] if has_result(body) else [Call("search_rem", {"query": query})]

    return script


async def test_memory_answers_from_its_own_conversation(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    session = uuid4()
    async with agents_with(settings, model, llm={"default_model": None}) as agents:
        await agents.run(make_request(_FACT, session))
        for _ in range(2):
            answer = await agents.run(make_request(_QUESTION, session))
    assert answer.model == LOCAL_MODEL
    assert answer.text.startswith(_FACT.rstrip("."))
    assert _QUESTION not in answer.text


@pytest.mark.parametrize(
    "query", ['SEARCH "code word boat"', 'SEARCH "code word boat" FROM messages', 'FUZZY "my code word for the boat"']
)
async def test_fact_that_left_the_window_is_found_by_the_tool(
    rem: Rem, settings: Settings, model: ScriptedModel, query: str
) -> None:
    session = uuid4()
    model.script = _search(query)
    async with agents_with(settings, model) as agents:
        await agents.run(make_request(_FACT, session))
        for number in range(20):
            await agents.run(make_request(f"{number}. {_CHATTER}", session))
        answer = await agents.run(make_request(_QUESTION, session))
    assert not any(_FACT in str(message["content"]) for message in model.requests[-2]["messages"])
    rows = answer.tool_calls[0]["result"]["results"]
    assert rows[0]["key"] == f"session-{session}-msg-0"
    assert rows[0]["text"] == _FACT
    assert _QUESTION not in [row.get("text") for row in rows]
    # Of the messages of the session, only those that the model does not see any more are returned.
    seen = [str(message["content"]).partition(".")[0] for message in model.requests[-2]["messages"]]
    assert len(seen) > 5
    assert not {row["text"].partition(".")[0] for row in rows if row["role"] == "user"} & set(seen)


async def test_message_in_the_window_is_not_returned_again(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    session = uuid4()
    model.script = _search('SEARCH "code word boat"')
    async with agents_with(settings, model) as agents:
        await agents.run(make_request(_FACT, session))
        answer = await agents.run(make_request(_QUESTION, session))
        assert [row["table"] for row in answer.tool_calls[0]["result"]["results"]].count("messages") == 0
        elsewhere = await agents.run(make_request(_QUESTION, uuid4()))
    assert elsewhere.tool_calls[0]["result"]["results"][0]["text"] == _FACT


async def test_message_that_is_shortened_in_the_window_is_found(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    session = uuid4()
    long_answer = f"{_CHATTER} {_FACT} {_CHATTER}"

    def script(body: dict[str, Any]) -> list[Step]:
        if last_text(body) != _QUESTION:
            return [long_answer]
        return ["Done."] if has_result(body) else [Call("search_rem", {"query": 'SEARCH "code word boat"'})]

    model.script = script
    async with agents_with(settings, model) as agents:
        await agents.run(make_request("Tell me everything.", session))
        answer = await agents.run(make_request(_QUESTION, session))
    assert "REM LOOKUP" in str(model.requests[-1]["messages"])
    assert any("heliotrope-91" in row["text"] for row in answer.tool_calls[0]["result"]["results"])


async def test_messages_of_other_users_are_never_found(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    async with agents_with(settings, model, llm={"default_model": None}) as agents:
        await agents.run(make_request(_FACT, uuid4()))
        request = make_request(_QUESTION, uuid4())
        stranger = request.context.model_copy(update={"user_id": "bob"})
        answer = await agents.run(type(request)(context=stranger, text=_QUESTION))
    assert "heliotrope" not in answer.text
    assert answer.session_id is not None
    assert len(await rem.for_user("bob").sessions.load_session(UUID(answer.session_id))) >= 2
