"""`/admin`: users, sessions, statistics and audit log of the administrator's own tenant, and of no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.auth.accounts import Accounts
from rem.auth.api_keys import ApiKeys
from rem.auth.identity import ADMIN, CHAT, READ, WRITE, Tier, UserRole
from rem.context import resolve_user_id
from rem.models import Resource, Role
from rem.sessions.message import NewMessage
from rem.settings import AuthSettings, RateLimitSettings, Settings
from tests.api.live_server import client, served
from tests.cases import cases

ALL = (READ, WRITE, CHAT, ADMIN)
ALICE, BOB, ROOT, EVE = "alice@example.com", "bob@example.com", "root@example.com", "eve@evil.example"
Client = httpx2.AsyncClient


@pytest.fixture
async def clients(rem: Rem, settings: Settings) -> AsyncIterator[dict[str, Client]]:
    """Serve the API with authentication; yield clients of two administrators, two users, and a key without scope."""
    accounts, keys = Accounts(rem.database), ApiKeys(rem.database)
    people = ((ROOT, "default", UserRole.ADMIN), (ALICE, "default", UserRole.USER), (EVE, "other", UserRole.ADMIN))
    for email, tenant, role in people:
        await accounts.save(email, tenant, role=role)
    protected = settings.model_copy(
        update={
            "auth": AuthSettings(enabled=True, allow_anonymous=False),
            "rate_limit": RateLimitSettings(free="1000/minute"),
        }
    )
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(served(create_app(protected)))
        opened: dict[str, Client] = {"nobody": await stack.enter_async_context(client(address))}
        for email, tenant, _role in people:
            key, _ = await keys.create(email, email, tenant, scopes=ALL)
            opened[email] = await stack.enter_async_context(client(address, Authorization=f"Bearer {key}"))
        key, _ = await keys.create("weak", ROOT, "default", scopes=(READ, WRITE))
        opened["weak"] = await stack.enter_async_context(client(address, Authorization=f"Bearer {key}"))
        yield opened


async def get(http: Client, path: str, **asked: str) -> Any:
    answer = await http.get(f"/api/v1/admin{path}", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


PATHS = ("/users", f"/users/{ALICE}", "/sessions", "/statistics", "/audit")


@pytest.mark.parametrize("path", PATHS)
async def test_only_administrators_with_the_scope_are_served(clients: dict[str, Client], path: str) -> None:
    statuses = {name: (await http.get(f"/api/v1/admin{path}")).status_code for name, http in clients.items()}
    other = 404 if ALICE in path else 200
    assert statuses == {"nobody": 401, ALICE: 403, "weak": 403, ROOT: 200, EVE: other}


async def test_users_of_the_own_tenant_are_listed(clients: dict[str, Client], rem: Rem) -> None:
    await rem.for_user(ALICE).sessions.append(
        uuid4(), [NewMessage(role=Role.USER, content="Hello")], create_session=True
    )
    await rem.for_user("carol").store.upsert(Resource(name="A note", content="x"))
    await rem.for_user("anon:x").sessions.append(
        uuid4(), [NewMessage(role=Role.USER, content="Hello")], create_session=True
    )
    users = (await get(clients[ROOT], "/users"))["data"]
    assert [(user["email"], user["role"]) for user in users] == [(ALICE, "user"), (ROOT, "admin"), (None, None)]
    assert (users[0]["sessions"], users[0]["messages"], users[2]["user_id"]) == (1, 1, "carol")
    assert (await get(clients[ROOT], f"/users/{ALICE}"))["user_id"] == resolve_user_id(ALICE)
    assert [user["email"] for user in (await get(clients[EVE], "/users"))["data"]] == [EVE]
    page = await get(clients[ROOT], "/users", limit="1", offset="1")
    assert ([user["email"] for user in page["data"]], page["has_more"]) == ([ROOT], True)


async def test_role_and_tier_are_set_and_count_at_once(clients: dict[str, Client], rem: Rem) -> None:
    path = f"/api/v1/admin/users/{ALICE}"
    assert (await clients[ALICE].get("/api/auth/me")).json()["tier"] == "free"
    changed = await clients[ROOT].patch(path, json={"role": "admin", "tier": "pro"})
    assert (changed.json()["role"], changed.json()["tier"]) == ("admin", "pro")
    assert (await clients[ALICE].get("/api/auth/me")).json()["tier"] == "pro"
    assert (await clients[ALICE].get("/api/v1/admin/users")).status_code == 200
    assert (await clients[ROOT].patch(path, json={"disabled": True})).json()["disabled_at"]
    assert (await clients[ALICE].get("/api/v1/sessions")).status_code == 401
    assert (await clients[ROOT].patch(path, json={"disabled": False})).json()["disabled_at"] is None
    assert (await clients[ALICE].get("/api/v1/sessions")).status_code == 200
    entries = (await get(clients[ROOT], "/audit", about=ALICE))["data"]
    assert [(entry["action"], entry["operation"]) for entry in entries] == [
        ("admin", "PATCH /api/v1/admin/users/{user}")
    ] * 3


async def test_another_tenant_and_unknown_people_look_the_same(clients: dict[str, Client], rem: Rem) -> None:
    for email in (ALICE, "nobody@example.com"):
        for answer in (
            await clients[EVE].get(f"/api/v1/admin/users/{email}"),
            await clients[EVE].patch(f"/api/v1/admin/users/{email}", json={"role": "admin"}),
        ):
            assert answer.status_code == 404
    assert (await Accounts(rem.database).get(ALICE, "default")).role is UserRole.USER


@cases("change", [{"role": "user"}, {"disabled": True}])
async def test_administrators_cannot_lock_themselves_out(clients: dict[str, Client], change: dict[str, Any]) -> None:
    refused = await clients[ROOT].patch(f"/api/v1/admin/users/{ROOT}", json=change)
    assert (refused.status_code, "another administrator" in refused.text) == (403, True)


@cases("change", [{}, {"tier": "anonymous"}, {"role": "king"}, {"password": "x"}, {"disabled": "yes"}])
async def test_invalid_change_is_refused(clients: dict[str, Client], change: dict[str, Any]) -> None:
    refused = await clients[ROOT].patch(f"/api/v1/admin/users/{ALICE}", json=change)
    assert refused.status_code in (400, 422)


async def test_sessions_have_no_content(clients: dict[str, Client], rem: Rem) -> None:
    session = await rem.for_user(ALICE).sessions.create_session("Be kind.", name="Secret plan", description="treasure")
    await rem.for_user(ALICE).sessions.append(session.id, [NewMessage(role=Role.USER, content="treasure")])
    await rem.for_user(ALICE).sessions.share_session(session.id, BOB)
    answer = await clients[ROOT].get("/api/v1/admin/sessions", params={"user": ALICE})
    (row,) = answer.json()["data"]
    assert (row["id"], row["user_id"], row["message_count"]) == (str(session.id), resolve_user_id(ALICE), 1)
    assert row["readers"] == 1
    assert "Secret" not in answer.text
    assert "treasure" not in answer.text
    assert (await get(clients[EVE], "/sessions"))["data"] == []
    assert (await get(clients[ROOT], "/sessions", user=BOB))["data"] == []


async def test_statistics_count_the_own_tenant(clients: dict[str, Client], rem: Rem) -> None:
    await rem.for_user(ALICE).store.upsert(Resource(name="One", content="x"))
    await rem.for_user(ALICE).store.delete(await rem.for_user(ALICE).store.upsert(Resource(name="Two", content="x")))
    await rem.for_user().store.upsert(Resource(name="Three", content="x"))
    await clients[ALICE].delete("/api/v1/entities/resources/one")
    statistics = await get(clients[ROOT], "/statistics")
    assert statistics["tables"]["resources"] == {"live": 1, "deleted": 2, "shared": 1}
    assert (statistics["tenant_id"], statistics["accounts"]) == ("default", 2)
    assert statistics["actions"]["delete"] == 1
    assert (await get(clients[EVE], "/statistics"))["tables"]["resources"]["live"] == 0


async def test_audit_log_of_the_own_tenant(clients: dict[str, Client], rem: Rem) -> None:
    row = await rem.for_user(ALICE).store.upsert(Resource(name="Plan", content="x"))
    await clients[ALICE].delete("/api/v1/entities/resources/plan")
    (entry,) = (await get(clients[ROOT], "/audit", row=str(row.id)))["data"]
    assert (entry["actor"], entry["action"], entry["method"]) == (resolve_user_id(ALICE), "delete", "api_key")
    assert entry["credential_id"]
    assert (await get(clients[ROOT], "/audit", actor=ALICE, action="delete", table="resources"))["data"] == [entry]
    assert (await get(clients[ROOT], "/audit", actor=ALICE, until="2020-01-01T00:00:00Z"))["data"] == []
    others = (await get(clients[EVE], "/audit"))["data"]
    assert {entry["actor"] for entry in others} <= {resolve_user_id(EVE)}
    assert (await clients[ROOT].get("/api/v1/admin/audit", params={"action": "dance"})).status_code == 422


async def test_refused_credentials_are_counted_by_address(rem: Rem, settings: Settings) -> None:
    protected = settings.model_copy(
        update={
            "auth": AuthSettings(enabled=True, allow_anonymous=False),
            "rate_limit": RateLimitSettings(anonymous="3/minute"),
        }
    )
    async with served(create_app(protected)) as address:
        statuses = []
        for number in range(5):
            async with client(address, Authorization=f"Bearer rem_{number}") as http:
                answer = await http.get("/api/v1/sessions")
                statuses.append(answer.status_code)
                assert answer.headers["ratelimit-limit"] == "3"
    assert statuses == [401, 401, 401, 429, 429]
    assert answer.json()["error"]["details"]["tier"] == Tier.ANONYMOUS.value


async def test_administrator_makes_nobody_a_service(clients: dict[str, Client], rem: Rem) -> None:
    await rem.for_user(ALICE).store.upsert(Resource(name="Diary", content="Only for Alice."))
    answer = await clients[ROOT].patch(f"/api/v1/admin/users/{ALICE}", json={"role": "service"})
    assert answer.status_code == 422, answer.text
    assert (await Accounts(rem.database).get(ALICE, "default")).role is UserRole.USER
    answer = await clients[ALICE].get("/api/v1/entities/resources/diary", headers={"X-User-Id": BOB})
    assert answer.status_code == 403
