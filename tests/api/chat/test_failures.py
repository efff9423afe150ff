"""Failures of the model are reported clearly, and the session stays usable."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import openai
import pytest

from tests.api.chat.conftest import Chat
from tests.api.chat.sse_reader import events_of, named, text_of
from tests.scripted_model import Call, HangUp, Pause, Raw, Refuse, Step, has_result

HI = {"messages": [{"role": "user", "content": "Hi"}]}

FAILURES: dict[str, tuple[Sequence[Step], str]] = {
    "times out": (["Let me ", Pause(20)], "model_timeout"),
    "sends garbage": (["Let me ", Raw(b"data: {not json at all\n\n")], "model_error"),
    "closes in the middle": (["Let me ", HangUp()], "model_error"),
    "refuses the key": ([Refuse(401, "bad key sk-secret")], "model_error"),
    "is overloaded": ([Refuse(503)], "model_error"),
    "calls a tool that does not exist": ([Call("no_such_tool", {})], "model_error"),
    "calls a tool with wrong arguments": ([Call("search_rem", {"quarry": 1})], "model_error"),
    "calls a tool with what is no JSON": ([Call("search_rem", "{{{")], "model_error"),
    "loops": ([Call("search_rem", {"query": 'FUZZY "again"'})], "run_limit"),
    "says nothing": ([], "model_error"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_model_failure_is_one_error_event_and_the_session_stays_usable(chat: Chat, failure: str) -> None:
    steps, code = FAILURES[failure]
    chat.model.script = lambda _body: steps
    session = {"X-Session-Id": str(uuid4())}
    with chat.http() as http:
        events = events_of(http, HI, **session)
        error = named(events, "error")[0]
        assert error["error"]["code"] == error["code"] == code
        assert error["error"]["message"]
        assert "sk-secret" not in str(error)
        assert named(events, "done")[0]["reason"] == "error"
        said = text_of(events)
        stored = http.get(f"/api/v1/sessions/{session['X-Session-Id']}/messages").json()["data"]
        assert stored[0]["content"] == "Hi"
        if said:
            assert stored[-1]["content"] == said
        chat.model.script = lambda _body: ["Back again."]
        assert text_of(events_of(http, HI, **session)) == "Back again."


@pytest.mark.parametrize("failure", ["is overloaded", "loops", "sends garbage"])
def test_model_failure_without_stream_is_an_http_error(chat: Chat, failure: str) -> None:
    steps, code = FAILURES[failure]
    chat.model.script = lambda _body: steps
    with chat.http() as http:
        failed = http.post("/v1/chat/completions", json=HI)
    assert failed.status_code >= 400
    assert failed.json()["error"]["code"] == code


def test_openai_client_raises_the_error_event(chat: Chat) -> None:
    chat.model.script = lambda _body: ["Let me ", HangUp()]
    with pytest.raises(openai.APIError) as raised:
        for _ in chat.client().chat.completions.create(
            model="rem", messages=[{"role": "user", "content": "Hi"}], stream=True
        ):
            pass
    assert raised.value.code == "model_error"


def test_invalid_tool_call_can_be_corrected(chat: Chat) -> None:
    chat.model.script = lambda body: (
        ["Found nothing."]
        if "No rows" in str(body["messages"][-1]) or '"count"' in str(body["messages"][-1])
        else [Call("search_rem", {"query": 'FUZZY "x"'}, "call_2")]
        if has_result(body)
        else [Call("search_rem", {"query": "LOKUP x"}, "call_1")]
    )
    with chat.http() as http:
        events = events_of(http, HI)
    assert text_of(events) == "Found nothing."
    assert [call["status"] for call in named(events, "tool_call")] == ["started", "failed", "started", "completed"]


def test_disconnect_stops_the_model_and_stores_the_text_so_far(chat: Chat) -> None:
    chat.model.script = lambda _body: [
        "I begin",
        " to speak",
        *(step for _ in range(600) for step in (Pause(0.1), ".")),
    ]
    session = str(uuid4())
    with chat.http() as http:
        with http.stream(
            "POST", "/v1/chat/completions", json={**HI, "stream": True}, headers={"X-Session-Id": session}
        ) as answer:
            for line in answer.iter_lines():
                if "to speak" in line:
                    break
        wait_until(lambda: chat.model.open == 0)
        wait_until(lambda: len(load_messages(http, session)) == 2)
        stored = load_messages(http, session)
    assert stored[0]["content"] == "Hi"
    assert str(stored[1]["content"]).startswith("I begin to speak")
    assert stored[1]["metadata"]["interrupted"] is True


def test_disconnect_stops_a_silent_model(chat: Chat) -> None:
    chat.model.script = lambda _body: [Pause(1.5), "Late."]
    with chat.http() as http, pytest.raises(httpx.TimeoutException):
        http.post("/v1/chat/completions", json=HI, timeout=0.3)
    wait_until(lambda: chat.model.open == 0, seconds=1.0)


def load_messages(http: httpx.Client, session: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = http.get(f"/api/v1/sessions/{session}/messages").json()["data"]
    return messages


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
