"""`/dreams` and `/statements`: run dreams, look at what they learnt, and undo a run."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx2
import pytest

from rem.app import Rem
from rem.models import Role
from rem.sessions.message import NewMessage

_SAID = [
    "My colleague Nadia Petrova <nadia.petrova@acme.com> moves billing to Postgres 18 in April.",
    "What is the capital of France?",
    "I live in Aarhus.",
]


@pytest.fixture
async def session(rem: Rem) -> str:
    memory = rem.for_user("alice@example.com").sessions
    session = await memory.create_session()
    for text in _SAID:
        await memory.save_message(session.id, NewMessage(role=Role.USER, content=text))
    return str(session.id)


async def get(by: httpx2.AsyncClient, path: str, **asked: str) -> Any:
    answer = await by.get(f"/api/v1/{path}", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.usefixtures("session")
async def test_dream_now_and_read_the_report_later(as_alice: httpx2.AsyncClient, as_bob: httpx2.AsyncClient) -> None:
    done = (await as_alice.post("/api/v1/dreams")).json()
    assert any("Nadia Petrova" in line for line in done["learnt"])
    assert "1 question is no memory" in done["dropped"]
    (run,) = (await get(as_alice, "dreams"))["data"]
    assert (run["id"], run["state"], run["said"] > 0) == (done["run_id"], "done", True)
    report = await get(as_alice, f"dreams/{run['id']}")
    assert (report["learnt"], report["dropped"]) == (done["learnt"], done["dropped"])
    assert (await get(as_bob, "dreams"))["data"] == []
    assert (await as_alice.post("/api/v1/dreams")).json()["run_id"] is None


@pytest.mark.usefixtures("session")
async def test_statements_have_sources_and_a_run_can_be_undone(as_alice: httpx2.AsyncClient, session: str) -> None:
    run = (await as_alice.post("/api/v1/dreams")).json()["run_id"]
    listed = await get(as_alice, "statements", key="ontologies/nadia-petrova")
    assert listed["total"] >= len(listed["data"]) > 0
    assert f"session-{session}-msg-0" in {source for said in listed["data"] for source in said["sources"]}
    undone = (await as_alice.post(f"/api/v1/dreams/{run}/undo")).json()
    assert (undone["run_id"], undone["statements"] > 0) == (run, True)
    assert (await as_alice.get("/api/v1/entities/ontologies/nadia-petrova")).status_code == 404
    assert (await as_alice.post(f"/api/v1/dreams/{run}/undo")).status_code == 409
    assert (await get(as_alice, f"dreams/{run}"))["state"] == "undone"


async def test_unknown_runs_and_keys_are_not_found(as_alice: httpx2.AsyncClient) -> None:
    assert (await as_alice.get(f"/api/v1/dreams/{uuid4()}")).status_code == 404
    assert (await as_alice.post(f"/api/v1/dreams/{uuid4()}/undo")).status_code == 404
    assert (await as_alice.get("/api/v1/statements", params={"key": "nobody"})).status_code == 404
    assert await get(as_alice, "statements") == {"data": [], "total": 0, "hidden_links": 0}
