"""Clients can give their own tools to an agent, carry out its calls, and let it go on with the results."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.api.chat.conftest import Chat
from tests.scripted_model import Call

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
QUESTION: ChatCompletionMessageParam = {"role": "user", "content": "Do I need an umbrella in Aarhus?"}


def find_results(body: dict[str, Any]) -> list[str]:
    """Return the tool results that the model has."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def script_weather(body: dict[str, Any]) -> list[Any]:
    """Call the client's tool, and answer with its result."""
    results = find_results(body)
    return [f"It is {results[-1]}."] if results else ["Let me look. ", Call("get_weather", {"city": "Aarhus"})]


@pytest.fixture
def client(chat: Chat) -> OpenAI:
    """A client of a server whose model asks for the weather."""
    chat.model.script = script_weather
    return chat.client()


def ask(client: OpenAI, *messages: ChatCompletionMessageParam, **options: Any) -> Any:
    """Send messages with the client's tool."""
    return client.chat.completions.create(messages=list(messages), tools=[WEATHER], **{"model": "rem", **options})


def answer_call(message: Any, result: str) -> list[ChatCompletionMessageParam]:
    """Return the model's message and the result of its call, as a client sends them back."""
    return [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": result},
    ]


def test_call_reaches_the_client_and_the_turn_goes_on_with_its_result(chat: Chat, client: OpenAI) -> None:
    first = ask(client, QUESTION)
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look. "
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city":"Aarhus"}')
    offered = {tool["function"]["name"]: tool["function"] for tool in chat.model.requests[0]["tools"]}
    assert offered["get_weather"]["parameters"]["required"] == ["city"]
    assert "search_rem" in offered

    second = ask(client, QUESTION, *answer_call(choice.message, "raining"))
    assert second.choices[0].message.content == "It is raining."
    assert second.choices[0].finish_reason == "stop"
    # Both requests are one turn of one session, with the question stored once.
    assert second.session_id == first.session_id
    with chat.http() as http:
        messages = http.get(f"/api/v1/sessions/{first.session_id}/messages").json()["data"]
    assert [(message["role"], message["content"]) for message in messages if message["role"] != "tool"] == [
        ("user", QUESTION["content"]),
        ("assistant", "Let me look. "),
        ("assistant", "It is raining."),
    ]


def test_streamed_call_has_the_format_of_openai(client: OpenAI) -> None:
    with client.chat.completions.stream(model="rem", messages=[QUESTION], tools=[WEATHER]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.name == "get_weather"
    stream = ask(client, QUESTION, *answer_call(message, "sunny"), stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "It is sunny."


def test_named_session_keeps_its_history_while_tools_run(chat: Chat) -> None:
    client = chat.client(**{"X-Session-Id": "umbrella"})
    client.chat.completions.create(model="rem", messages=[{"role": "user", "content": "My umbrella is green."}])
    chat.model.script = script_weather
    first = ask(client, QUESTION)
    ask(client, QUESTION, *answer_call(first.choices[0].message, "raining"))
    texts = [message.get("content") for message in chat.model.requests[-1]["messages"]]
    assert "My umbrella is green." in texts
    assert texts.count(QUESTION["content"]) == 1
    assert find_results(chat.model.requests[-1]) == ["raining"]


async def test_pydantic_ai_agent_with_tools_runs_on_rem(chat: Chat) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    chat.model.script = script_weather
    async with AsyncOpenAI(base_url=f"{chat.address}/v1", api_key="x", default_headers=chat.headers) as http:
        agent = Agent(OpenAIChatModel("rem", provider=OpenAIProvider(openai_client=http)))

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """Return the weather in a city."""
            return f"windy in {city}"

        assert (await agent.run("Do I need an umbrella?")).output == "It is windy in Aarhus."


def test_tool_of_the_client_replaces_one_of_the_agent(chat: Chat) -> None:
    tool: ChatCompletionToolParam = {
        "type": "function",
        "function": {"name": "search_rem", "description": "Search the shop.", "parameters": {"type": "object"}},
    }
    chat.model.script = lambda _body: [Call("search_rem", {"query": "umbrella"})]
    answer = chat.client().chat.completions.create(model="rem", messages=[QUESTION], tools=[tool])
    assert answer.choices[0].finish_reason == "tool_calls"
    offered = [tool["function"] for tool in chat.model.requests[0]["tools"] if tool["function"]["name"] == "search_rem"]
    assert [tool["description"] for tool in offered] == ["Search the shop."]


def test_choice_of_a_tool_reaches_the_model_on_the_first_step_only(chat: Chat, client: OpenAI) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    first = ask(client, QUESTION, tool_choice=named)
    assert chat.model.requests[0]["tool_choice"] == named
    ask(client, QUESTION, *answer_call(first.choices[0].message, "raining"), tool_choice=named)
    assert chat.model.requests[1].get("tool_choice") in (None, "auto")


def test_no_tool_is_offered_with_the_choice_none(chat: Chat) -> None:
    assert ask(chat.client(), QUESTION, tool_choice="none").choices[0].finish_reason == "stop"
    assert "get_weather" not in {tool["function"]["name"] for tool in chat.model.requests[0]["tools"]}


def test_session_of_another_user_is_not_continued(chat: Chat, client: OpenAI) -> None:
    first = ask(client, QUESTION)
    with pytest.raises(NotFoundError, match="no session"):
        ask(chat.client("stranger"), QUESTION, *answer_call(first.choices[0].message, "raining"))


@pytest.mark.parametrize(
    ("messages", "options", "error"),
    [
        ([QUESTION], {"tools": [WEATHER, WEATHER]}, "two of them have the same name"),
        ([QUESTION], {"tool_choice": {"type": "function", "function": {"name": "fly"}}}, "there is no tool 'fly'"),
        ([QUESTION, {"role": "tool", "tool_call_id": "call_1", "content": "x"}], {}, "no message before has the tool"),
        ([{"role": "tool", "tool_call_id": "call_1", "content": "x"}], {}, "none has the role user"),
        ([QUESTION], {"response_format": {"type": "json_object"}}, "cannot be combined with a structured answer"),
        (
            [
                QUESTION,
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "[1"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "x"},
            ],
            {},
            "are not JSON",
        ),
    ],
)
def test_invalid_tools_are_refused_before_anything_is_stored(
    chat: Chat, messages: list[Any], options: dict[str, Any], error: str
) -> None:
    with pytest.raises(BadRequestError, match=error):
        chat.client().chat.completions.create(**{"model": "rem", "messages": messages, "tools": [WEATHER], **options})
    with chat.http() as http:
        assert http.get("/api/v1/sessions").json()["data"] == []


def test_local_model_answers_beside_tools_that_it_cannot_use(chat: Chat) -> None:
    answer = ask(chat.client(), {"role": "user", "content": "My umbrella is green."}, model="rem:local")
    assert answer.choices[0].finish_reason == "stop"
