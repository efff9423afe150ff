"""Requests with tokens, API keys and headers, while authentication is on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx2
import pytest
from pydantic import SecretStr

from rem.app import Rem
from rem.audit.log import AuditFilter
from rem.auth.accounts import Accounts
from rem.auth.api_keys import ApiKeys
from rem.auth.authenticator import CACHE_SECONDS
from rem.auth.identity import Role
from rem.auth.logins import Logins
from rem.auth.signing import Purpose, Signer
from rem.context import resolve_user_id
from rem.models import Resource
from rem.settings import MemorySettings, RateLimitSettings, Settings
from tests.api.auth_server import SECRET, auth_served, bearer, browser, log_in, with_auth
from tests.api.live_server import client
from tests.api.oidc_server import Provider, provider_served
from tests.forget.text_traces import find_traces
from tests.test_docs import DOCS, read_example

SARAH, BOB = "sarah@example.com", "bob@example.com"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """Serve a login provider."""
    async with provider_served() as provider:
        yield provider


@pytest.fixture
async def address(settings: Settings, provider: Provider) -> AsyncIterator[str]:
    """Serve the API with authentication."""
    async with auth_served(settings, provider) as address:
        yield address


@pytest.fixture
def keys(rem: Rem) -> ApiKeys:
    """API keys in the database of the test."""
    return ApiKeys(rem.database)


async def status(address: str, path: str, method: str = "GET", **headers: str) -> int:
    async with client(address, **headers) as opened:
        return (await opened.request(method, path, json={} if method == "POST" else None)).status_code


async def who(address: str, **headers: str) -> dict[str, Any]:
    async with client(address, **headers) as opened:
        response = await opened.get("/api/auth/me")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


async def test_key_identifies_its_user(address: str, keys: ApiKeys, rem: Rem) -> None:
    key, info = await keys.create("script", SARAH, "default")
    await rem.for_user(SARAH).store.upsert(Resource(name="Note", content="mine"))
    caller = await who(address, **bearer(key))
    assert (caller["id"], caller["email"], caller["method"]) == (resolve_user_id(SARAH), SARAH, "api_key")
    assert caller["scopes"] == ["chat", "read", "write"]
    async with client(address, **bearer(key)) as opened:
        answer = await opened.post("/api/v1/query", json={"query": "LOOKUP note"})
        assert answer.json()["count"] == 1
    (listed,) = await keys.list(SARAH)
    assert listed.last_used_at is not None
    assert listed.prefix == info.prefix


async def test_database_does_not_hold_the_key(keys: ApiKeys, sql: Any) -> None:
    key, _ = await keys.create("script", SARAH, "default")
    assert key[18:] not in str(await sql.fetch("SELECT k::text FROM rem_auth.api_keys k"))


async def test_keys_that_are_not_valid_are_refused(address: str, keys: ApiKeys) -> None:
    key, info = await keys.create("script", SARAH, "default")
    other, _ = await keys.create("other", BOB, "default")
    expired, _ = await keys.create("old", SARAH, "default", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    secret = key.removeprefix(info.prefix)
    wrong = [key[:-1], key + "x", key.upper(), expired, info.prefix + "_" + other.partition("_")[2][13:]]
    wrong += [f"remk_000000000000{secret}", "remk_", "remk_x", key.replace("remk_", "remx_"), key + "\u00e9"]
    async with client(address) as opened:
        for text in wrong:
            refused = await opened.get("/api/v1/sessions", headers={b"Authorization": f"Bearer {text}".encode()})
            assert refused.status_code == 401, text
            assert 'error="invalid_token"' in refused.headers["www-authenticate"]
            assert secret not in refused.text


async def test_refused_request_has_an_id(settings: Settings, rem: Rem) -> None:
    limits = RateLimitSettings(anonymous="2/minute")
    limited = settings.model_copy(update={"rate_limit": limits})
    async with auth_served(limited, allow_anonymous=False) as address, client(address) as opened:
        answers = [await opened.get("/api/v1/sessions", headers={"X-Request-Id": f"my-{n}"}) for n in range(3)]
        assert [answer.status_code for answer in answers] == [401, 401, 429]
        assert [answer.headers["x-request-id"] for answer in answers] == ["my-0", "my-1", "my-2"]
        async with asyncio.timeout(20):
            while True:
                entries = await rem.audit_log.find("default", AuditFilter())
                if len(entries) == 2:
                    break
                await asyncio.sleep(0.05)
    assert sorted(entry["request_id"] for entry in entries) == ["my-0", "my-1"]


async def test_revoked_key_is_refused_within_the_stated_time(address: str, keys: ApiKeys) -> None:
    key, info = await keys.create("script", SARAH, "default")
    assert await status(address, "/api/v1/sessions", **bearer(key)) == 200
    await keys.revoke(info.prefix)
    deadline = time.monotonic() + CACHE_SECONDS + 1
    while await status(address, "/api/v1/sessions", **bearer(key)) == 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def test_key_of_a_disabled_account_is_refused(address: str, keys: ApiKeys, rem: Rem) -> None:
    key, _ = await keys.create("script", SARAH, "default")
    await Accounts(rem.database).save(SARAH, "default", role=Role.ADMIN)
    await Accounts(rem.database).set_disabled(SARAH, "default", disabled=True)
    assert await status(address, "/api/v1/sessions", **bearer(key)) == 401


async def test_scopes_limit_a_key(address: str, keys: ApiKeys) -> None:
    key, _ = await keys.create("reader", SARAH, "default", scopes=["read"])
    assert await status(address, "/api/v1/sessions", **bearer(key)) == 200
    assert await status(address, "/api/v1/sessions", "POST", **bearer(key)) == 403
    assert await status(address, "/api/v1/entities/resources/x", "DELETE", **bearer(key)) == 403
    chat, _ = await keys.create("chat", SARAH, "default", scopes=["chat"])
    async with httpx2.AsyncClient(base_url=address, headers=bearer(chat)) as http:
        refused = await http.post("/api/v1/query", json={"query": "LOOKUP x"})
    assert refused.status_code == 403
    assert "the scope read," in refused.json()["error"]["message"]


async def test_key_that_only_chats_approves_nothing(address: str, keys: ApiKeys, rem: Rem) -> None:
    await rem.for_user(SARAH).store.upsert(Resource(name="Bike", content="My bike is red."))
    chatting, _ = await keys.create("widget", SARAH, "default", scopes=["chat"])
    writing, _ = await keys.create("own", SARAH, "default", scopes=["chat", "write"])

    async def say(key: str, text: str) -> str:
        async with client(address, **bearer(key), **{"X-Session-Id": "bikes"}) as opened:
            body = {"messages": [{"role": "user", "content": text}]}
            answer = await opened.post("/v1/chat/completions", json=body)
            return str(answer.json()["choices"][0]["message"]["content"])

    for approve in ("yes", "/approve {code}", "/approve 1"):
        assert "to be erased for good" in await say(chatting, "forget my bike")
        approval = (await rem.for_user(SARAH).approvals.list())[0]
        refused = await say(chatting, approve.format(code=approval.code))
        assert refused.startswith("Nothing was changed. This key or token has no scope `write`"), refused
        assert await rem.for_user(SARAH).store.count(Resource) == 1
    assert "nothing was changed" in await say(chatting, f"/reject {approval.code}")
    await say(chatting, "forget my bike")
    approval = (await rem.for_user(SARAH).approvals.list())[0]
    assert "Forgotten" in await say(writing, f"/approve {approval.code}")
    assert await rem.for_user(SARAH).store.count(Resource) == 0


async def test_key_cannot_make_another_key_or_tokens(address: str, keys: ApiKeys) -> None:
    key, _ = await keys.create("script", SARAH, "default", role=Role.ADMIN, scopes=["read", "write", "chat", "admin"])
    for path in ("/api/auth/keys", "/api/auth/tokens"):
        assert await status(address, path, "POST", **bearer(key)) in (403, 422)
    async with client(address, **bearer(key)) as opened:
        assert (await opened.post("/api/auth/keys", json={"name": "x"})).status_code == 403


async def test_people_manage_their_own_keys(address: str, provider: Provider) -> None:
    async with browser(address) as sarah, browser(address) as bob:
        await log_in(sarah)
        made = await sarah.post("/api/auth/keys", json={"name": "phone", "scopes": ["read"], "expires_in_days": 7})
        assert made.status_code == 201
        key, info = made.json()["key"], made.json()["info"]
        assert made.headers["cache-control"] == "no-store"
        assert (await who(address, **bearer(key)))["scopes"] == ["read"]
        provider.claims = {**provider.claims, "email": BOB, "sub": "2"}
        await log_in(bob)
        assert (await bob.get("/api/auth/keys")).json() == {"data": []}
        assert (await bob.delete(f"/api/auth/keys/{info['id']}")).status_code == 404
        assert (await bob.delete(f"/api/auth/keys/{info['prefix']}")).status_code == 404
        assert (await sarah.delete(f"/api/auth/keys/{info['prefix']}")).status_code == 204
        assert await status(address, "/api/v1/sessions", **bearer(key)) == 401
        (listed,) = (await sarah.get("/api/auth/keys")).json()["data"]
        assert listed["revoked_at"]
        assert key not in str(listed)
        for body in ({"name": "x", "scopes": ["root"]}, {"name": "a\x00b"}, {"name": "a\nb"}):
            assert (await sarah.post("/api/auth/keys", json=body)).status_code == 400
        assert (await sarah.delete("/api/auth/keys/%00")).status_code == 404


async def test_service_key_acts_for_users_of_its_tenant(address: str, keys: ApiKeys) -> None:
    key, _ = await keys.create("gateway", None, "acme", role=Role.SERVICE)
    caller = await who(address, **bearer(key), **{"X-User-Id": SARAH})
    assert (caller["id"], caller["tenant_id"], caller["role"]) == (resolve_user_id(SARAH), "acme", "service")
    assert await status(address, "/api/auth/me", **bearer(key), **{"X-Tenant-Id": "default"}) == 403


async def test_headers_do_not_impersonate(address: str, keys: ApiKeys) -> None:
    key, _ = await keys.create("script", SARAH, "default", role=Role.ADMIN)
    for path in ("/api/v1/sessions", "/api/auth/me"):
        for header in ({"X-User-Id": BOB}, {"X-User-Id": "anything"}, {"X-Tenant-Id": "acme"}):
            assert await status(address, path, **bearer(key), **header) == 403
            assert await status(address, path, **header) == 401
        assert await status(address, path, **bearer(key), **{"X-User-Id": SARAH, "X-Tenant-Id": "default"}) == 200


async def test_anonymous_callers_read_but_do_not_write(address: str, rem: Rem) -> None:
    await rem.for_user().store.upsert(Resource(name="Note", content="shared"))
    await rem.for_user(SARAH).store.upsert(Resource(name="Note", content="private"))
    async with client(address) as opened:
        answer = (await opened.post("/api/v1/query", json={"query": "LOOKUP note"})).json()
        assert "shared" in str(answer["results"])
        assert "private" not in str(answer["results"])
        refused = await opened.post("/api/v1/entities/resources", json={"name": "Planted", "content": "x"})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Bearer realm="rem"'


@pytest.mark.parametrize("stores_chats", [False, True])
async def test_anonymous_chat_writes_nothing_that_is_shared(
    settings: Settings, rem: Rem, sql: asyncpg.Connection[asyncpg.Record], stores_chats: bool
) -> None:
    """Without a session the scope of an anonymous caller would be what the tenant shares."""
    settings = settings.model_copy(update={"memory": MemorySettings(enabled=stores_chats)})
    await rem.for_user().store.upsert(Resource(name="Handbook", content="The door code is on page five."))
    body = {"model": "rem:local", "messages": [{"role": "user", "content": "Remember that the vault is planted."}]}
    question = {"model": "rem:local", "messages": [{"role": "user", "content": "LOOKUP handbook"}]}
    async with auth_served(settings) as address, client(address) as opened:
        answer = await opened.post("/api/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert ("log in" in answer.text) is not stores_chats
        assert ("x-session-id" in answer.headers) is stores_chats
        # What the tenant shares can still be read.
        assert "page five" in (await opened.post("/api/v1/chat/completions", json=question)).text
    assert await rem.for_user().store.count(Resource) == 1
    traces = await find_traces(sql, "planted")
    assert bool(traces) is stores_chats, traces
    for table in ("resources", "messages"):
        assert await sql.fetchval(f"SELECT count(*) FROM {table} WHERE user_id IS NULL AND content ~ 'planted'") == 0


async def test_without_anonymous_access_everything_needs_a_login(settings: Settings) -> None:
    async with auth_served(settings, allow_anonymous=False) as address, client(address) as opened:
        for path in ("/api/v1/sessions", "/api/v1/models", "/v1/models", "/api/auth/me", "/nothing"):
            assert (await opened.get(path)).status_code == 401, path
        for path in ("/health", "/health/live", "/docs", "/openapi.json", "/api/auth/providers", "/api/dev/token"):
            assert (await opened.get(path)).status_code == 200, path
        # A wrong credential does not close what is open, and opens nothing.
        assert (await opened.get("/health", headers=bearer("remk_x"))).status_code == 200
        assert (await opened.get("/nothing", headers=bearer("remk_x"))).status_code == 401


async def test_development_token(address: str) -> None:
    async with client(address) as opened:
        body = (await opened.get("/api/dev/token")).json()
        assert body == {
            "token": body["token"],
            "type": "Bearer",
            "user": {"id": "test-user", "email": "test@rem.local", "name": "Test User"},
            "usage": f'curl -H "Authorization: Bearer dev_..." {address}/api/v1/...',
            "warning": "This token is for development/testing only and will not work in production.",
        }
        token = body["token"]
        assert token == (await opened.get("/api/dev/token")).json()["token"]
        assert len(token) == len("dev_") + 32
    caller = await who(address, **bearer(token), **{"X-Tenant-Id": "default"})
    assert (caller["id"], caller["role"], caller["tier"], caller["method"]) == ("test-user", "admin", "pro", "dev")
    assert await status(address, "/api/v1/shared-with-me", **bearer(token)) == 200
    assert await status(address, "/api/v1/sessions", **bearer(token[:-1] + "z")) == 401
    assert await status(address, "/api/v1/sessions", **bearer("dev_89737a19376332bfd9a4a06db8b79fd1")) == 401


async def test_development_token_depends_on_the_secret_and_not_on_authentication(settings: Settings) -> None:
    tokens = []
    for secret in (SECRET, "another secret, which is long enough"):
        for enabled in (True, False):
            async with (
                auth_served(settings, enabled=enabled, session_secret=SecretStr(secret)) as address,
                client(address) as opened,
            ):
                tokens.append((await opened.get("/api/dev/token")).json()["token"])
                assert (await who(address, **bearer(tokens[-1])))["id"] == "test-user"
    assert tokens[0] == tokens[1] != tokens[2] == tokens[3]


async def test_production_has_no_development_token(settings: Settings) -> None:
    async with auth_served(settings) as address, client(address) as opened:
        token = (await opened.get("/api/dev/token")).json()["token"]
    async with auth_served(settings, environment="production") as address, client(address) as opened:
        assert (await opened.get("/api/dev/token")).status_code == 404
        assert (await opened.get("/api/auth/me", headers=bearer(token))).status_code == 401


async def test_other_tokens_mean_nothing_while_authentication_is_off(settings: Settings, keys: ApiKeys) -> None:
    key, _ = await keys.create("script", SARAH, "default")
    async with auth_served(settings, enabled=False) as address:
        # Clients of OpenAI send some key with every request.
        caller = await who(address, **bearer("sk-none"), **{"X-User-Id": BOB})
        assert (caller["id"], caller["method"]) == (resolve_user_id(BOB), "header")
        assert (await who(address, **bearer(key)))["id"] == resolve_user_id(SARAH)
        assert await status(address, "/api/auth/me", **bearer(key), **{"X-User-Id": BOB}) == 403


@pytest.fixture
async def tokens(address: str) -> AsyncIterator[tuple[httpx2.AsyncClient, dict[str, Any]]]:
    """Log in, and make tokens for a program."""
    async with browser(address) as person:
        await log_in(person)
        made = await person.post("/api/auth/tokens")
        assert made.status_code == 201
        yield person, made.json()


Made = tuple[httpx2.AsyncClient, dict[str, Any]]


async def test_access_token_identifies_the_person(address: str, tokens: Made) -> None:
    _, pair = tokens
    assert (pair["token_type"], pair["expires_in"]) == ("Bearer", 900)
    caller = await who(address, **bearer(pair["access_token"]))
    assert (caller["email"], caller["method"]) == (SARAH, "token")
    assert await status(address, "/api/v1/sessions", "POST", **bearer(pair["access_token"])) == 201
    # A refresh token is for one purpose.
    assert await status(address, "/api/auth/me", **bearer(pair["refresh_token"])) == 401


async def refresh(address: str, token: str) -> httpx2.Response:
    async with client(address) as opened:
        return await opened.post("/api/auth/refresh", json={"refresh_token": token})


async def test_refresh_token_works_once_and_a_replay_ends_the_login(address: str, tokens: Made) -> None:
    _, pair = tokens
    renewed = (await refresh(address, pair["refresh_token"])).json()
    assert await status(address, "/api/auth/me", **bearer(renewed["access_token"])) == 200
    replayed = await refresh(address, pair["refresh_token"])
    assert replayed.status_code == 401
    # Whoever holds the newer tokens, they are worth nothing now.
    assert (await refresh(address, renewed["refresh_token"])).status_code == 401
    assert await status(address, "/api/auth/me", **bearer(renewed["access_token"])) == 401
    assert await status(address, "/api/auth/me", **bearer(pair["access_token"])) == 401


async def test_one_of_many_concurrent_refreshes_wins(address: str, tokens: Made) -> None:
    _, pair = tokens
    answers = await asyncio.gather(*(refresh(address, pair["refresh_token"]) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 7


async def test_unknown_refresh_tokens_are_refused(address: str) -> None:
    for text in ("", "x", "remr_", "remr_" + "x" * 43, "🎈"):
        assert (await refresh(address, text)).status_code == 401


async def test_logout_revokes_the_tokens_of_that_login(address: str, tokens: Made) -> None:
    person, pair = tokens
    assert await status(address, "/api/auth/logout", "POST", **bearer(pair["access_token"])) == 204
    assert await status(address, "/api/auth/me", **bearer(pair["access_token"])) == 401
    assert (await refresh(address, pair["refresh_token"])).status_code == 401
    assert (await person.get("/api/auth/me")).json()["method"] == "cookie"


async def test_a_login_can_be_ended_by_its_owner_only(address: str, provider: Provider, tokens: Made) -> None:
    person, pair = tokens
    (token_login,) = [row for row in (await person.get("/api/auth/logins")).json()["data"] if row["kind"] == "token"]
    provider.claims = {**provider.claims, "email": BOB, "sub": "2"}
    async with browser(address) as bob:
        await log_in(bob)
        assert (await bob.delete(f"/api/auth/logins/{token_login['id']}")).status_code == 404
    assert (await person.delete("/api/auth/logins/nonsense")).status_code == 404
    assert (await person.delete(f"/api/auth/logins/{token_login['id']}")).status_code == 204
    assert await status(address, "/api/auth/me", **bearer(pair["access_token"])) == 401


async def test_forged_access_tokens_are_refused(address: str, tokens: Made, rem: Rem, settings: Settings) -> None:
    person, _ = tokens
    (login,) = [row for row in (await person.get("/api/auth/logins")).json()["data"] if row["kind"] == "token"]
    claims = {"sid": login["id"], "sub": resolve_user_id(SARAH)}
    signer = Signer([SECRET])
    assert await status(address, "/api/auth/me", **bearer(signer.sign(Purpose.ACCESS, claims, 60))) == 200
    forged = [
        signer.sign(Purpose.ACCESS, claims, -60),
        signer.sign(Purpose.SESSION, claims, 60),
        signer.sign(Purpose.ACCESS, {**claims, "sub": resolve_user_id(BOB)}, 60),
        signer.sign(Purpose.ACCESS, {**claims, "sid": "00000000-0000-0000-0000-000000000000"}, 60),
        signer.sign(Purpose.ACCESS, {"sub": resolve_user_id(SARAH)}, 60),
        Signer(["x" * 32]).sign(Purpose.ACCESS, claims, 60),
        Signer([SECRET], "https://other.example.com").sign(Purpose.ACCESS, claims, 60),
    ]
    for token in forged:
        assert await status(address, "/api/auth/me", **bearer(token)) == 401


async def test_token_of_an_erased_user_is_refused(address: str, tokens: Made, rem: Rem) -> None:
    _, pair = tokens
    report = await rem.for_user(SARAH).erase_user()
    assert report.after == 0
    deadline = time.monotonic() + CACHE_SECONDS + 1
    while await status(address, "/api/auth/me", **bearer(pair["access_token"])) == 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    assert (await refresh(address, pair["refresh_token"])).status_code == 401


async def test_tokens_survive_a_new_secret(settings: Settings, rem: Rem) -> None:
    account = await Accounts(rem.database).save(SARAH, "default")
    old = with_auth(settings)
    pair = await Logins(rem.database, Signer.from_settings(old), old.auth).create_tokens(account.user_id, "default")
    new = SecretStr("the next secret, which is long enough")
    async with auth_served(settings, session_secret=new, previous_secrets=[SecretStr(SECRET)]) as address:
        assert (await who(address, **bearer(pair.access_token)))["email"] == SARAH
    async with auth_served(settings, session_secret=new) as address:
        assert await status(address, "/api/auth/me", **bearer(pair.access_token)) == 401


async def test_example_of_the_guide(settings: Settings) -> None:
    code = read_example(DOCS / "authentication.md", "devtoken")
    async with auth_served(settings) as address:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", code.replace("http://localhost:8000", address), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert json.loads(output)["id"] == "test-user"
