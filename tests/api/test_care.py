"""`/jobs`, `/profile`, `/storage`, `/sample` and `/dreams/audit`: look after one's own memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.context import resolve_user_id
from rem.demo import DEMO_TENANT
from rem.jobs.queue import JobQueue
from rem.models import Resource, User
from rem.settings import AuthSettings, Settings
from tests.api.live_server import client, served

ALICE = "alice@example.com"


async def add_job(rem: Rem, *, is_dead: bool) -> int:
    payload = {"tenant_id": "default", "user_id": resolve_user_id(ALICE), "file_id": None}
    job = await JobQueue(rem.database).enqueue("care-test", payload, delay=timedelta(days=1))
    assert job is not None
    if is_dead:
        async with rem.database.connection() as connection:
            await connection.execute("UPDATE rem_jobs.jobs SET state = 'dead' WHERE id = $1", job)
    return job


async def test_a_dead_job_is_retried_by_its_owner_alone(
    rem: Rem, as_alice: httpx2.AsyncClient, as_bob: httpx2.AsyncClient
) -> None:
    job = await add_job(rem, is_dead=True)
    (listed,) = (await as_alice.get("/api/v1/jobs")).json()["data"]
    assert (listed["id"], listed["kind"], listed["state"]) == (job, "care-test", "dead")
    assert (await as_bob.get("/api/v1/jobs")).json()["data"] == []
    assert (await as_bob.post(f"/api/v1/jobs/{job}/retry")).status_code == 404
    assert (await as_alice.post(f"/api/v1/jobs/{job}/retry")).json()["state"] == "queued"
    assert (await as_alice.post(f"/api/v1/jobs/{job}/retry")).status_code == 409
    assert (await as_alice.post("/api/v1/jobs/999999999/retry")).status_code == 404


async def test_the_profile_is_the_row_of_the_caller(
    rem: Rem, as_alice: httpx2.AsyncClient, as_bob: httpx2.AsyncClient
) -> None:
    assert (await as_alice.get("/api/v1/profile")).json() == {"row": None, "is_dreamt": False}
    await rem.for_user(ALICE).store.upsert(User(name="Alice", email=ALICE, summary="Keeps bees."))
    profile = (await as_alice.get("/api/v1/profile")).json()
    assert (profile["row"]["summary"], profile["is_dreamt"]) == ("Keeps bees.", False)
    assert (await as_bob.get("/api/v1/profile")).json()["row"] is None


async def test_storage_counts_own_rows(rem: Rem, as_alice: httpx2.AsyncClient, as_bob: httpx2.AsyncClient) -> None:
    store = rem.for_user(ALICE).store
    await store.upsert(Resource(name="Kept", content="word " * 100))
    await store.delete(await store.upsert(Resource(name="Gone", content="old")))
    await rem.for_user().store.upsert(Resource(name="Shared", content="for all"))
    tables = (await as_alice.get("/api/v1/storage")).json()["tables"]
    assert (tables["resources"]["live"], tables["resources"]["deleted"]) == (1, 1)
    assert tables["resources"]["bytes"] > 100
    assert (await as_bob.get("/api/v1/storage")).json()["tables"] == {}


async def test_the_audit_finds_and_fixes_edges_to_missing_rows(rem: Rem, as_alice: httpx2.AsyncClient) -> None:
    note = "My colleague Nadia Petrova <nadia.petrova@acme.com> moves billing to Postgres 18 in April."
    await rem.for_user(ALICE).store.upsert(Resource(name="Note", content=note))
    await as_alice.post("/api/v1/dreams")
    clean = (await as_alice.get("/api/v1/dreams/audit")).json()
    assert set(clean["counts"].values()) == {0}
    async with rem.database.connection() as connection:
        await connection.execute("DELETE FROM rem.statement_sources")
    broken = (await as_alice.get("/api/v1/dreams/audit")).json()
    assert broken["counts"]["without_source"] > 0
    assert broken["issues"]["without_source"][0]["key"]
    assert (await as_alice.post("/api/v1/dreams/audit")).json()["fixed"] > 0
    assert (await as_alice.get("/api/v1/dreams/audit")).json()["counts"]["without_source"] == 0


async def test_the_sample_workspace_is_loaded_and_removed(as_alice: httpx2.AsyncClient) -> None:
    empty = {"tenant_id": DEMO_TENANT, "rows": 0, "may_change": True}
    assert (await as_alice.get("/api/v1/sample")).json() == empty
    loaded = (await as_alice.put("/api/v1/sample")).json()
    assert loaded["rows"] > 20
    assert (await as_alice.put("/api/v1/sample")).json() == loaded
    assert (await as_alice.delete("/api/v1/sample")).json() == empty


@pytest.fixture
async def with_key(settings: Settings, rem: Rem) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the API with authentication, and yield a client of Alice, who is no administrator."""
    secured = settings.model_copy(update={"auth": AuthSettings(enabled=True, allow_anonymous=False)})
    key, _ = await ApiKeys(rem.database).create("test", ALICE, "default", scopes=("read", "write"))
    async with served(create_app(secured)) as address, client(address) as opened:
        opened.headers["Authorization"] = f"Bearer {key}"
        yield opened


async def test_with_authentication_users_cannot_change_the_sample(with_key: httpx2.AsyncClient) -> None:
    assert (await with_key.get("/api/v1/sample")).json()["may_change"] is False
    assert (await with_key.put("/api/v1/sample")).status_code == 403
    assert (await with_key.delete("/api/v1/sample")).status_code == 403
