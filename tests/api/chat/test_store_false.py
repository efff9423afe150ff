"""`store: false`: a turn leaves nothing in the database, whatever the agent does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2 as httpx
import pytest

from tests.api.chat.conftest import Chat
from tests.api.chat.sse_reader import events_of, named, text_of
from tests.cli.test_serve import serving
from tests.conftest import fresh_database
from tests.forget.text_traces import find_traces
from tests.scripted_model import Call, ScriptedModel, Step, has_result, scripted_model

SECRET = "quetzal-4711"
QUESTION = {"role": "user", "content": f"My code word is {SECRET}. Remember it."}
AGENT = """
type: object
description: You keep what the user says.
json_schema_extra:
  kind: agent
  name: careful
  tools: [{name: remember}, {name: forget}, {name: correct}, {name: search_rem}, {name: ask_agent}]
  consent: [irreversible, reversible_with_delay]
"""
CALLS = [
    Call("remember", {"text": f"My code word is {SECRET}."}),
    Call("forget", {"what": f"code word {SECRET}"}),
    Call("correct", {"what": "code word", "to": f"My code word is {SECRET}."}),
    Call("save_agent", {"definition": f"description: {SECRET}"}),
    Call("unknown_tool", {"text": SECRET}),
    Call("search_rem", {"query": f'SEARCH "{SECRET}"'}),
    Call("ask_agent", {"agent_name": "rem", "input_text": f"Remember that my code word is {SECRET}."}),
    Call("register_metadata", {"confidence": 0.9, "sources": [SECRET]}),
]


class Server:
    """A server with a database of its own, in which nobody else writes."""

    def __init__(self, address: str, dsn: str, model: ScriptedModel) -> None:
        self.dsn = dsn
        self.model = model
        self.http = httpx.Client(base_url=address, headers={"X-User-Id": "alice@example.com"}, timeout=60)

    def find_traces(self, text: str = SECRET) -> dict[str, int]:
        """Count the rows with a text, by column."""

        async def find() -> dict[str, int]:
            sql = await asyncpg.connect(self.dsn)
            try:
                return await find_traces(sql, text)
            finally:
                await sql.close()

        return asyncio.run(find())

    def count_rows(self) -> dict[str, int]:
        """Count the rows that a chat writes, by table."""

        async def count() -> dict[str, int]:
            sql = await asyncpg.connect(self.dsn)
            tables = ["messages", "sessions", "session_counters", "session_summaries", "approvals", "approval_runs"]
            tables += ["tool_gaps", "resources"]
            try:
                return {table: await sql.fetchval(f"SELECT count(*) FROM rem.{table}") for table in tables}
            finally:
                await sql.close()

        return asyncio.run(count())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    database = fresh_database()
    dsn = asyncio.run(database.__aenter__())
    try:
        with scripted_model() as model:
            settings = {
                "POSTGRES__CONNECTION_STRING": dsn,
                "LLM__BASE_URL": model.url,
                "LLM__OPENAI_API_KEY": "unused",
                "LLM__DEFAULT_MODEL": "openai:scripted",
            }
            with serving(settings=settings) as (address, _):
                server = Server(address, dsn, model)
                with server.http:
                    saved = server.http.post(
                        "/api/v1/agents", content=AGENT, headers={"Content-Type": "application/yaml"}
                    )
                    assert saved.is_success, saved.text
                    yield server
    finally:
        asyncio.run(database.__aexit__())


def answer_with_secret(_body: dict[str, Any]) -> list[Step]:
    return [f"Your code word is {SECRET}."]


@pytest.mark.parametrize("headers", [{}, {"X-Session-Id": "a new session"}, {"X-User-Id": ""}])
def test_a_turn_leaves_nothing(server: Server, headers: dict[str, str]) -> None:
    server.model.script = answer_with_secret
    before = server.count_rows()
    http = server.http
    body = {"messages": [{"role": "user", "content": "Earlier."}, {"role": "assistant", "content": SECRET}, QUESTION]}
    answer = http.post("/v1/chat/completions", json={**body, "store": False}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert SECRET in answer.json()["choices"][0]["message"]["content"]
    assert (answer.json()["session_id"], answer.json()["message_id"]) == (None, None)
    assert "x-session-id" not in answer.headers
    streamed = events_of(http, {**body, "store": False}, **headers)
    assert SECRET in text_of(streamed)
    given = {"input": body["messages"], "store": False}
    response = http.post("/v1/responses", json=given, headers=headers)
    assert SECRET in response.text
    assert SECRET in http.post("/v1/responses", json={**given, "stream": True}, headers=headers).text
    assert server.find_traces() == {}
    assert server.count_rows() == before
    assert http.get("/api/v1/sessions").json()["data"] == []


@pytest.mark.parametrize("agent", ["rem", "careful"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_tool_leaves_nothing(server: Server, agent: str, call: Call) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        return [f"Done with {SECRET}."] if has_result(body) or "tools" not in body else [call]

    server.model.script = script
    before = server.count_rows()
    headers = {"X-Agent-Schema": agent}
    answer = server.http.post("/v1/chat/completions", json={"messages": [QUESTION], "store": False}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["approval_id"] is None
    assert "Done with" in answer.json()["choices"][0]["message"]["content"]
    events = events_of(server.http, {"messages": [QUESTION], "store": False}, **headers)
    assert (named(events, "action_request"), "Done with" in text_of(events)) == ([], True)
    assert server.find_traces() == {}
    assert server.count_rows() == before


def test_calls_of_the_client_leave_nothing(server: Server) -> None:
    server.model.script = lambda body: (
        [f"It is {SECRET}."] if has_result(body) else [Call("get_word", {"of": SECRET}, id="call_7")]
    )
    before = server.count_rows()
    tool = {"type": "function", "function": {"name": "get_word", "parameters": {"type": "object", "properties": {}}}}
    body = {"messages": [QUESTION], "tools": [tool], "store": False}
    asked = server.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert [call["function"]["name"] for call in asked["tool_calls"]] == ["get_word"]
    result = {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": SECRET}
    told = server.http.post("/v1/chat/completions", json={**body, "messages": [QUESTION, asked, result]})
    assert told.json()["choices"][0]["message"]["content"] == f"It is {SECRET}."
    assert server.find_traces() == {}
    assert server.count_rows() == before


def test_a_session_is_read_and_not_continued(server: Server) -> None:
    server.model.script = lambda body: [f"I know {len(body['messages'])} messages."]
    session, http = str(uuid4()), server.http
    headers = {"X-Session-Id": session}
    http.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": "I live in Ribe."}]}, headers=headers
    )
    before, view = server.count_rows(), http.get(f"/api/v1/sessions/{session}").json()
    for _ in range(2):
        http.post("/v1/chat/completions", json={"messages": [QUESTION], "store": False}, headers=headers)
        assert "I live in Ribe." in str(server.model.requests[-1]["messages"])
        assert server.model.requests[-1]["messages"][-1]["content"] == QUESTION["content"]
    assert http.get(f"/api/v1/sessions/{session}").json() == view
    assert (server.count_rows(), server.find_traces()) == (before, {})
    stranger = {**headers, "X-User-Id": "bob@example.com"}
    http.post("/v1/chat/completions", json={"messages": [QUESTION], "store": False}, headers=stranger)
    assert "Ribe" not in str(server.model.requests[-1]["messages"])
    assert http.delete(f"/api/v1/sessions/{session}", params={"erase": True}).status_code == 204


def test_a_message_decides_on_nothing(server: Server) -> None:
    http, headers = server.http, {"X-Agent-Schema": "careful", "X-Session-Id": str(uuid4())}
    server.model.script = lambda body: ["Kept."] if has_result(body) else [Call("remember", {"text": "I like figs."})]
    asked = http.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": "Figs."}]}, headers=headers
    )
    approval = asked.json()["approval_id"]
    server.model.script = lambda _body: ["What?"]
    for text in ("yes", f"/approve {approval[:6]}", "no", f"/reject {approval[:6]}"):
        body = {"messages": [{"role": "user", "content": text}], "store": False}
        answer = http.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.json()["choices"][0]["message"]["content"] == "What?"
    card = {"card_id": f"approval-{approval}", "action_id": "approve", "inputs": {}}
    body = {"messages": [{"role": "user", "content": ""}], "action_submit": card, "store": False}
    refused = http.post("/v1/chat/completions", json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_input")
    assert http.get(f"/api/v1/approvals/{approval}").json()["status"] == "pending"


@pytest.mark.parametrize(("store", "sessions"), [(True, 1), (None, 1), (False, 0)])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_turn_is_stored_by_default(chat: Chat, path: str, store: bool | None, sessions: int) -> None:
    body = {"messages": [QUESTION]} if "chat" in path else {"input": "Hi"}
    with chat.http() as http:
        assert http.post(path, json={**body, "store": store}).status_code == 200
        assert len(http.get("/api/v1/sessions").json()["data"]) == sessions
        wrong_values: list[Any] = ["false", 0, []]
        for wrong in wrong_values:
            assert http.post(path, json={**body, "store": wrong}).status_code == 422
