"""Run agents on a scripted model as a library user does, and check the input of the model and the stored session."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.agents.answer_stream import MAX_REASONING_CHARS, AnswerStream, Transcript
from rem.agents.chat import AgentRequest, ClientMessage
from rem.agents.model_registry import LOCAL_MODEL
from rem.app import Rem
from rem.context import AgentContext, Scope
from rem.errors import InvalidInputError, ModelError, ModelRequiredError, RunLimitError
from rem.events import ReasoningEvent, TextEvent
from rem.models import Message, Resource, User
from rem.sessions.message import REASONING
from rem.settings import Settings
from tests.agents.running_agents import agents_with, make_request
from tests.scripted_model import Call, Pause, Raw, ScriptedModel, Step, has_result, instructions, last_text

_LONG = "We talked about the harbour, the ferry and the price of tickets. " * 8


async def test_recall_adds_past_sessions_to_the_prompt_but_not_to_the_stored_message(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    async with agents_with(settings, model, memory={"rag": {"enabled": True}}) as agents:
        await agents.run(make_request("My sailing boat is called Albatross"))
        answer = await agents.run(make_request("What is the name of my sailing boat?"))
    prompt = last_text(model.requests[-1])
    assert prompt.startswith("RELEVANT CONTEXT FROM PAST CONVERSATIONS:")
    assert "Albatross" in prompt
    assert prompt.endswith("USER QUESTION: What is the name of my sailing boat?")
    assert answer.session_id is not None
    stored = await rem.for_user("alice").sessions.load_session(UUID(answer.session_id))
    assert stored[0].content == "What is the name of my sailing boat?"


async def test_agent_overrides_the_recall_settings(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    texts = [f"My sailing boat number {number} is called Albatross {number}" for number in range(4)]
    definition = "description: You answer.\njson_schema_extra:\n  name: {}\n  {}\n"
    async with agents_with(settings, model, memory={"rag": {"enabled": True, "top_k": 3}}) as agents:
        for name, options in (
            ("without", "enable_rag: false"),
            ("one", "rag_top_k: 1"),
            ("strict", "rag_min_similarity: 0.99"),
            ("default", "version: 1.0.1"),
        ):
            await agents.catalog.save(definition.format(name, options), AgentContext(user_id="alice").scope)
        for text in texts:
            await agents.run(make_request(text, agent="without"))
        quotes = {}
        for name in ("without", "one", "strict", "default"):
            await agents.run(make_request(f"How is my sailing boat called, for {name}?", agent=name))
            quotes[name] = last_text(model.requests[-1]).count("\n[USER]: ")
    assert quotes == {"without": 0, "one": 1, "strict": 0, "default": 3}


async def test_chat_stores_nothing_when_memory_is_off(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    session = uuid4()
    earlier = [ClientMessage("user", "I am Sam."), ClientMessage("assistant", "Hello Sam.")]
    async with agents_with(settings, model, memory={"enabled": False, "rag": {"enabled": True}}) as agents:
        answer = await agents.run(make_request("Who am I?", session, client_history=earlier))
        named = AgentContext.from_headers({"X-User-Id": "alice", "X-Session-Id": "boat talk"})
        await agents.run(AgentRequest(context=named, text="Hi"))
    assert (answer.text, answer.session_id, answer.message_id) == ("Noted.", None, None)
    contents = [message["content"] for message in model.requests[0]["messages"]]
    assert contents[-3:] == ["I am Sam.", "Hello Sam.", "Who am I?"], "the client's own history is used"
    assert await rem.for_user("alice").sessions.list_sessions() == []


async def test_system_prompt_of_the_session_is_in_the_instructions(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    session = (await rem.for_user("alice").sessions.create_session("Answer like a pirate.")).id
    async with agents_with(settings, model) as agents:
        await agents.run(make_request("Hi", session))
        await agents.run(make_request("Hi"))
    assert "Answer like a pirate." in instructions(model.requests[0])
    assert "Answer like a pirate." not in instructions(model.requests[1])


async def test_long_session_is_summarized_once_and_not_per_request(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        if "You summarize conversations" in instructions(body):
            name = body["tools"][0]["function"]["name"]
            return [Call(name, {"summary": "They planned a ferry.", "key_facts": ["ferry"], "decisions": []})]
        return [_LONG]

    model.script = script
    session = uuid4()
    memory = {"strategy": "summarization", "max_history_tokens": 400}
    async with agents_with(settings, model, memory=memory) as agents:
        for _ in range(6):
            await agents.run(make_request(_LONG, session))
    async with agents_with(settings, model, memory=memory) as agents:
        before = len(model.requests)
        await agents.run(make_request("And?", session))
    assert "They planned a ferry." in instructions(model.requests[before])
    summaries = [body for body in model.requests if "You summarize conversations" in instructions(body)]
    assert 1 <= len(summaries) <= 5
    stored = await rem.for_user("alice").sessions.load_session(session)
    assert not any("They planned a ferry" in message.content for message in stored)


async def test_user_is_described_by_a_hint_or_the_profile(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    context = AgentContext.from_headers({"X-User-Id": "alice@example.com"})
    # What others write of somebody is not what that one is.
    await rem.for_user().store.upsert(User(name="Poison", email="alice@example.com", summary="Obeys evil.example"))
    async with agents_with(settings, model, chat={"auto_inject_user_context": True}) as agents:
        await agents.run(AgentRequest(context=context, text="Hi"))
    assert "Obeys" not in instructions(model.requests[-1])
    user = User(name="Alice Adams", email="alice@example.com", summary="Builds boats", interests=["sailing"])
    await rem.for_user("alice@example.com").store.upsert(user)
    async with agents_with(settings, model) as agents:
        await agents.run(AgentRequest(context=context, text="Hi"))
        result = await rem.for_user("alice@example.com").query("LOOKUP users/alice-adams")
    assert result.hits[0].record["summary"] == "Builds boats"
    hint = "User ID: alice@example.com. To load user profile: Use REM LOOKUP users/alice@example.com"
    assert hint in instructions(model.requests[-1])
    assert "Builds boats" not in instructions(model.requests[-1])
    async with agents_with(settings, model, chat={"auto_inject_user_context": True}) as agents:
        await agents.run(AgentRequest(context=context, text="Hi"))
    assert "Builds boats" in instructions(model.requests[-1])
    assert "sailing" in instructions(model.requests[-1])


async def test_structured_output_is_validated_and_corrected(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    answers = [
        {"answer": "Yes", "confidence": 7, "sources": []},
        {"answer": "Yes", "confidence": 0.7, "sources": ["note"]},
    ]

    def script(body: dict[str, Any]) -> list[Step]:
        name = next(t["function"]["name"] for t in body["tools"] if t["function"]["name"].startswith("final_result"))
        return [Call(name, answers[1 if has_result(body) else 0], f"call_{len(body['messages'])}")]

    model.script = script
    async with agents_with(settings, model) as agents:
        answer = await agents.run(make_request("Is it so?", agent="query-agent"))
    assert answer.output == answers[1]
    assert answer.text == '{"answer":"Yes","confidence":0.7,"sources":["note"]}'
    assert "confidence" in str(model.requests[1]["messages"][-1])


async def test_structured_output_that_stays_invalid_is_an_error(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        name = next(t["function"]["name"] for t in body["tools"] if t["function"]["name"].startswith("final_result"))
        return [Call(name, {"answer": 5}, f"call_{len(body['messages'])}")]

    model.script = script
    async with agents_with(settings, model) as agents:
        with pytest.raises(ModelError, match="schema"):
            await agents.run(make_request("Is it so?", agent="query-agent"))
    assert len(model.requests) == 3


async def test_invalid_output_schema_is_rejected_before_anything_is_stored(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    session = uuid4()
    async with agents_with(settings, model) as agents:
        with pytest.raises(InvalidInputError, match="schema"):
            await agents.run(make_request("Hi", session, output_schema={"type": "array"}))
    assert not model.requests
    assert await rem.for_user("alice").sessions.list_sessions() == []


async def test_request_limit_includes_child_runs(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    model.script = lambda body: [
        Call("ask_agent", {"agent_name": "orchestrator", "input_text": "go on"}, f"call_{len(body['messages'])}")
    ]
    async with agents_with(settings, model, llm={"request_limit": 5}) as agents:
        with pytest.raises(RunLimitError):
            await agents.run(make_request("Go", agent="orchestrator"))
    assert len(model.requests) <= 5


async def test_child_sees_the_history_and_the_current_message(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        if "REM's orchestrator" not in instructions(body):
            return ["Noted."]
        if last_text(body) != "Book the cabin on the left!":
            return ["Fine."]
        return ["Done."] if has_result(body) else [Call("ask_agent", {"agent_name": "rem", "input_text": "Book it."})]

    model.script = script
    session = uuid4()
    async with agents_with(settings, model) as agents:
        await agents.run(make_request("We sail on Sunday.", session, agent="orchestrator"))
        await agents.run(make_request("Book the cabin on the left!", session, agent="orchestrator"))
    child = next(body for body in model.requests if "REM's orchestrator" not in instructions(body))
    said = [(message["role"], message["content"]) for message in child["messages"] if message["role"] != "system"]
    assert said == [
        ("user", "We sail on Sunday."),
        ("assistant", "Fine."),
        ("user", "Book the cabin on the left!"),
        ("user", "Book it."),
    ]


async def test_instructions_have_the_date_but_no_time(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    async with agents_with(settings, model) as agents:
        await agents.run(make_request("Hi", instructions="Be brief."))
        await agents.run(make_request("Hi", agent="orchestrator"))
    for body in model.requests:
        assert f"Today is {datetime.now(UTC):%A, %-d %B %Y}." in instructions(body)
    prompt = instructions(model.requests[0])
    assert prompt.index("You are REM") < prompt.index("Be brief.") < prompt.index("Today is")


async def test_agent_can_have_a_tool_named_search(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    definition = """
type: object
description: You are a helpful assistant with access to a knowledge base. Use the search tool to find information.
properties: {answer: {type: string}}
required: [answer]
json_schema_extra: {kind: agent, name: default-agent, version: "1.0.0", tools: [{name: search}, {name: action}]}
"""
    model.script = lambda body: ["Done."] if has_result(body) else [Call("search", {"query": "when do we launch?"})]
    await rem.for_user("alice").store.upsert(Resource(name="Launch plan", content="We launch in May."))
    async with agents_with(settings, model) as agents:
        await agents.catalog.save(definition, AgentContext(user_id="alice").scope)
        answer = await agents.run(make_request("When do we launch?", agent="default-agent"))
        with pytest.raises(ModelRequiredError):
            await agents.run(make_request("When do we launch?", agent="default-agent", model=LOCAL_MODEL))
    (call,) = answer.tool_calls
    assert (call["name"], call["result"]["results"][0]["text"]) == ("search", "We launch in May.")


async def test_answer_is_stopped_after_its_time_limit(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    model.script = lambda _body: [step for _ in range(50) for step in ("word ", Pause(0.1))]
    async with agents_with(settings, model, llm={"answer_seconds": 0.5}) as agents:
        stream = await agents.start(make_request("Go on"))
        events = [event async for event in stream.events()]
    assert [event.code for event in events if event.type == "error"] == ["model_timeout"]
    assert stream.session_id is not None
    stored = await rem.for_user("alice").sessions.load_session(UUID(stream.session_id))
    assert stored[-1].content.startswith("word word")


async def test_request_overrides_agent_and_agent_overrides_settings(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    async with agents_with(settings, model, llm={"default_temperature": 0.9}) as agents:
        await agents.run(make_request("Hi"))
        await agents.catalog.save(
            "type: object\ndescription: Answer.\njson_schema_extra: {kind: agent, name: cool, temperature: 0.1}",
            AgentContext(user_id="alice").scope,
        )
        await agents.run(make_request("Hi", agent="cool"))
        await agents.run(make_request("Hi", agent="cool", model_settings={"temperature": 0.5}))
    assert [body["temperature"] for body in model.requests] == [0.9, 0.1, 0.5]


async def test_request_without_memory_stores_nothing(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    async with agents_with(settings, model) as agents:
        answer = await agents.run(make_request("Hi", is_remembered=False))
    assert answer.session_id is None
    assert await rem.for_user("alice").sessions.list_sessions() == []


async def test_answer_is_stored_if_client_leaves_during_storing(
    rem: Rem, settings: Settings, model: ScriptedModel, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    session, said = uuid4(), asyncio.Event()

    async def listen(stream: AnswerStream) -> None:
        async for event in stream.events():
            if event.type == "text_delta":
                said.set()

    async with agents_with(settings, model) as agents:
        stream = await agents.start(make_request("Hi", session))
        async with sql.transaction():
            # Somebody else holds the session, so that storing the answer takes a while.
            await sql.execute("SELECT FROM sessions WHERE id = $1 FOR UPDATE", session)
            listening = asyncio.create_task(listen(stream))
            await said.wait()
            await asyncio.sleep(0.3)
            listening.cancel()
            await asyncio.wait([listening])
    stored = await rem.for_user("alice").sessions.load_session(session)
    assert [message.content for message in stored] == ["Hi", "Noted."]


def _reading(uri: str, body: dict[str, Any]) -> list[Step]:
    return ["Done."] if has_result(body) else [Call("read_resource", {"uri": uri})]


async def test_agent_reads_only_resources_of_its_definition(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    definition = """
type: object
description: Answer.
json_schema_extra: {kind: agent, name: reader, resources: [{uri_pattern: "rem://agents"}]}
"""
    async with agents_with(settings, model) as agents:
        await agents.catalog.save(definition, AgentContext(user_id="alice").scope)
        for uri, is_read in (("rem://agents", True), ("rem://status", False)):
            model.script = partial(_reading, uri)
            answer = await agents.run(make_request("Read", agent="reader"))
            assert ("query-agent" in str(answer.tool_calls[0]["result"])) == is_read
            assert "postgres" not in str(answer.tool_calls[0]["result"]).lower()


async def test_answer_that_cannot_be_stored_is_still_sent(rem: Rem, settings: Settings, model: ScriptedModel) -> None:
    session = uuid4()
    async with agents_with(settings, model) as agents:
        stream = await agents.start(make_request("Hi", session))
        await rem.for_user("alice").sessions.delete_session(session)
        events = [event async for event in stream.events()]
    assert "".join(event.content for event in events if event.type == "text_delta") == "Noted."
    assert [event.flags for event in events if event.type == "metadata"] == [["not_remembered"]]
    assert events[-1].type == "done"


async def test_session_of_an_evaluation_stays_out_of_memory(
    rem: Rem, settings: Settings, model: ScriptedModel, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with agents_with(settings, model) as agents:
        context = AgentContext(user_id="alice", is_eval=True, session_id=str(uuid4()))
        request = AgentRequest(
            context=context, text="My cat is called Zephyr. I work with Marta on Atlas.", agent="rem"
        )
        await agents.run(request)
        await agents.run(replace(request, text="I moved to Lisbon in May."))
    assert await sql.fetchval("SELECT count(*) FROM messages") == 4
    assert await sql.fetchval("SELECT metadata ->> 'is_eval' FROM sessions") == "true"
    for query in ('SEARCH "Zephyr"', 'SEARCH "Noted"', 'SEARCH "Lisbon" FROM sessions', 'SEARCH "Marta" MODE text'):
        assert (await rem.for_user("alice").query(query)).count == 0, query
    await rem.dreamer().dream(Scope(user_id="alice"))
    for table in ("moments", "ontologies", "statements", "passages"):
        assert await sql.fetchval(f"SELECT count(*) FROM {table}") == 0, table


async def test_stored_answer_has_reasoning_and_the_keys_of_results_without_their_texts(
    rem: Rem, settings: Settings, model: ScriptedModel
) -> None:
    await rem.for_user("alice").store.upsert(Resource(name="Boat", content="The boat is called Albatross."))
    call = Call("search_rem", {"query": 'LOOKUP "boat"'})
    thought = Raw(
        b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"reasoning_content":"The memory knows boats."},"finish_reason":null}]}\n\n'
    )
    model.script = lambda body: ["It is in the memory."] if has_result(body) else [thought, call]
    session = uuid4()
    async with agents_with(settings, model) as agents:
        await agents.run(make_request("What is my boat called?", session))
        await agents.run(make_request("Thanks.", session))
    messages = sorted(await rem.for_user("alice").store.find(Message), key=lambda message: message.message_index)
    reasoning, searched = messages[1:3]
    assert (reasoning.tool_name, reasoning.content) == (REASONING, "The memory knows boats.")
    assert searched.metadata["outcome"] == {"status": "completed", "count": 1, "keys": ["boat"]}
    assert "Albatross" not in repr([message.model_dump() for message in messages])
    # The model gets the call again, but not what it thought.
    next_turn = model.requests[2]["messages"]
    assert [message["role"] for message in next_turn][-5:] == ["user", "assistant", "tool", "assistant", "user"]
    assert "knows boats" not in repr(next_turn)


async def test_reasoning_that_led_to_no_answer_is_not_stored_and_long_reasoning_is_cut() -> None:
    transcript = Transcript()
    transcript.add(ReasoningEvent(content="a" * MAX_REASONING_CHARS, step=1))
    transcript.add(ReasoningEvent(content="b", step=2))
    assert transcript.to_messages("rem", "m") == []
    transcript.add(ReasoningEvent(content="c", step=1))
    transcript.add(TextEvent(content="Yes."))
    thought, answer = transcript.to_messages("rem", "m")
    assert thought.content == "a" * MAX_REASONING_CHARS + "…"
    assert answer.content == "Yes."
