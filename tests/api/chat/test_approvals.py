"""An approval survives `kill -9` of the server between the request and the decision, over real HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import asyncpg
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


def keep_then_quote(body: dict[str, Any]) -> list[Step]:
    """Call remember, and then quote its result."""
    return [str(body["messages"][-1]["content"])] if has_result(body) else keep(body)


def ask(http: httpx.Client, session: str | None = None) -> str:
    """Let the agent ask whether it may keep the flight. Return the id of the request."""
    headers = {"X-Agent-Schema": "careful", "X-Session-Id": session or str(uuid4())}
    body = {"messages": [{"role": "user", "content": "Keep my flight."}]}
    asked = http.post("/api/v1/chat/completions", json=body, headers=headers)
    assert asked.status_code == 200, asked.text
    return str(asked.json()["approval_id"])


def save_agent(http: httpx.Client) -> None:
    assert http.post("/api/v1/agents", content=AGENT, headers={"Content-Type": "application/yaml"}).is_success


def list_notes(http: httpx.Client) -> list[str]:
    return [note["content"] for note in http.get("/api/v1/entities/resources").json()["data"]]


def decide_at_once(http: httpx.Client, approval: str, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    """Send several decisions on a request at the same time."""
    start = Barrier(len(bodies))

    def decide(body: dict[str, Any]) -> httpx.Response:
        start.wait()
        return http.post(f"/api/v1/approvals/{approval}/decision", json=body)

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(decide, bodies))


@contextmanager
def blocked_messages(dsn: str) -> Iterator[Callable[[str], bool]]:
    """Let nobody store a message, so that a server stops between a decision and its action.

    Yield a function that tells whether the request with an id is approved.
    """
    with asyncio.Runner() as runner:
        sql = runner.run(asyncpg.connect(dsn))
        try:
            runner.run(sql.execute("BEGIN; LOCK TABLE rem.messages IN SHARE MODE"))
            statement = "SELECT status = 'approved' FROM rem.approvals WHERE id = $1"
            yield lambda approval: bool(runner.run(sql.fetchval(statement, UUID(approval))))
        finally:
            runner.run(sql.close())


@contextmanager
def killed_between_decision_and_action(
    settings: dict[str, str], user: str, body: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Send a decision to a server that is killed before the action begins. Yield the request and its session."""
    session = str(uuid4())
    with serving(settings=settings) as (address, process), client(address, user) as http:
        save_agent(http)
        approval = ask(http, session)
        with blocked_messages(settings["POSTGRES__CONNECTION_STRING"]) as is_approved, ThreadPoolExecutor(1) as pool:
            sent = pool.submit(http.post, f"/api/v1/approvals/{approval}/decision", json=body)
            deadline = time.monotonic() + 60
            while not is_approved(approval):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.kill_with_children()
            process.wait(10)
            assert isinstance(sent.exception(30), httpx.TransportError)
    yield approval, session


def client(address: str, user: str = "alice@example.com") -> httpx.Client:
    return httpx.Client(base_url=address, headers={"X-User-Id": user}, timeout=60)


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
        process.kill_with_children()
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
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
        assert [answer.json()["answer"] for answer in answers if answer.status_code == 200] == ["Kept."]
        assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409} == {"conflict"}
        with client(second) as http:
            notes = http.get("/api/v1/entities/resources").json()["data"]
            assert [note["content"] for note in notes] == ["My flight is SK1425."]
            decided = http.get(f"/api/v1/approvals/{row['id']}").json()
            assert (decided["status"], decided["execution"]) == ("approved", "done")
            messages = http.get(f"/api/v1/sessions/{headers['X-Session-Id']}/messages").json()["data"]
            assert "Kept." in [message["content"] for message in messages]


def test_approving_again_after_kill_9_runs_the_recorded_arguments(
    servers: tuple[dict[str, str], ScriptedModel],
) -> None:
    settings, model = servers
    edited = {"decision": "approve", "parameters": {"text": "My flight is SK1427."}}
    with killed_between_decision_and_action(settings, "bob@example.com", edited) as (approval, _session):
        model.script = keep_then_quote
        with serving(settings=settings) as (address, _), client(address, "bob@example.com") as http:
            path = f"/api/v1/approvals/{approval}"
            row = http.get(path).json()
            assert (row["status"], row["execution"], row["parameters"]) == ("approved", None, edited["parameters"])
            assert list_notes(http) == []
            for other in (
                {"decision": "approve", "parameters": {"text": "My flight is SK1425."}},
                {"decision": "approve", "parameters": {"text": "My flight is SK9999."}},
                {"decision": "reject"},
            ):
                refused = http.post(f"{path}/decision", json=other)
                assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
            done = http.post(f"{path}/decision", json={"decision": "approve"})
            assert done.status_code == 200, done.text
            assert "SK1427" in done.json()["answer"]
            assert list_notes(http) == ["My flight is SK1427."]
            for again in ({"decision": "approve"}, edited, {"decision": "reject"}):
                assert http.post(f"{path}/decision", json=again).status_code == 409
            assert list_notes(http) == ["My flight is SK1427."]
        model.script = keep


def test_a_code_resumes_an_approved_request_after_kill_9(servers: tuple[dict[str, str], ScriptedModel]) -> None:
    settings, model = servers
    edited = {"decision": "approve", "parameters": {"text": "My flight is SK1428."}}
    with killed_between_decision_and_action(settings, "carol@example.com", edited) as (approval, session):
        model.script = keep_then_quote
        with serving(settings=settings) as (address, _), client(address, "carol@example.com") as http:
            body = {"messages": [{"role": "user", "content": f"/approve {approval[:6]}"}]}
            answer = http.post("/api/v1/chat/completions", json=body, headers={"X-Session-Id": session})
            assert "SK1428" in answer.json()["choices"][0]["message"]["content"]
            assert list_notes(http) == ["My flight is SK1428."]
        model.script = keep


def test_one_of_six_concurrent_approvals_counts(chat: Chat) -> None:
    chat.model.script = keep
    texts = [f"My flight is SK{number}." for number in range(6)]
    kept: list[str] = []
    with chat.http() as http:
        save_agent(http)
        for _ in range(8):
            approval = ask(http)
            bodies = [{"decision": "approve", "parameters": {"text": text}} for text in texts]
            answers = decide_at_once(http, approval, bodies)
            assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
            assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409} == {"conflict"}
            winner = next(number for number, answer in enumerate(answers) if answer.status_code == 200)
            found = list_notes(http)
            assert sorted(found) == sorted({*kept, texts[winner]})
            kept = found
            row = http.get(f"/api/v1/approvals/{approval}").json()
            assert (row["status"], row["execution"], row["parameters"]) == ("approved", "done", {})


def test_one_of_six_concurrent_equal_approvals_counts(chat: Chat) -> None:
    chat.model.script = keep
    with chat.http() as http:
        save_agent(http)
        for body in ({"decision": "approve"}, {"decision": "approve", "parameters": {"text": "My flight is SK7."}}):
            for _ in range(4):
                answers = decide_at_once(http, ask(http), [body] * 6)
                assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
        assert sorted(list_notes(http)) == ["My flight is SK1425.", "My flight is SK7."]


def test_approving_and_rejecting_at_once(chat: Chat) -> None:
    chat.model.script = lambda body: (
        ["Good."] if has_result(body) else [Call("remember", {"text": body["messages"][-1]["content"]})]
    )
    with chat.http() as http:
        save_agent(http)
        for number in range(8):
            headers = {"X-Agent-Schema": "careful", "X-Session-Id": str(uuid4())}
            asking = {"messages": [{"role": "user", "content": f"My flight is LH{number}."}]}
            approval = http.post("/api/v1/chat/completions", json=asking, headers=headers).json()["approval_id"]
            bodies = [{"decision": "approve"}, {"decision": "reject"}] * 3
            answers = decide_at_once(http, approval, bodies)
            assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
            winner = next(body for body, answer in zip(bodies, answers, strict=True) if answer.status_code == 200)
            row = http.get(f"/api/v1/approvals/{approval}").json()
            is_approved = winner["decision"] == "approve"
            assert (row["status"], row["execution"]) == (("approved", "done") if is_approved else ("rejected", None))
            assert (f"My flight is LH{number}." in list_notes(http)) is is_approved


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
