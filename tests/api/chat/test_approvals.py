"""An approval survives `kill -9` of the server between the request and the decision, over real HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest

from tests.api.chat.conftest import Chat
from tests.api.chat.sse_reader import events_of, named, text_of
from tests.cli.test_serve import serving
from tests.conftest import fresh_database
from tests.scripted_model import Call, ScriptedModel, Step, has_result, scripted_model

AGENT = """
type: object
description: You keep what the user says.
json_schema_extra:
  kind: agent
  name: careful
  tools: [{name: remember}]
  consent: [irreversible, reversible_with_delay]
"""


def keep(body: dict[str, Any]) -> list[Step]:
    if has_result(body):
        return ["Kept."]
    return [Call("remember", {"text": "My flight is SK1425."}, id="call_keep")]


def client(address: str) -> httpx.Client:
    return httpx.Client(base_url=address, headers={"X-User-Id": "alice@example.com"}, timeout=60)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[dict[str, str], ScriptedModel]]:
    """The settings of servers on one database and one model."""
    database = fresh_database()
    dsn = asyncio.run(database.__aenter__())
    try:
        with scripted_model() as model:
            model.script = keep
            yield (
                {
                    "POSTGRES__CONNECTION_STRING": dsn,
                    "LLM__BASE_URL": model.url,
                    "LLM__OPENAI_API_KEY": "unused",
                    "LLM__DEFAULT_MODEL": "openai:scripted",
                },
                model,
            )
    finally:
        asyncio.run(database.__aexit__())


def test_an_approval_survives_kill_9(servers: tuple[dict[str, str], ScriptedModel]) -> None:
    settings, _model = servers
    headers = {"X-Agent-Schema": "careful", "X-Session-Id": str(uuid4())}
    with serving(settings=settings) as (address, process):
        with client(address) as http:
            assert http.post("/api/v1/agents", content=AGENT, headers={"Content-Type": "application/yaml"}).is_success
            events = events_of(http, {"messages": [{"role": "user", "content": "Keep my flight."}]}, **headers)
        (asked,) = named(events, "action_request")
        assert "My flight is SK1425." in text_of(events)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    with serving(settings=settings) as (first, _), serving(settings=settings) as (second, _):
        with client(first) as http:
            (row,) = http.get("/api/v1/approvals", params={"status": "pending"}).json()["data"]
            assert asked["card"]["id"] == f"approval-{row['id']}"
            assert http.get("/api/v1/entities/resources").json()["data"] == []

        def decide(address: str) -> httpx.Response:
            with client(address) as http:
                return http.post(f"/api/v1/approvals/{row['id']}/decision", json={"decision": "approve"})

        # Eight people at two servers approve at once.
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(decide, [first, second] * 4))
        assert {answer.status_code for answer in answers} <= {200, 409}
        assert "Kept." in [answer.json()["answer"] for answer in answers if answer.status_code == 200]
        with client(second) as http:
            notes = http.get("/api/v1/entities/resources").json()["data"]
            assert [note["content"] for note in notes] == ["My flight is SK1425."]
            decided = http.get(f"/api/v1/approvals/{row['id']}").json()
            assert (decided["status"], decided["execution"]) == ("approved", "done")
            messages = http.get(f"/api/v1/sessions/{headers['X-Session-Id']}/messages").json()["data"]
            assert "Kept." in [message["content"] for message in messages]


def test_the_card_and_the_completion(chat: Chat) -> None:
    chat.model.script = keep
    with chat.http() as http:
        assert http.post("/api/v1/agents", content=AGENT, headers={"Content-Type": "application/yaml"}).is_success
        headers = {"X-Agent-Schema": "careful", "X-Session-Id": str(uuid4())}
        body = {"messages": [{"role": "user", "content": "Keep my flight."}]}
        asked = http.post("/api/v1/chat/completions", json=body, headers=headers)
        assert asked.status_code == 200, asked.text
        answer = asked.json()
        card = f"approval-{answer['approval_id']}"
        submit = {"card_id": card, "action_id": "approve", "inputs": {}}
        only_stored = http.post(f"/api/v1/sessions/{headers['X-Session-Id']}/actions", json=submit)
        assert (only_stored.status_code, "decide with POST" in only_stored.text) == (400, True)
        submitted = {"messages": [{"role": "user", "content": ""}], "action_submit": submit}
        assert text_of(events_of(http, submitted, **headers)) == "Kept."
        again = http.post("/api/v1/chat/completions", json=submitted, headers=headers)
        assert again.status_code == 409
