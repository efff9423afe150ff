"""The chat route works with OpenAI's own client."""

from __future__ import annotations

from uuid import UUID, uuid4

import httpx2 as httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.api.chat.conftest import Chat
from tests.api.chat.sse_reader import events_of, text_of
from tests.scripted_model import instructions, last_text

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


def test_answer_has_text_and_real_usage(chat: Chat) -> None:
    answer = chat.client().chat.completions.create(model="rem", messages=HI)
    assert answer.choices[0].message.content == "Hello from the model."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    assert answer.usage.prompt_tokens == len(chat.model.requests[0]["messages"])
    assert answer.model == "openai:scripted"


def test_concatenated_stream_gives_the_same_text(chat: Chat) -> None:
    stream = chat.client().chat.completions.create(model="rem", messages=HI, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hello from the model."


def test_openai_stream_helper_and_usage_work(chat: Chat) -> None:
    client = chat.client()
    with client.chat.completions.stream(model="rem", messages=HI, stream_options={"include_usage": True}) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert [piece for piece in pieces if piece] == ["Hello", " from", " the", " model."]
    assert final.choices[0].message.content == "Hello from the model."
    assert final.usage is not None
    assert final.usage.completion_tokens == 4


async def test_async_openai_client_works(chat: Chat) -> None:
    async with AsyncOpenAI(base_url=f"{chat.address}/v1", api_key="x", default_headers=chat.headers) as client:
        stream = await client.chat.completions.create(model="rem", messages=HI, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Hello from the model."
        whole = await client.chat.completions.create(model="rem", messages=HI)
        assert whole.choices[0].message.content == "Hello from the model."


async def test_pydantic_ai_client_works(chat: Chat) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with AsyncOpenAI(base_url=f"{chat.address}/v1", api_key="x", default_headers=chat.headers) as client:
        agent = Agent(OpenAIChatModel("rem", provider=OpenAIProvider(openai_client=client)))
        assert (await agent.run("Hi")).output == "Hello from the model."
        async with agent.run_stream("Hi") as streamed:
            assert await streamed.get_output() == "Hello from the model."


def test_every_event_is_a_valid_chunk_and_done_is_last(chat: Chat) -> None:
    with chat.http() as http:
        events = events_of(http, {"messages": HI, "stream": True})
    assert [event.name for event in events][-3:] == ["metadata", None, "done"]
    for event in events:
        assert event.data["object"] == "chat.completion.chunk"
        assert event.data["choices"][0]["index"] == 0
        assert {"id", "created", "model"} <= set(event.data)
    assert len({event.data["id"] for event in events}) == 1
    metadata = events[-3].data
    assert UUID(metadata["message_id"])
    assert metadata["agent_schema"] == "rem"


def test_session_id_is_returned_and_continues_the_session(chat: Chat) -> None:
    chat.model.script = lambda body: [f"You said {last_text(body)}. So far {len(body['messages'])} messages."]
    client = chat.client()
    first = client.chat.completions.with_raw_response.create(model="rem", messages=HI)
    session = first.headers["x-session-id"]
    assert UUID(session)
    client.chat.completions.create(
        model="rem", messages=[{"role": "user", "content": "And again"}], extra_headers={"X-Session-Id": session}
    )
    said = [(message["role"], message["content"]) for message in chat.model.requests[-1]["messages"]][-3:]
    assert said[0] == ("user", "Hi")
    assert said[1][0] == "assistant"
    assert said[2] == ("user", "And again")


def test_any_text_is_a_session_name_of_the_user(chat: Chat) -> None:
    client = chat.client(**{"X-Session-Id": "my weekly planning"})
    first = client.chat.completions.with_raw_response.create(model="rem", messages=HI)
    second = client.chat.completions.with_raw_response.create(model="rem", messages=HI)
    other = chat.client(f"other-{uuid4()}", **{"X-Session-Id": "my weekly planning"})
    third = other.chat.completions.with_raw_response.create(model="rem", messages=HI)
    assert UUID(first.headers["x-session-id"])
    assert first.headers["x-session-id"] == second.headers["x-session-id"] != third.headers["x-session-id"]
    assert len(chat.model.requests[1]["messages"]) > len(chat.model.requests[2]["messages"])


@pytest.mark.parametrize("stream", [False, True])
def test_session_of_another_user_is_not_found(chat: Chat, stream: bool) -> None:
    session = str(uuid4())
    chat.client(**{"X-Session-Id": session}).chat.completions.create(model="rem", messages=HI)
    for client in (chat.client("mallory", **{"X-Session-Id": session}),):
        with pytest.raises(openai.NotFoundError) as refused:
            client.chat.completions.create(model="rem", messages=HI, stream=stream)
        assert "Hi" not in str(refused.value)
    anonymous = httpx.post(
        f"{chat.address}/v1/chat/completions",
        json={"messages": HI, "stream": stream},
        headers={"X-Session-Id": session},
    )
    assert anonymous.status_code == 404
    assert len(chat.model.requests) == 1


def test_anonymous_session_owns_itself(chat: Chat) -> None:
    with httpx.Client(base_url=chat.address, timeout=30) as http:
        first = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "I am Zoe"}]})
        session = first.headers["x-session-id"]
        http.post("/v1/chat/completions", json={"messages": HI}, headers={"X-Session-Id": session})
        assert "I am Zoe" in str(chat.model.requests[-1]["messages"])
        http.post("/v1/chat/completions", json={"messages": HI})
        assert "I am Zoe" not in str(chat.model.requests[-1]["messages"])
        refused = http.post("/v1/chat/completions", json={"messages": HI}, headers={"X-User-Id": f"anon:{session}"})
        assert refused.status_code == 400


def test_client_history_is_used_without_session(chat: Chat) -> None:
    messages = [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "My cat is called Momo"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "What is it called?"},
    ]
    with chat.http() as http:
        http.post("/v1/chat/completions", json={"messages": messages}).raise_for_status()
    sent = chat.model.requests[-1]
    assert "Answer in French." in instructions(sent)
    assert [message["content"] for message in sent["messages"] if message["role"] == "user"] == [
        "My cat is called Momo",
        "What is it called?",
    ]


def test_client_history_is_stored_once_in_a_new_session(chat: Chat) -> None:
    session = str(uuid4())
    messages = [
        {"role": "user", "content": "My cat is called Momo"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "What is it called?"},
    ]
    with chat.http() as http:
        for _ in range(2):
            http.post(
                "/v1/chat/completions", json={"messages": messages}, headers={"X-Session-Id": session}
            ).raise_for_status()
        stored = http.get(f"/api/v1/sessions/{session}/messages").json()
    contents = [message["content"] for message in stored["data"]]
    assert contents.count("My cat is called Momo") == 1
    assert contents.count("What is it called?") == 2


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        ({"temperature": 0.2}, {"temperature": 0.2}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"max_tokens": 77}, {"max_completion_tokens": 77}),
        ({"stop": ["END"]}, {"stop": ["END"]}),
        ({"seed": 7}, {"seed": 7}),
        ({"presence_penalty": 0.5, "frequency_penalty": -0.5}, {"presence_penalty": 0.5, "frequency_penalty": -0.5}),
        ({"user": "tracking-id"}, {"user": "tracking-id"}),
    ],
)
def test_parameters_reach_the_model(chat: Chat, parameters: dict[str, object], sent: dict[str, object]) -> None:
    with chat.http() as http:
        http.post("/v1/chat/completions", json={"messages": HI, **parameters}).raise_for_status()
    request = chat.model.requests[-1]
    assert {name: request.get(name) for name in sent} == sent


@pytest.mark.parametrize("name", ["tools", "logprobs", "n", "modalities", "made_up"])
def test_unsupported_parameter_is_rejected_by_name(chat: Chat, name: str) -> None:
    value: dict[str, object] = {"tools": [{"type": "function"}], "logprobs": True, "n": 2, "modalities": ["audio"]}
    with chat.http() as http:
        refused = http.post("/v1/chat/completions", json={"messages": HI, name: value.get(name, "x")})
    assert refused.status_code == 422
    assert name in refused.json()["error"]["message"]
    assert not chat.model.requests


def test_response_format_is_applied(chat: Chat) -> None:
    from tests.scripted_model import Call

    def script(body: dict[str, object]) -> list[Call]:
        tools = body["tools"]
        assert isinstance(tools, list)
        name = next(tool["function"]["name"] for tool in tools if tool["function"]["name"].startswith("final_result"))
        return [Call(name, {"city": "Paris"})]

    chat.model.script = script
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    with chat.http() as http:
        answer = http.post(
            "/v1/chat/completions",
            json={
                "messages": HI,
                "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}},
            },
        ).json()
    assert answer["choices"][0]["message"]["content"] == '{"city":"Paris"}'


@pytest.mark.parametrize("is_streamed", [False, True])
def test_response_format_is_applied_by_a_server_without_tools(chat: Chat, is_streamed: bool) -> None:
    chat.model.script = lambda body: ['{"city": ', '"Paris"}'] if body.get("response_format") else ["It is", " Paris."]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    response_format = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    body = {"messages": HI, "response_format": response_format, "model": f"no-tools-{is_streamed}"}
    with chat.http() as http:
        if is_streamed:
            text = text_of(events_of(http, body))
        else:
            text = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert text == '{"city":"Paris"}'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, "empty"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "role user"),
        ({"messages": [{"role": "king", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content"),
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "NUL"),
        ({"messages": HI, "temperature": 9}, "temperature"),
        ({"messages": HI, "model": "openaii:gpt"}, "openaii"),
    ],
)
def test_invalid_request_names_its_error(chat: Chat, body: dict[str, object], words: str) -> None:
    with chat.http() as http:
        refused = http.post("/v1/chat/completions", json=body)
    assert 400 <= refused.status_code < 500
    assert words in refused.json()["error"]["message"]


def test_error_for_unknown_agent_suggests_a_name(chat: Chat) -> None:
    with chat.http() as http:
        refused = http.post(
            "/v1/chat/completions", json={"messages": HI, "stream": True}, headers={"X-Agent-Schema": "querry-agent"}
        )
    assert refused.status_code == 404
    assert refused.json()["error"]["code"] == "agent_not_found"
    assert "query-agent" in refused.json()["error"]["message"]


def test_model_header_overrides_the_body(chat: Chat) -> None:
    client = chat.client(**{"X-Model-Name": "openai:other"})
    assert client.chat.completions.create(model="openai:third", messages=HI).model == "openai:other"
    assert chat.model.requests[-1]["model"] == "other"


def test_huge_message_is_stored_completely(chat: Chat) -> None:
    text = "Zürich 東京 🎉 " * 20_000
    with chat.http() as http:
        done = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": text}]})
        session = done.headers["x-session-id"]
        stored = http.get(f"/api/v1/sessions/{session}/messages").json()["data"]
    assert stored[0]["content"] == text
