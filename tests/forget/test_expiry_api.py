"""Clients set expiry times through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.db.store import Store
from rem.settings import Settings
from tests.api.live_server import client, served
from tests.dreams.sample_claims import claim_moment, start_run, store_note, to_ref

_THEN = "2030-12-01T00:00:00Z"


@pytest.fixture
async def as_alice(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(create_app(settings)) as address, client(address, "alice@example.com") as opened:
        yield opened


async def test_patch_expires_session_with_its_messages(as_alice: httpx2.AsyncClient) -> None:
    created = (await as_alice.post("/api/v1/sessions", json={"name": "Trip"})).json()
    await as_alice.post("/api/v1/agents/rem/run", json={"input": "Hello", "session_id": created["id"]})
    assert created["expires_at"] is None
    path = f"/api/v1/sessions/{created['id']}"
    changed = await as_alice.patch(path, json={"expires_at": _THEN})
    assert (changed.status_code, changed.json()["expires_at"], changed.json()["name"]) == (200, _THEN, "Trip")
    renamed = await as_alice.patch(path, json={"name": "The trip"})
    assert (renamed.json()["name"], renamed.json()["expires_at"]) == ("The trip", _THEN)
    messages = (await as_alice.get("/api/v1/entities/messages")).json()["data"]
    assert {message["expires_at"] for message in messages} == {_THEN}
    lasting = await as_alice.patch(path, json={"name": None, "expires_at": None})
    assert (lasting.json()["name"], lasting.json()["expires_at"]) == (None, None)
    for nothing in ({}, {"expires_at": "soon"}):
        assert (await as_alice.patch(path, json=nothing)).status_code in (400, 422)
    assert (await as_alice.patch(path, json={"expires_at": "2001-01-01T00:00:00Z"})).status_code == 200
    assert (await as_alice.get(path)).status_code == 404
    assert (await as_alice.get("/api/v1/entities/messages")).json()["data"] == []


async def test_patch_expires_entity(as_alice: httpx2.AsyncClient) -> None:
    await as_alice.post("/api/v1/entities/resources", json={"name": "Spot", "content": "B12", "expires_at": _THEN})
    path = "/api/v1/entities/resources/spot"
    assert (await as_alice.get(path)).json()["expires_at"] == _THEN
    assert (await as_alice.patch(path, json={"expires_at": None})).json()["expires_at"] is None
    await as_alice.patch(path, json={"expires_at": "2001-01-01T00:00:00Z"})
    assert (await as_alice.get(path)).status_code == 404


async def test_patched_expiry_makes_dreamt_row_the_owners(rem: Rem, alice: Store, as_alice: httpx2.AsyncClient) -> None:
    plan = await store_note(alice, "plan")
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim_moment("the plan", plan)])
    path = "/api/v1/entities/moments/the-plan"
    assert (await as_alice.patch(path, json={"expires_at": _THEN})).json()["expires_at"] == _THEN
    await (await start_run(rem, alice)).store_claims(
        "moments", to_ref(plan), [claim_moment("the plan, in other words", plan)]
    )
    (left,) = (await as_alice.get("/api/v1/entities/moments")).json()["data"]
    assert (left["key"], left["expires_at"], left["origin"]) == ("the-plan", _THEN, "user")
