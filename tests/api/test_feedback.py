"""`/feedback`: rate sessions and messages that the caller may read."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx2
import pytest

Client = httpx2.AsyncClient


@pytest.fixture
async def session(as_alice: Client) -> dict[str, Any]:
    """Create a session of Alice with messages."""
    begun: dict[str, Any] = (await as_alice.post("/api/v1/sessions")).json()
    await as_alice.post("/api/v1/agents/simulator/run", json={"input": "demo", "session_id": begun["id"]})
    return begun


async def test_session_and_message_can_be_rated(as_alice: Client, session: dict[str, Any]) -> None:
    given = {"session_id": session["id"], "rating": 5, "categories": ["helpful"], "comment": "Größe! 🎉"}
    rated = await as_alice.post("/api/v1/feedback", json=given)
    assert rated.status_code == 201
    assert {name: rated.json()[name] for name in given} == given
    key = f"session-{session['id']}-msg-0"
    message = await as_alice.post(
        "/api/v1/feedback", json={"session_id": session["id"], "message_id": key, "rating": -1}
    )
    listed = (await as_alice.get("/api/v1/feedback")).json()["data"]
    assert listed == [message.json(), rated.json()]
    assert (await as_alice.get(f"/api/v1/messages/{message.json()['message_id']}")).json()["key"] == key
    assert (await as_alice.get("/api/v1/feedback", params={"session_id": str(uuid4())})).json()["data"] == []


async def test_shared_session_can_be_rated_by_its_reader(
    as_alice: Client, as_bob: Client, session: dict[str, Any]
) -> None:
    rating = {"session_id": session["id"], "message_id": f"session-{session['id']}-msg-0", "rating": 1}
    assert (await as_bob.post("/api/v1/feedback", json=rating)).status_code == 404
    await as_alice.post(f"/api/v1/sessions/{session['id']}/share", json={"user": "bob@example.com"})
    assert (await as_bob.post("/api/v1/feedback", json=rating)).status_code == 201
    assert len((await as_bob.get("/api/v1/feedback")).json()["data"]) == 1
    assert (await as_alice.get("/api/v1/feedback")).json()["data"] == []


async def test_session_is_derived_from_the_message(as_alice: Client, as_bob: Client, session: dict[str, Any]) -> None:
    key = f"session-{session['id']}-msg-0"
    message_id = (await as_alice.get(f"/api/v1/messages/{key}")).json()["id"]
    await as_alice.post(f"/api/v1/sessions/{session['id']}/share", json={"user": "bob@example.com"})
    for person in (as_alice, as_bob):
        for name in (key, message_id):
            rated = await person.post("/api/v1/feedback", json={"message_id": name, "rating": 1})
            assert rated.status_code == 201, rated.text
            assert (rated.json()["session_id"], rated.json()["message_id"]) == (session["id"], message_id)
    await as_alice.delete(f"/api/v1/sessions/{session['id']}/share/bob@example.com")
    assert (await as_bob.post("/api/v1/feedback", json={"message_id": key, "rating": 1})).status_code == 404


async def test_anonymous_caller_rates_a_message_by_its_key(anyone: Client) -> None:
    session = (await anyone.post("/api/v1/sessions")).json()["id"]
    await anyone.post("/api/v1/agents/simulator/run", json={"input": "demo", "session_id": session})
    rated = await anyone.post("/api/v1/feedback", json={"message_id": f"session-{session}-msg-0", "rating": 1})
    assert (rated.status_code, rated.json()["session_id"]) == (201, session)


async def test_rating_needs_a_message_or_a_session(as_alice: Client) -> None:
    refused = await as_alice.post("/api/v1/feedback", json={"rating": 1})
    assert refused.status_code == 400
    assert "message_id or a session_id" in refused.json()["error"]["message"]


async def test_message_of_another_session_is_not_found(as_alice: Client, session: dict[str, Any]) -> None:
    other = (await as_alice.post("/api/v1/sessions")).json()["id"]
    rating = {"session_id": other, "message_id": f"session-{session['id']}-msg-0", "rating": 1}
    assert (await as_alice.post("/api/v1/feedback", json=rating)).status_code == 404


@pytest.mark.parametrize("given", [{"rating": 6}, {"rating": "good"}, {"comment": 5}, {"comment": "a\0b"}])
async def test_invalid_rating_error_names_the_field(
    as_alice: Client, session: dict[str, Any], given: dict[str, Any]
) -> None:
    refused = await as_alice.post("/api/v1/feedback", json={"session_id": session["id"], **given})
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == next(iter(given))


async def test_rating_needs_a_value(as_alice: Client, session: dict[str, Any]) -> None:
    nothings: list[dict[str, Any]] = [{}, {"comment": "  "}, {"categories": []}]
    for nothing in nothings:
        refused = await as_alice.post("/api/v1/feedback", json={"session_id": session["id"], **nothing})
        assert refused.status_code == 400
