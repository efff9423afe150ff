"""`/moments`: list moments by time, get one by key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from rem.db.store import Store
from rem.models import Moment

_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def days(alice: Store, shared: Store) -> None:
    """Store one meeting of an hour for each day, and one without an end."""
    moments = [
        Moment(
            name=f"Meeting {day}",
            category="work" if day % 2 else "home",
            starts_timestamp=_NOON + timedelta(days=day),
            ends_timestamp=_NOON + timedelta(days=day, hours=1),
        )
        for day in range(5)
    ]
    await alice.upsert_many([*moments, Moment(name="Someday")])
    await shared.upsert(Moment(name="Party", starts_timestamp=_NOON + timedelta(days=9)))


async def names(client: httpx2.AsyncClient, **asked: str | int) -> list[str]:
    page = (await client.get("/api/v1/moments", params=asked)).json()
    return [moment["name"] for moment in page["data"]]


async def test_moments_are_newest_first_and_undated_last(as_alice: httpx2.AsyncClient) -> None:
    assert await names(as_alice) == ["Party", *(f"Meeting {day}" for day in (4, 3, 2, 1, 0)), "Someday"]
    assert await names(as_alice, limit=2, offset=1) == ["Meeting 4", "Meeting 3"]


async def test_time_range_returns_overlapping_moments(as_alice: httpx2.AsyncClient) -> None:
    within = {"since": "2026-05-02T12:30:00Z", "until": "2026-05-03T13:00:00+01:00"}
    assert await names(as_alice, **within) == ["Meeting 1"]
    assert await names(as_alice, since="2026-05-05") == ["Party", "Meeting 4"]
    assert await names(as_alice, until="2026-05-02") == ["Meeting 0"]


async def test_moments_are_filtered_by_category_and_type(as_alice: httpx2.AsyncClient) -> None:
    assert await names(as_alice, category="work") == ["Meeting 3", "Meeting 1"]
    assert await names(as_alice, moment_type="unknown") == []


async def test_moment_is_found_by_key(as_alice: httpx2.AsyncClient, as_bob: httpx2.AsyncClient) -> None:
    assert (await as_alice.get("/api/v1/moments/meeting-3")).json()["category"] == "work"
    assert (await as_alice.get("/api/v1/moments/Meeting 3")).status_code == 200
    assert (await as_bob.get("/api/v1/moments/meeting-3")).status_code == 404
    assert await names(as_bob) == ["Party"]


async def test_invalid_time_error_names_the_field(as_alice: httpx2.AsyncClient) -> None:
    refused = await as_alice.get("/api/v1/moments", params={"since": "yesterday"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "since")
