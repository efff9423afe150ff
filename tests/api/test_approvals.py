"""`/approvals`: requests of the caller alone, decided once, with edited arguments if they fit."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2

from rem.app import Rem
from rem.approvals.approvals import Origin, Proposal, drop_stale_requests
from rem.models import Approval, Resource
from tests.forget.text_traces import find_traces

_ALICE = "alice@example.com"


async def ask(rem: Rem, user: str | None = _ALICE) -> Approval:
    """Store a request without a run, as an MCP client makes it."""
    proposal = Proposal("remember", {"text": "My flight is SK1425."}, "Keep a statement.", "Keep it?")
    return await rem.for_user(user).approvals.request(proposal, Origin())


async def test_list_get_and_approve(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    approval = await ask(rem)
    listed = (await as_alice.get("/api/v1/approvals", params={"status": "pending"})).json()
    assert [(row["id"], row["status"]) for row in listed["data"]] == [(str(approval.id), "pending")]
    shown = (await as_alice.get(f"/api/v1/approvals/{approval.id}")).json()
    assert shown["parameters"] == {"text": "My flight is SK1425."}
    assert "- text: My flight is SK1425." in shown["preview"]
    path = f"/api/v1/approvals/{approval.id}/decision"
    decided = await as_alice.post(path, json={"decision": "approve"})
    assert decided.status_code == 200, decided.text
    body = decided.json()
    assert (body["approval"]["status"], body["approval"]["execution"]) == ("approved", "done")
    assert (body["answer"], body["approval"]["decided_by"]) == ("Done: remember.", "user by API")
    again = await as_alice.post(path, json={"decision": "approve"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")
    assert await rem.for_user(_ALICE).store.count(Resource) == 1
    assert (await as_alice.get("/api/v1/approvals", params={"status": "pending"})).json()["data"] == []


async def test_one_of_six_concurrent_approvals_counts(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    for attempt in range(10):
        approval = await ask(rem)
        texts = [f"My flight {attempt} is SK{number}." for number in range(6)]
        bodies = [{"decision": "approve", "parameters": {"text": text}} for text in texts]
        answers = await _decide_at_once(as_alice, approval, bodies)
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
        winner = next(text for text, answer in zip(texts, answers, strict=True) if answer.status_code == 200)
        notes = [note.content for note in await rem.for_user(_ALICE).store.find(Resource)]
        assert [text for text in notes if text.startswith(f"My flight {attempt} ")] == [winner]
        assert len(notes) == attempt + 1


async def test_one_of_six_concurrent_streams_counts(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    texts = [f"My flight is SK{number}." for number in range(6)]
    bodies = [{"decision": "approve", "parameters": {"text": text}, "stream": True} for text in texts]
    answers = await _decide_at_once(as_alice, await ask(rem), bodies)
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
    winner = next(text for text, answer in zip(texts, answers, strict=True) if answer.status_code == 200)
    assert [note.content for note in await rem.for_user(_ALICE).store.find(Resource)] == [winner]


async def test_forgetting_drops_an_approved_request_that_never_began(
    as_alice: httpx2.AsyncClient, rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    proposal = Proposal("remember", {"text": "My flight is SK1425."}, "Keep a statement.", "Keep it?")
    approval = await rem.for_user(_ALICE).approvals.request(proposal, Origin(run='{"messages": "SK1425"}'))
    await rem.for_user(_ALICE).approvals.approve(approval, by="test")
    await rem.for_user(_ALICE).remember("I fly with SK1425.")
    request = await rem.for_user(_ALICE).changes.request_forget("SK1425")
    await rem.for_user(_ALICE).changes.confirm(request.code, by="test")
    assert await find_traces(sql, "SK1425") == {}
    refused = await as_alice.post(f"/api/v1/approvals/{approval.id}/decision", json={"decision": "approve"})
    assert refused.status_code == 409
    assert await rem.for_user(_ALICE).store.count(Resource) == 0


async def test_one_of_six_concurrent_corrections_counts(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    for attempt in range(4):
        await rem.for_user(_ALICE).remember(f"Train {attempt} leaves at 9:00.")
        request = await rem.for_user(_ALICE).changes.request_correction(
            f"train {attempt}", f"Train {attempt} leaves at 9:01."
        )
        texts = [f"Train {attempt} leaves at 9:1{number}." for number in range(6)]
        what = request.approval.parameters["what"]
        bodies = [{"decision": "approve", "parameters": {"what": what, "to": text}} for text in texts]
        answers = await _decide_at_once(as_alice, request.approval, bodies)
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 5
        winner = next(text for text, answer in zip(texts, answers, strict=True) if answer.status_code == 200)
        notes = [note.content for note in await rem.for_user(_ALICE).store.find(Resource)]
        assert [text for text in notes if text.startswith(f"Train {attempt} ")] == [winner]


async def test_approving_again_runs_the_recorded_arguments(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    approval = await ask(rem)
    # A process recorded the decision, and is gone.
    await rem.for_user(_ALICE).approvals.approve(approval, by="test", parameters={"text": "My flight is SK1427."})
    path = f"/api/v1/approvals/{approval.id}/decision"
    other = await as_alice.post(path, json={"decision": "approve", "parameters": {"text": "My flight is SK1425."}})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
    assert (await as_alice.post(path, json={"decision": "reject"})).status_code == 409
    assert (await as_alice.post(path, json={"decision": "approve"})).status_code == 200
    (note,) = await rem.for_user(_ALICE).store.find(Resource)
    assert note.content == "My flight is SK1427."


async def test_a_request_that_never_began_ends(
    as_alice: httpx2.AsyncClient, rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    approval = await ask(rem)
    await rem.for_user(_ALICE).approvals.approve(approval, by="test", parameters={"text": "My flight is SK1427."})
    assert await drop_stale_requests(rem.database) == 0
    await sql.execute("UPDATE rem.approvals SET decided_at = now() - interval '2 hours'")
    assert await drop_stale_requests(rem.database) == 1
    assert await find_traces(sql, "SK1427") == {}
    refused = await as_alice.post(f"/api/v1/approvals/{approval.id}/decision", json={"decision": "approve"})
    assert refused.status_code == 409
    assert (await as_alice.get(f"/api/v1/approvals/{approval.id}")).json()["status"] == "expired"


async def _decide_at_once(
    client: httpx2.AsyncClient, approval: Approval, bodies: list[dict[str, Any]]
) -> list[httpx2.Response]:
    path = f"/api/v1/approvals/{approval.id}/decision"
    return await asyncio.gather(*(client.post(path, json=body) for body in bodies))


async def test_wrong_decisions_change_nothing(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    approval = await ask(rem)
    path = f"/api/v1/approvals/{approval.id}/decision"
    for body, status in (
        ({}, 422),
        ({"decision": "maybe"}, 422),
        ({"decision": "approve", "user": "bob"}, 422),
        ({"decision": "approve", "parameters": {"text": ""}}, 400),
        ({"decision": "approve", "parameters": {"text": "x", "tags": "y"}}, 400),
        ({"decision": "approve", "parameters": {"text": "x\0y"}}, 400),
        ({"decision": "approve", "parameters": {"text": "x", "tags": ["\0"]}}, 400),
        ({"decision": "approve", "only": [1]}, 400),
    ):
        assert (await as_alice.post(path, json=body)).status_code == status, body
    assert (await as_alice.get("/api/v1/approvals?status=maybe")).status_code == 422
    assert (await as_alice.get("/api/v1/approvals/7")).status_code == 422
    assert (await as_alice.get(f"/api/v1/approvals/{uuid4()}")).status_code == 404
    assert await rem.for_user(_ALICE).store.count(Resource) == 0
    edited = {"decision": "approve", "parameters": {"text": "My flight is SK1427."}}
    assert (await as_alice.post(path, json=edited)).status_code == 200
    (note,) = await rem.for_user(_ALICE).store.find(Resource)
    assert note.content == "My flight is SK1427."


async def test_a_request_of_another_user_does_not_exist(
    as_bob: httpx2.AsyncClient, anyone: httpx2.AsyncClient, rem: Rem
) -> None:
    approval = await ask(rem)
    for client in (as_bob, anyone):
        assert (await client.get("/api/v1/approvals")).json()["data"] == []
        assert (await client.get(f"/api/v1/approvals/{approval.id}")).status_code == 404
        for decision in ("approve", "reject"):
            path = f"/api/v1/approvals/{approval.id}/decision"
            assert (await client.post(path, json={"decision": decision})).status_code == 404
    assert (await rem.for_user(_ALICE).approvals.get(approval.id)).status == "pending"


async def test_an_expired_request_is_refused(
    as_alice: httpx2.AsyncClient, rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    approval = await ask(rem)
    await sql.execute("UPDATE rem.approvals SET decide_by = now() - interval '1 s'")
    refused = await as_alice.post(f"/api/v1/approvals/{approval.id}/decision", json={"decision": "approve"})
    assert (refused.status_code, "time to decide" in refused.text) == (409, True)
    assert (await as_alice.get(f"/api/v1/approvals/{approval.id}")).json()["status"] == "expired"


async def test_some_rows_of_a_change(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    for text in ("Marta likes tea.", "Marta moved to Leeds."):
        await rem.for_user(_ALICE).remember(text)
    request = await rem.for_user(_ALICE).changes.request_forget("Marta")
    path = f"/api/v1/approvals/{request.approval.id}"
    assert (await as_alice.get(path)).json()["preview"] == request.preview
    for body in ({"only": [3]}, {"parameters": {"what": "everything"}}):
        refused = await as_alice.post(f"{path}/decision", json={"decision": "approve", **body})
        assert refused.status_code == 400, refused.text
    done = await as_alice.post(f"{path}/decision", json={"decision": "approve", "only": [1]})
    assert done.json()["answer"].startswith("Forgotten: 1 text erased for good")
    assert [note.content for note in await rem.for_user(_ALICE).store.find(Resource)] == [request.rows[1].text]
    streamed = await as_alice.post(f"{path}/decision", json={"decision": "approve", "stream": True})
    assert "approved before" in streamed.text


async def test_requests_cannot_be_written_as_entities(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    approval = await ask(rem)
    table = "/api/v1/entities/approvals"
    forged = {"action_type": "forget", "action_description": "x", "risk_level": "irreversible", "tool_name": "forget"}
    answers = [
        await as_alice.post(table, json={**forged, "proposal": {"rows": [["pg_class", "x", "y"]]}}),
        await as_alice.patch(f"{table}/{approval.id}", json={"parameters": {"text": "another"}}),
        await as_alice.post(f"/api/v1/restore/approvals/{approval.id}"),
    ]
    assert [answer.status_code for answer in answers] == [400, 400, 400]
    assert "decide on one with POST /api/v1/approvals/" in answers[0].text
    assert (await as_alice.get(f"{table}/{approval.id}")).status_code == 200
