"""`/forget`: the preview, the confirmed removal, and what is not removed."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from rem.db.store import Store
from rem.models import Edge, Resource, User


@pytest.fixture
async def memory(alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen", email="sarah@example.com"))
    await alice.upsert(Resource(name="Trip", content="Sarah Chen drives.", graph_edges=[Edge(dst="sarah-chen")]))


async def preview(by: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await by.post("/api/v1/forget/preview", json={"name": "Sarah Chen", **body})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


@pytest.mark.usefixtures("memory")
async def test_preview_lists_everything_and_changes_nothing(as_alice: httpx2.AsyncClient) -> None:
    shown = await preview(as_alice)
    assert [row["key"] for row in shown["rows"]] == ["sarah-chen"]
    assert [row["key"] for row in shown["facts"]] == ["trip"]
    assert [row["key"] for row in shown["mentions"]] == ["trip"]
    assert (shown["erased_count"], shown["is_empty"]) == (1, False)
    assert (await preview(as_alice, mentions=True))["erased_count"] == 2
    assert (await preview(as_alice)) == shown


@pytest.mark.usefixtures("memory")
async def test_confirmed_removal_is_complete(as_alice: httpx2.AsyncClient) -> None:
    shown = await preview(as_alice, mentions=True)
    body = {"name": "Sarah Chen", "mentions": True, "fingerprint": shown["fingerprint"]}
    done = (await as_alice.post("/api/v1/forget", json=body)).json()
    assert (done["is_gone"], done["erased"], done["left"]) == (True, {"resources": 1, "users": 1}, [])
    assert (await as_alice.get("/api/v1/entities/users/sarah-chen")).status_code == 404
    assert (await preview(as_alice))["is_empty"]


@pytest.mark.usefixtures("memory")
async def test_nothing_is_removed_if_it_has_changed_since_the_preview(
    as_alice: httpx2.AsyncClient, alice: Store
) -> None:
    shown = await preview(as_alice)
    await alice.upsert(Resource(name="Another trip", tags=["Sarah Chen"]))
    refused = await as_alice.post("/api/v1/forget", json={"name": "Sarah Chen", "fingerprint": shown["fingerprint"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert (await as_alice.get("/api/v1/entities/users/sarah-chen")).status_code == 200


@pytest.mark.usefixtures("memory")
async def test_memory_of_others_is_neither_shown_nor_removed(
    as_bob: httpx2.AsyncClient, as_alice: httpx2.AsyncClient
) -> None:
    shown = await preview(as_bob, mentions=True)
    assert (shown["is_empty"], shown["rows"], shown["mentions"], shown["shared"]) == (True, [], [], [])
    body = {"name": "Sarah Chen", "mentions": True, "fingerprint": shown["fingerprint"]}
    assert (await as_bob.post("/api/v1/forget", json=body)).json()["erased"] == {}
    assert (await as_alice.get("/api/v1/entities/users/sarah-chen")).status_code == 200
