"""`/v1/responses` works with OpenAI's own client and with frameworks that use it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

from tests.api.chat.conftest import Chat
from tests.api.chat.test_client_tools import find_results, script_weather
from tests.scripted_model import Call, Refuse, instructions

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Return the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


def ask(client: OpenAI, question: Any, **options: Any) -> Any:
    """Send a question to `/responses`."""
    return client.responses.create(model="rem", input=question, **options)


def test_answer_has_text_usage_and_session(chat: Chat) -> None:
    response = ask(chat.client(), "Hi", instructions="Be brief.", metadata={"for": "a test"})
    assert (response.output_text, response.status, response.error) == ("Hello from the model.", "completed", None)
    assert response.usage.output_tokens == 4
    assert response.metadata == {"for": "a test"}
    assert "Be brief." in instructions(chat.model.requests[0])
    with chat.http() as http:
        messages = http.get(f"/api/v1/sessions/{response.session_id}/messages").json()["data"]
    assert [message["content"] for message in messages] == ["Hi", "Hello from the model."]


def test_stream_gives_the_same_text_in_events_of_openai(chat: Chat) -> None:
    client = chat.client()
    with client.responses.stream(model="rem", input="Hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["Hello", " from", " the", " model."]
    assert final.output_text == "Hello from the model."
    assert [event.sequence_number for event in events if hasattr(event, "sequence_number")] == sorted(
        event.sequence_number for event in events if hasattr(event, "sequence_number")
    )
    assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"


def test_previous_response_continues_its_session(chat: Chat) -> None:
    client = chat.client()
    first = ask(client, "My boat is called Marlin.")
    second = ask(client, "What is it called?", previous_response_id=first.id)
    assert second.session_id == first.session_id
    texts = [message.get("content") for message in chat.model.requests[-1]["messages"]]
    assert "My boat is called Marlin." in texts


def test_call_is_carried_out_by_the_client_with_the_whole_conversation(chat: Chat) -> None:
    chat.model.script = script_weather
    client = chat.client()
    first = ask(client, "Umbrella?", tools=[WEATHER])
    message, call = first.output
    assert (message.type, call.type, call.name, call.arguments) == (
        "message",
        "function_call",
        "get_weather",
        '{"city":"Aarhus"}',
    )
    items = [
        {"role": "user", "content": "Umbrella?"},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "raining"},
    ]
    second = ask(client, items, tools=[WEATHER])
    assert second.output_text == "It is raining."
    assert second.session_id == first.session_id


def test_call_is_carried_out_by_the_client_with_the_previous_response(chat: Chat) -> None:
    chat.model.script = script_weather
    client = chat.client()
    first = ask(client, "Umbrella?", tools=[WEATHER])
    result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "sunny"}
    second = ask(client, [result], tools=[WEATHER], previous_response_id=first.id)
    assert second.output_text == "It is sunny."
    assert find_results(chat.model.requests[-1]) == ["sunny"]
    with chat.http() as http:
        messages = http.get(f"/api/v1/sessions/{first.session_id}/messages").json()["data"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["Umbrella?"]


def test_streamed_call_has_the_format_of_openai(chat: Chat) -> None:
    chat.model.script = lambda _body: [Call("get_weather", {"city": "Odense"})]
    with chat.client().responses.stream(model="rem", input="Umbrella?", tools=[WEATHER]) as stream:  # type: ignore[list-item]
        final = stream.get_final_response()
    (call,) = final.output
    assert call.type == "function_call"
    assert call.arguments == '{"city":"Odense"}'


async def test_pydantic_ai_agent_with_tools_runs_on_responses(chat: Chat) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    chat.model.script = lambda body: script_weather(body)[-1:]
    async with AsyncOpenAI(base_url=f"{chat.address}/v1", api_key="x", default_headers=chat.headers) as http:
        agent = Agent(OpenAIResponsesModel("rem", provider=OpenAIProvider(openai_client=http)))

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """Return the weather in a city."""
            return f"windy in {city}"

        assert (await agent.run("Do I need an umbrella?")).output == "It is windy in Aarhus."
        async with agent.run_stream("And tomorrow?") as streamed:
            assert await streamed.get_output() == "It is windy in Aarhus."


def test_answer_with_a_schema_is_json(chat: Chat) -> None:
    chat.model.script = lambda _body: [Call("final_result", {"answer": 42})]
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    text = {"format": {"type": "json_schema", "name": "a", "schema": schema}}
    assert ask(chat.client(), "How many?", text=text).output_text == '{"answer":42}'


def test_nothing_is_stored_without_store(chat: Chat) -> None:
    assert ask(chat.client(), "Hi", store=False).output_text == "Hello from the model."
    with chat.http() as http:
        assert http.get("/api/v1/sessions").json()["data"] == []


def test_failure_of_the_model_is_a_failed_response(chat: Chat) -> None:
    chat.model.script = lambda _body: [Refuse(500, "broken")]
    with chat.http() as http:
        body = {"input": "Hi", "stream": True}
        lines = http.post("/v1/responses", json=body).text
    assert "event: response.failed" in lines
    assert '"status":"failed"' in lines


def test_response_of_another_user_is_not_continued(chat: Chat) -> None:
    first = ask(chat.client(), "My code word is heliotrope.")
    with pytest.raises(NotFoundError, match="no session"):
        ask(chat.client("stranger"), "What is it?", previous_response_id=first.id)
    with pytest.raises(NotFoundError, match="no session"):
        result = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
        ask(chat.client("stranger"), [result], previous_response_id=first.id)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"input": "Hi", "previous_response_id": "resp_unknown"}, "There is no stored response"),
        ({"input": "Hi", "background": True}, "background: is not supported"),
        ({"input": []}, "input"),
        ({"input": [{"role": "assistant", "content": "Hi"}]}, "none has the role user|must have the role user"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "none has the role user"),
        ({"input": "Hi", "tools": [{"type": "web_search"}]}, "tools"),
    ],
)
def test_invalid_request_gets_a_clear_error(chat: Chat, body: dict[str, Any], error: str) -> None:
    with chat.http() as http:
        response = http.post("/v1/responses", json=body)
    assert response.status_code in (400, 404, 422), response.text
    assert re.search(error, response.json()["error"]["message"]), response.text
    with chat.http() as http:
        assert http.get("/api/v1/sessions").json()["data"] == []


def test_result_of_an_unknown_call_is_refused(chat: Chat) -> None:
    first = ask(chat.client(), "Hi")
    result = {"type": "function_call_output", "call_id": "call_9", "output": "x"}
    with pytest.raises(BadRequestError, match="has no call 'call_9'"):
        ask(chat.client(), [result], previous_response_id=first.id)
