"""`/agents` and `/models`: save, list and run agents; list models."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
import yaml

from rem.agents.tool_gaps import ToolGapReport, store_tool_gaps
from rem.db.store import Store
from rem.models import User
from tests.cases import cases

Client = httpx2.AsyncClient

COOK = """\
type: object
description: |
  You answer questions about cooking.
  Größe matters.
properties: {}
json_schema_extra:
  kind: agent
  name: cook
  version: 1.2.0
  tools:
    - name: search_rem
"""
_AS_YAML = {"Content-Type": "application/yaml"}


async def save(client: Client, text: str = COOK) -> httpx2.Response:
    return await client.post("/api/v1/agents", content=text.encode(), headers=_AS_YAML)


async def test_built_in_agents_are_listed(anyone: Client) -> None:
    agents = {agent["name"]: agent for agent in (await anyone.get("/api/v1/agents")).json()["data"]}
    assert {"rem", "query-agent", "orchestrator", "summarizer", "simulator"} <= set(agents)
    assert agents["rem"]["source"] == "built in"
    assert "search_rem" in agents["rem"]["tools"]


async def test_agent_saved_as_yaml_is_returned_as_json_and_yaml(as_alice: Client) -> None:
    saved = await save(as_alice)
    assert saved.status_code == 200
    assert (saved.json()["name"], saved.json()["source"], saved.json()["tools"]) == ("cook", "database", ["search_rem"])
    document = (await as_alice.get("/api/v1/agents/cook")).json()
    assert document["json_schema_extra"]["version"] == "1.2.0"
    for asked in ({"params": {"format": "yaml"}}, {"headers": {"Accept": "application/yaml"}}):
        written = await as_alice.get("/api/v1/agents/cook", **asked)  # type: ignore[arg-type]
        assert written.headers["content-type"].startswith("application/yaml")
        assert yaml.safe_load(written.text) == document


async def test_agent_read_as_json_can_be_changed_and_put_back(as_alice: Client) -> None:
    await save(as_alice)
    document = (await as_alice.get("/api/v1/agents/cook")).json()
    document["description"] = "You bake."
    assert (await as_alice.put("/api/v1/agents/cook", json=document)).status_code == 200
    assert (await as_alice.get("/api/v1/agents/cook")).json()["description"] == "You bake."
    other = await as_alice.put("/api/v1/agents/baker", json=document)
    assert other.status_code == 400
    assert "'cook'" in other.json()["error"]["message"]


async def test_saved_agent_is_private_and_can_be_deleted(as_alice: Client, as_bob: Client) -> None:
    await save(as_alice)
    assert (await as_bob.get("/api/v1/agents/cook")).status_code == 404
    assert (await as_bob.delete("/api/v1/agents/cook")).status_code == 404
    assert "cook" not in (await as_bob.get("/api/v1/agents")).text
    assert (await as_alice.delete("/api/v1/agents/cook")).status_code == 204
    missing = await as_alice.get("/api/v1/agents/cook")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "agent_not_found")


async def test_invalid_agent_is_refused_with_line_numbers(as_alice: Client) -> None:
    refused = await save(as_alice, COOK.replace("search_rem", "serch_rem"))
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "agent_invalid")
    assert "line 11" in error["message"]
    assert "search_rem" in error["message"]


@cases("body", [b"", b"\xff\xfe", b"[]", b"a: &a [*a]", b"x" * 300_000, b"{" * 5000])
async def test_body_that_is_not_an_agent_is_refused(as_alice: Client, body: bytes) -> None:
    refused = await as_alice.post("/api/v1/agents", content=body, headers=_AS_YAML)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"]


@cases("kind", ["image/png", "text/plain", "application/x-www-form-urlencoded", ""])
async def test_agent_needs_a_yaml_or_json_content_type(as_alice: Client, kind: str) -> None:
    refused = await as_alice.post("/api/v1/agents", content=COOK.encode(), headers={"Content-Type": kind})
    assert (refused.status_code, refused.json()["error"]["code"]) == (415, "unsupported_media_type")


async def test_name_of_a_built_in_agent_is_refused(as_alice: Client) -> None:
    assert (await save(as_alice, COOK.replace("name: cook", "name: rem"))).status_code == 409
    assert (await as_alice.delete("/api/v1/agents/rem")).status_code == 409


async def test_run_returns_the_answer(as_alice: Client, alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen", summary="Sarah Chen leads the API team."))
    run = await as_alice.post("/api/v1/agents/rem/run", json={"input": "Who is Sarah Chen?"})
    assert run.status_code == 200, run.text
    answer: dict[str, Any] = run.json()
    assert "API team" in answer["answer"]
    assert answer["tool_calls"] == []
    assert answer["agent"] == "rem"
    assert answer["timestamp"]
    assert 0 <= answer["confidence"] <= 1
    assert answer["tool_gaps"] == []
    assert answer["session_id"] == run.headers["x-session-id"]
    messages = (await as_alice.get(f"/api/v1/sessions/{answer['session_id']}/messages")).json()["data"]
    assert (messages[0]["role"], messages[0]["content"]) == ("user", "Who is Sarah Chen?")
    assert messages[-1]["content"] == answer["answer"]


async def test_missing_tools_are_listed(as_alice: Client, as_bob: Client, alice: Store) -> None:
    reports = [
        ToolGapReport(agent="rem", missing_tools=["send_email", "book_flight"], attempted_task="Fly to Rome."),
        ToolGapReport(agent="rem", missing_tools=["send_email"], attempted_task="Write to Sarah."),
    ]
    for report in reports:
        await store_tool_gaps(alice, [report], None)
    rows = (await as_alice.get("/api/v1/tool-gaps")).json()["data"]
    assert [(row["missing_tools"], row["occurrences"]) for row in rows] == [(["send_email"], 2), (["book_flight"], 1)]
    assert rows[0]["attempted_task"] == "Write to Sarah."
    assert (await as_bob.get("/api/v1/tool-gaps")).json()["data"] == []


async def test_run_continues_the_given_session(as_alice: Client) -> None:
    for name in ("session_id", "header"):
        headers = {"X-Session-Id": "talk"} if name == "header" else {}
        body = {"input": "demo"} if name == "header" else {"input": "demo", "session_id": "talk"}
        assert (await as_alice.post("/api/v1/agents/simulator/run", json=body, headers=headers)).status_code == 200
    messages = (await as_alice.get("/api/v1/sessions/talk/messages")).json()["data"]
    assert [message["role"] for message in messages].count("user") == 2


async def test_unknown_agent_or_model_is_not_found(as_alice: Client) -> None:
    unknown = await as_alice.post("/api/v1/agents/rme/run", json={"input": "Hello"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "agent_not_found")
    assert "rem" in unknown.json()["error"]["message"]
    model = await as_alice.post("/api/v1/agents/rem/run", json={"input": "Hello", "model": "nobody:knows"})
    assert (model.status_code, model.json()["error"]["code"]) == (404, "model_not_found")
    assert model.json()["error"]["param"] == "model"


@pytest.mark.parametrize("path", ["/api/v1/models", "/v1/models"])
async def test_models_are_listed_in_openai_format(anyone: Client, path: str) -> None:
    listed = (await anyone.get(path)).json()
    assert listed["object"] == "list"
    assert {"rem", "rem:local"} <= {model["id"] for model in listed["data"]}
    for model in listed["data"]:
        assert (await anyone.get(f"{path}/{model['id']}")).json() == model
    missing = await anyone.get(f"{path}/gpt-nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_openai_client_lists_the_models(address: str) -> None:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
        assert "rem:local" in [model.id async for model in client.models.list()]
        assert (await client.models.retrieve("rem:local")).owned_by == "rem"


async def test_agent_can_be_saved_as_json(as_alice: Client) -> None:
    document = json.dumps(yaml.safe_load(COOK))
    saved = await as_alice.post("/api/v1/agents", content=document, headers={"Content-Type": "application/json"})
    assert saved.json()["name"] == "cook"
