"""The audit log of the API: each request leaves an entry, and none of them has content."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from rem.api.audit import classify
from rem.api.main import create_app
from rem.app import Rem
from rem.audit.entry import Action
from rem.audit.log import AuditFilter
from rem.auth.api_keys import ApiKeys
from rem.auth.identity import READ
from rem.context import resolve_user_id
from rem.models import Resource
from rem.settings import AuditSettings, AuthSettings, RateLimitSettings, Settings
from tests.api.live_server import client, served

ALICE = resolve_user_id("alice@example.com")
SECRET = "The treasure is under the palm tree"


@pytest.fixture
async def audited(settings: Settings) -> AsyncIterator[str]:
    """Serve the API with an audit log."""
    async with served(create_app(settings.model_copy(update={"audit": AuditSettings(enabled=True)}))) as address:
        yield address


@pytest.fixture
async def alice_http(audited: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of Alice."""
    async with client(audited, "alice@example.com") as http:
        yield http


async def entries(rem: Rem, count: int) -> list[dict[str, Any]]:
    """Return the newest entries, oldest first, once there are that many."""
    import asyncio

    async with asyncio.timeout(20):
        while True:
            found = await rem.audit_log.find("default", AuditFilter())
            if len(found) >= count:
                return found[::-1]
            await asyncio.sleep(0.05)


async def test_who_read_and_wrote_what(rem: Rem, alice_http: httpx2.AsyncClient) -> None:
    created = await alice_http.post("/api/v1/entities/resources", json={"name": "Island", "content": SECRET})
    row_id = created.json()["id"]
    await alice_http.get("/api/v1/entities/resources/island")
    await alice_http.post("/api/v1/query", json={"query": "LOOKUP island"})
    await alice_http.post("/api/v1/query", json={"query": 'SEARCH "palm tree treasure"'})
    await alice_http.get("/api/v1/entities/resources/treasure-map")
    wrote, read, looked_up, searched, missed = await entries(rem, 5)
    target = {"table": "resources", "id": row_id}
    assert (wrote["actor"], wrote["action"], wrote["operation"], wrote["status"]) == (
        *(ALICE, "write", "POST /api/v1/entities/{table}", 201),
    )
    assert (read["action"], read["operation"], read["targets"]) == (
        *("read", "GET /api/v1/entities/{table}/{key}", [target]),
    )
    assert (looked_up["action"], looked_up["operation"]) == ("read", "POST /api/v1/query LOOKUP")
    assert target in looked_up["targets"]
    assert target in searched["targets"]
    assert (missed["status"], set(missed["targets"][0])) == (404, {"table", "hash"})
    assert read["client"] == "127.0.0.1"
    assert read["request_id"]
    everything = json.dumps([wrote, read, looked_up, searched, missed], default=str)
    for content in ("treasure", "palm", "island", "Island", "alice@example.com"):
        assert content not in everything


async def test_deletion_is_stored_before_the_answer(rem: Rem, alice_http: httpx2.AsyncClient) -> None:
    row = await rem.for_user("alice@example.com").store.upsert(Resource(name="Plan", content="x"))
    assert (await alice_http.delete("/api/v1/entities/resources/plan")).status_code == 204
    # Not even a moment later: the entry is there.
    (entry,) = await rem.audit_log.find("default", AuditFilter(action="delete"))
    assert (entry["actor"], entry["status"]) == (ALICE, 204)
    assert entry["targets"] == [{"table": "resources", "id": str(row.id)}]


async def test_session_and_chat(rem: Rem, alice_http: httpx2.AsyncClient) -> None:
    session = (await alice_http.post("/api/v1/sessions", json={"name": "Pirates"})).json()["id"]
    await alice_http.post(f"/api/v1/sessions/{session}/share", json={"user": "bob@example.com"})
    await alice_http.delete(f"/api/v1/sessions/{session}/share/bob@example.com")
    await alice_http.delete(f"/api/v1/sessions/{session}")
    created, shared, unshared, deleted = await entries(rem, 4)
    assert [entry["action"] for entry in (created, shared, unshared, deleted)] == ["write", "write", "delete", "delete"]
    assert shared["targets"] == deleted["targets"] == [{"table": "sessions", "id": session}]
    assert unshared["subject"] == resolve_user_id("bob@example.com")


async def test_tools_of_mcp_are_named(rem: Rem, alice_http: httpx2.AsyncClient) -> None:
    row = await rem.for_user("alice@example.com").store.upsert(Resource(name="Plan", content="x"))

    async def call(tool: str, **arguments: str) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        headers = {"Accept": "application/json, text/event-stream"}
        answer = await alice_http.post("/api/v1/mcp", json=message, headers=headers)
        assert answer.status_code == 200, answer.text

    await call("lookup", key="plan")
    await call("remember", text="I like tea.")
    looked_up, remembered = await entries(rem, 2)
    assert (looked_up["via"], looked_up["action"]) == ("mcp", "read")
    assert looked_up["operation"].startswith("POST /api/v1/mcp")
    assert "lookup" in looked_up["operation"]
    assert {"table": "resources", "id": str(row.id)} in looked_up["targets"]
    assert (remembered["action"], "remember" in remembered["operation"]) == ("write", True)


async def test_health_and_documentation_leave_no_entry(rem: Rem, audited: str) -> None:
    async with client(audited) as http:
        for path in ("/health/live", "/docs", "/openapi.json"):
            assert (await http.get(path)).status_code == 200
        await http.get("/api/v1/models")
    (entry,) = await entries(rem, 1)
    assert (entry["actor"], entry["operation"]) == (None, "GET /api/v1/models")


async def test_refused_requests_leave_an_entry(rem: Rem, settings: Settings) -> None:
    auth = AuthSettings(enabled=True, allow_anonymous=False)
    limits = RateLimitSettings(anonymous="3/minute")
    key, info = await ApiKeys(rem.database).create("reader", "alice@example.com", "default", scopes=(READ,))
    app = create_app(settings.model_copy(update={"auth": auth, "rate_limit": limits}))
    async with served(app) as address:
        async with client(address, Authorization=f"Bearer {key}") as http:
            assert (await http.delete("/api/v1/entities/resources/secret-plan")).status_code == 403
        async with client(address, Authorization="Bearer remk_forged") as http:
            assert (await http.get("/api/v1/entities/resources/secret-plan")).status_code == 401
        async with client(address) as http:
            statuses = [(await http.get("/api/v1/sessions")).status_code for _ in range(4)]
        assert statuses == [401, 429, 429, 429]
        denied, forged, anonymous = await entries(rem, 3)
    assert (denied["actor"], denied["credential_id"]) == (ALICE, str(info.id))
    assert (denied["action"], denied["status"]) == ("delete", 403)
    assert (forged["actor"], forged["action"], forged["status"]) == (None, "login", 401)
    assert (anonymous["action"], anonymous["status"], anonymous["client"]) == ("login", 401, "127.0.0.1")
    assert "secret-plan" not in json.dumps([denied, forged, anonymous], default=str)
    assert len(await entries(rem, 3)) == 3, "what exceeds the limit does not fill the log"


async def test_change_for_a_foreign_page_leaves_an_entry(rem: Rem, alice_http: httpx2.AsyncClient) -> None:
    answer = await alice_http.post("/api/v1/sessions", json={}, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    (entry,) = await entries(rem, 1)
    assert (entry["actor"], entry["action"], entry["status"]) == (ALICE, "write", 403)


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("GET", "/api/v1/sessions", Action.READ),
        ("POST", "/api/v1/sessions", Action.WRITE),
        ("POST", "/api/v1/query", Action.READ),
        ("POST", "/api/v1/mcp", Action.READ),
        ("DELETE", "/api/v1/entities/{table}/{key}", Action.DELETE),
        ("POST", "/api/v1/sessions/{session}/clear", Action.DELETE),
        ("POST", "/api/v1/approvals/{approval}/approve", Action.APPROVE),
        ("GET", "/api/v1/admin/users", Action.ADMIN),
        ("POST", "/api/auth/token", Action.LOGIN),
    ],
)
def test_actions_by_route(method: str, path: str, action: Action) -> None:
    assert classify(method, path) is action
