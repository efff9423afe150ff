"""Chat works without the database, and everything that needs memory reports an error."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.api.chat.sse_reader import events_of, named, text_of
from tests.cli.test_serve import serving
from tests.rem_command import rem
from tests.scripted_model import Call, ScriptedModel, has_result, scripted_model

_OFF = {"POSTGRES__ENABLED": "false"}


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        yield model


@pytest.fixture(scope="module")
def http(model: ScriptedModel) -> Iterator[httpx.Client]:
    settings = {**_OFF, "LLM__BASE_URL": model.url, "LLM__DEFAULT_MODEL": "openai:scripted"}
    with serving(settings=settings) as (address, _process), httpx.Client(base_url=address, timeout=30) as client:
        yield client


def test_chat_works_and_stores_nothing(http: httpx.Client, model: ScriptedModel) -> None:
    messages = [
        {"role": "user", "content": "I am Zoe"},
        {"role": "assistant", "content": "Hello Zoe"},
        {"role": "user", "content": "Who am I?"},
    ]
    answer = http.post("/v1/chat/completions", json={"messages": messages})
    assert answer.status_code == 200
    assert "x-session-id" not in answer.headers
    assert "I am Zoe" in str(model.requests[-1]["messages"])
    http.post("/v1/chat/completions", json={"messages": messages[:1]}, headers={"X-Session-Id": "same"})
    http.post("/v1/chat/completions", json={"messages": messages[2:]}, headers={"X-Session-Id": "same"})
    assert "I am Zoe" not in str(model.requests[-1]["messages"])


def test_tool_that_needs_memory_reports_an_error_to_the_model(http: httpx.Client, model: ScriptedModel) -> None:
    model.script = lambda body: ["So be it."] if has_result(body) else [Call("search_rem", {"query": 'LOOKUP "x"'})]
    events = events_of(http, {"messages": [{"role": "user", "content": "Look"}]})
    assert "POSTGRES__ENABLED" in str(named(events, "tool_call")[-1]["result"])
    assert text_of(events) == "So be it."


@pytest.mark.parametrize("path", ["/api/v1/sessions", "/api/v1/entities/users", "/api/v1/moments", "/api/v1/feedback"])
def test_routes_that_need_memory_report_an_error(http: httpx.Client, path: str) -> None:
    refused = http.get(path)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "memory_off"
    assert "POSTGRES__ENABLED" in refused.json()["error"]["message"]


def test_service_is_ready_and_lists_agents_and_models(http: httpx.Client) -> None:
    assert http.get("/health").status_code == 200
    assert "rem" in str(http.get("/api/v1/agents").json())
    assert http.get("/v1/models").status_code == 200


def test_commands_that_need_memory_report_an_error() -> None:
    refused = rem("query", 'LOOKUP "x"', settings=_OFF)
    assert refused.returncode == 5
    assert "POSTGRES__ENABLED" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_rem_ask_works_without_memory() -> None:
    done = rem("ask", "Hello", settings=_OFF)
    assert done.returncode == 0, done.stderr
    assert "No language model is configured" in done.stdout
