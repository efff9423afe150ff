"""Malformed output of a model does not break the stream or the stored session."""

from __future__ import annotations

import signal
import threading
from typing import Any
from uuid import UUID, uuid4

import httpx2 as httpx
import pytest

from rem.app import Rem
from rem.settings import Settings
from tests.api.chat.conftest import Chat
from tests.api.chat.sse_reader import events_of, named, text_of
from tests.cli.test_serve import serving
from tests.scripted_model import Call, Pause, Refuse, Step, has_result, scripted_model

HI = {"messages": [{"role": "user", "content": "Hi"}]}


def load_messages(http: httpx.Client, session: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = http.get(f"/api/v1/sessions/{session}/messages").json()["data"]
    return messages


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["A\ud83d", "\ude00Z"], "A😀Z"),
        (["x\ud800y"], "x\ufffdy"),
        (["\udc00", "end"], "\ufffdend"),
        (["日本", "語"], "日本語"),
    ],
)
def test_half_characters_are_joined_or_replaced(chat: Chat, pieces: list[str], text: str) -> None:
    chat.model.script = lambda _body: pieces
    with chat.http() as http:
        events = events_of(http, HI)
        stored = load_messages(http, named(events, "metadata")[-1]["session_id"])
    assert text_of(events) == text == stored[-1]["content"]
    assert not named(events, "error")


def test_huge_number_does_not_break_the_stream(chat: Chat) -> None:
    odd = {"confidence": 0.5, "extra": {"n": 10**40}}
    chat.model.script = lambda body: ["Done."] if has_result(body) else [Call("register_metadata", odd)]
    with chat.http() as http:
        events = events_of(http, HI)
        stored = load_messages(http, named(events, "metadata")[-1]["session_id"])
    assert text_of(events) == "Done."
    assert named(events, "tool_call")[0]["arguments"]["extra"]["n"] == str(10**40)
    assert [message["role"] for message in stored] == ["user", "tool", "assistant"]


def test_tool_calls_with_the_same_id_are_kept_apart(chat: Chat) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        done = sum(message["role"] == "tool" for message in body["messages"])
        return ["Done."] if done == 3 else [Call("search_rem", {"query": f'FUZZY "try {done}"'}, "call_1")]

    chat.model.script = script
    with chat.http() as http:
        events = events_of(http, HI)
        stored = load_messages(http, named(events, "metadata")[-1]["session_id"])
    calls = named(events, "tool_call")
    assert [call["tool_id"] for call in calls if call["status"] == "started"] == ["call_1", "call_1-2", "call_1-3"]
    assert [call["tool_id"] for call in calls if call["status"] == "completed"] == ["call_1", "call_1-2", "call_1-3"]
    stored_queries = [message["metadata"]["tool_arguments"]["query"] for message in stored if message["role"] == "tool"]
    assert stored_queries == [f'FUZZY "try {number}"' for number in range(3)]


def test_endless_answer_is_stopped(chat: Chat) -> None:
    chat.model.script = lambda _body: ["x" * 100_000] * 30
    with chat.http() as http:
        events = events_of(http, HI)
        stored = load_messages(http, named(events, "metadata")[-1]["session_id"])
    assert named(events, "error")[0]["code"] == "run_limit"
    assert len(stored[-1]["content"]) == len(text_of(events)) <= 2_000_000


def test_client_does_not_retry_a_failed_model(chat: Chat) -> None:
    from openai import APIStatusError, OpenAI

    chat.model.script = lambda _body: [Refuse(500)]
    session = str(uuid4())
    headers = {**chat.headers, "X-Session-Id": session}
    client = OpenAI(base_url=f"{chat.address}/v1", api_key="unused", default_headers=headers)
    with pytest.raises(APIStatusError):
        client.chat.completions.create(model="rem", messages=[{"role": "user", "content": "Hi"}])
    with chat.http() as http:
        assert len(load_messages(http, session)) == 1


def test_rate_limit_of_the_provider_is_status_429(chat: Chat) -> None:
    chat.model.script = lambda _body: [Refuse(429)]
    with chat.http() as http:
        refused = http.post("/v1/chat/completions", json=HI)
    assert refused.status_code == 429
    assert refused.headers["x-should-retry"] == "false"


def test_erased_session_is_not_restored_by_the_answer(chat: Chat) -> None:
    chat.model.script = lambda _body: ["I begin", Pause(1.0), " and end."]
    session = str(uuid4())
    with chat.http() as http:
        other = threading.Timer(0.4, lambda: http.delete(f"/api/v1/sessions/{session}", params={"erase": True}))
        other.start()
        events = events_of(http, HI, **{"X-Session-Id": session})
        other.join()
        assert text_of(events) == "I begin and end."
        assert named(events, "metadata")[-1]["flags"] == ["not_remembered"]
        assert http.get(f"/api/v1/sessions/{session}").status_code == 404


async def test_stopping_server_stores_running_answers(dsn: str, settings: Settings) -> None:
    session = uuid4()
    with scripted_model() as model:
        model.script = lambda _body: ["I begin to speak", Pause(30)]
        configured = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "LLM__BASE_URL": model.url,
            "LLM__DEFAULT_MODEL": "openai:scripted",
            "API__SHUTDOWN_SECONDS": "1",
        }
        with serving(settings=configured) as (address, process):
            headers = {"X-User-Id": "alice", "X-Session-Id": str(session)}
            body = {**HI, "stream": True}
            try:
                with httpx.stream(
                    "POST", f"{address}/v1/chat/completions", json=body, headers=headers, timeout=30
                ) as answer:
                    for line in answer.iter_lines():
                        if "I begin" in line:
                            process.send_signal(signal.SIGTERM)
            except httpx.TransportError:
                pass
            process.wait(30)
    async with Rem.open(settings) as rem:
        stored = await rem.for_user("alice").sessions.load_session(UUID(str(session)))
    assert [message.content for message in stored] == ["Hi", "I begin to speak"]
