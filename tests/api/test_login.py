"""Log in with a real OpenID Connect provider on loopback, and what an attacker may try."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from rem.app import Rem
from rem.audit.log import AuditFilter
from rem.auth.accounts import Accounts
from rem.auth.identity import UserRole
from rem.context import resolve_user_id
from rem.models import User
from rem.settings import Settings
from tests.api.auth_server import MAX_COOKIE_BYTES, auth_served, browser, get_cookies, log_in
from tests.api.oidc_server import CLIENT_ID, Provider, provider_served

BROWSER_ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
SARAH = resolve_user_id("sarah@example.com")


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """Serve a login provider."""
    async with provider_served() as provider:
        yield provider


@pytest.fixture
async def address(settings: Settings, provider: Provider) -> AsyncIterator[str]:
    """Serve the API with authentication."""
    async with auth_served(settings, provider, admin_emails=["boss@example.com"]) as address:
        yield address


@pytest.fixture
async def visitor(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a browser that is not logged in."""
    async with browser(address) as client:
        yield client


async def test_login_makes_a_session_an_account_and_a_profile(
    visitor: httpx2.AsyncClient, provider: Provider, rem: Rem
) -> None:
    caller = await log_in(visitor)
    assert caller["id"] == SARAH
    assert (caller["email"], caller["name"], caller["tenant_id"]) == ("sarah@example.com", "Sarah Chen", "default")
    assert (caller["role"], caller["tier"], caller["method"]) == ("user", "free", "cookie")
    assert (await visitor.post("/api/v1/sessions", json={"name": "Mine"})).status_code == 201
    (session,) = (await visitor.get("/api/v1/sessions")).json()["data"]
    assert session["name"] == "Mine"
    (profile,) = await rem.store("sarah@example.com").find(User)
    assert (profile.name, profile.email, profile.role, profile.tier) == (
        "Sarah Chen",
        "sarah@example.com",
        "user",
        "free",
    )
    (asked,) = provider.requests
    assert asked["client_id"] == CLIENT_ID
    assert asked["code_challenge_method"] == "S256"
    assert asked["nonce"]
    assert asked["state"]


async def test_session_cookie_is_protected(visitor: httpx2.AsyncClient) -> None:
    first = await visitor.get("/api/auth/oidc/login", follow_redirects=False)
    (handshake,) = first.headers.get_list("set-cookie")
    assert handshake.startswith("rem_login=")
    callback = (await visitor.get(first.headers["location"], follow_redirects=False)).headers["location"]
    done = await visitor.get(callback, follow_redirects=False)
    cookies = done.headers.get_list("set-cookie")
    assert {cookie.split("=")[0] for cookie in cookies} == {"rem_session", "rem_login"}
    for cookie in (*cookies, handshake):
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Secure" not in cookie
    assert any(cookie.startswith("rem_login=;") and "Max-Age=0" in cookie for cookie in cookies)


async def test_cookies_of_production_are_for_https(settings: Settings, provider: Provider) -> None:
    async with (
        auth_served(settings, provider, "production", public_url="https://rem.example.com") as address,
        browser(address) as client,
    ):
        first = await client.get("/api/auth/oidc/login", follow_redirects=False)
        assert "Secure" in first.headers["set-cookie"]
        asked = parse_qs(urlsplit(first.headers["location"]).query)
        assert asked["redirect_uri"] == ["https://rem.example.com/api/auth/oidc/callback"]
        assert (await client.get("/api/dev/token")).status_code == 404
        assert (await client.get("/api/v1/sessions")).status_code == 401
        logout = await client.post("/api/auth/logout")
        assert logout.headers["set-cookie"].startswith("__Host-rem_session=;")
        assert "Secure" in logout.headers["set-cookie"]


async def test_second_login_keeps_the_account_and_the_profile(
    visitor: httpx2.AsyncClient, provider: Provider, rem: Rem
) -> None:
    await rem.store("sarah@example.com").upsert(User(name="S. Chen", email="sarah@example.com", interests=["tea"]))
    await log_in(visitor)
    provider.claims["name"] = "Sarah Chen-Li"
    assert (await log_in(visitor))["name"] == "Sarah Chen-Li"
    (profile,) = await rem.store("sarah@example.com").find(User)
    assert (profile.name, profile.interests, profile.role) == ("S. Chen", ["tea"], "user")


async def test_role_in_ones_own_memory_gives_no_rights(visitor: httpx2.AsyncClient, rem: Rem) -> None:
    await log_in(visitor)
    changed = await visitor.patch("/api/v1/entities/users/sarah-chen", json={"role": "admin", "tier": "pro"})
    assert changed.status_code == 200, changed.text
    caller = (await visitor.get("/api/auth/me")).json()
    assert (caller["role"], caller["tier"]) == ("user", "free")


async def test_first_administrator_comes_from_the_settings(visitor: httpx2.AsyncClient, provider: Provider) -> None:
    provider.claims |= {"email": "Boss@Example.com", "sub": "2"}
    assert (await log_in(visitor))["role"] == "admin"


async def test_login_returns_to_a_local_path_only(visitor: httpx2.AsyncClient) -> None:
    for path, expected in (
        ("/health/live", "/health/live"),
        ("https://evil.example", "/api/auth/me"),
        ("//evil.example", "/api/auth/me"),
        ("/\\evil.example", "/api/auth/me"),
        ("/\tevil", "/api/auth/me"),
        ("javascript:alert(1)", "/api/auth/me"),
    ):
        response = await visitor.get("/api/auth/oidc/login", params={"next": path})
        assert response.status_code == 200
        assert response.url.path == expected, path


async def test_login_returns_to_a_long_path(visitor: httpx2.AsyncClient) -> None:
    """Browsers drop a cookie of more than 4,096 bytes, and then the login fails."""
    path = f"/health/live?note={'a' * 3700}%2F"
    response = await visitor.get("/api/auth/oidc/login", params={"next": path})
    assert response.url.raw_path.decode() == path
    assert max(map(len, get_cookies(response))) <= MAX_COOKIE_BYTES
    assert "rem_next" not in dict(visitor.cookies)
    refused = await visitor.get("/api/auth/oidc/login", params={"next": f"/health/live?note={';' * 1500}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_input")


async def find_entries(rem: Rem, count: int) -> list[dict[str, Any]]:
    """Return the entries of the audit log, once there are that many."""
    async with asyncio.timeout(20):
        while True:
            found = await rem.audit_log.find("default", AuditFilter())
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def test_audit_log_names_who_logged_in(visitor: httpx2.AsyncClient, rem: Rem) -> None:
    person = await log_in(visitor)
    pair = (await visitor.post("/api/auth/tokens")).json()
    await visitor.post("/api/auth/refresh", json={"refresh_token": pair["refresh_token"]})
    created = (await visitor.post("/api/auth/keys", json={"name": "script"})).json()["info"]
    assert (await visitor.delete(f"/api/auth/keys/{created['prefix']}")).status_code == 204
    entries = {entry["operation"]: entry for entry in await find_entries(rem, 7)}
    assert entries["GET /api/auth/{provider}/login"]["actor"] is None
    finished = entries["GET /api/auth/{provider}/callback"]
    assert (finished["actor"], finished["status"], finished["targets"]) == (person["id"], 302, [])
    assert entries["POST /api/auth/refresh"]["actor"] == person["id"]
    key = [{"table": "api_keys", "id": created["id"]}]
    assert entries["POST /api/auth/keys"]["targets"] == entries["DELETE /api/auth/keys/{key}"]["targets"] == key


async def test_logout_ends_the_session_even_for_a_copied_cookie(address: str, visitor: httpx2.AsyncClient) -> None:
    await log_in(visitor)
    stolen = dict(visitor.cookies)
    assert (await visitor.post("/api/auth/logout")).status_code == 204
    assert (await visitor.get("/api/auth/me")).json()["method"] == "none"
    async with httpx2.AsyncClient(base_url=address, cookies=stolen) as thief:
        assert (await thief.get("/api/auth/me")).json()["method"] == "none"
        assert (await thief.post("/api/v1/sessions", json={})).status_code == 401


async def test_logout_everywhere_ends_all_logins(address: str, visitor: httpx2.AsyncClient) -> None:
    async with browser(address) as phone:
        await log_in(phone)
        await log_in(visitor)
        assert len((await visitor.get("/api/auth/logins")).json()["data"]) == 2
        assert (await visitor.post("/api/auth/logout", params={"everywhere": "true"})).status_code == 204
        assert (await phone.get("/api/auth/me")).json()["method"] == "none"


async def test_forged_cookies_are_no_login(address: str, visitor: httpx2.AsyncClient) -> None:
    await log_in(visitor)
    value = dict(visitor.cookies)["rem_session"]
    header, body, signature = value.split(".")
    for forged in (f"{header}.{body}.", f"{header}.{body}.{signature[::-1]}", body, "", '"', "x" * 9000):
        async with httpx2.AsyncClient(base_url=address, headers={"Cookie": f"rem_session={forged}"}) as client:
            assert (await client.get("/api/auth/me")).json()["method"] == "none"
    # A cookie is no Bearer token.
    async with httpx2.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {value}"}) as client:
        assert (await client.get("/api/auth/me")).status_code == 401


async def finish_by_hand(visitor: httpx2.AsyncClient) -> str:
    """Start a login, and return the address that the provider sends the browser back to."""
    first = await visitor.get("/api/auth/oidc/login", follow_redirects=False)
    return str((await visitor.get(first.headers["location"], follow_redirects=False)).headers["location"])


async def test_callback_with_a_forged_state_is_refused(address: str, visitor: httpx2.AsyncClient) -> None:
    callback = await finish_by_hand(visitor)
    code = parse_qs(urlsplit(callback).query)["code"][0]
    for query in (f"code={code}&state=forged", f"code={code}", "state=x", "", "error=access_denied&state=x"):
        refused = await visitor.get(f"/api/auth/oidc/callback?{query}", follow_redirects=False)
        assert refused.status_code == 401, query
        assert "rem_session" not in refused.headers.get("set-cookie", "")
    # The victim's browser gets the callback of the attacker's login: it did not start it.
    async with browser(address) as victim:
        refused = await victim.get(await finish_by_hand(visitor))
        assert refused.status_code == 401
        assert "started in another browser" in refused.json()["error"]["message"]


async def test_callback_of_another_provider_is_refused(visitor: httpx2.AsyncClient, provider: Provider) -> None:
    for issuer, status in (("https://evil.example", 401), ("", 401), (provider.base, 200)):
        answer = await visitor.get(f"{await finish_by_hand(visitor)}&iss={issuer}")
        assert answer.status_code == status, issuer


async def test_failed_login_is_a_page_in_a_browser(visitor: httpx2.AsyncClient) -> None:
    await visitor.get("/api/auth/oidc/login", params={"next": "/chat?a=1&b=2"}, follow_redirects=False)
    for query, reason in (
        ("error=access_denied&state=x", "was cancelled"),
        ("code=x&state=forged", "started in another browser"),
        ("error=%3Cscript%3E&error_description=%3Cscript%3E&state=%3Cscript%3E", "started in another browser"),
        ("code=x&state=x&iss=%3Cscript%3E", "is not from the login provider"),
    ):
        refused = await visitor.get(f"/api/auth/oidc/callback?{query}", headers={"Accept": BROWSER_ACCEPT})
        assert refused.status_code == 401
        assert refused.headers["content-type"] == "text/html; charset=utf-8"
        assert reason in refused.text
        assert "script" not in refused.text
        assert 'href="/api/auth/oidc/login?next=%2Fchat%3Fa%3D1%26b%3D2"' in refused.text
        assert "default-src 'none'" in refused.headers["content-security-policy"]
        assert refused.headers["x-frame-options"] == "DENY"
        assert refused.headers["x-content-type-options"] == "nosniff"
        assert refused.headers["cache-control"] == "no-store"
        assert "rem_session" not in refused.headers.get("set-cookie", "")


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "application/json, text/html;q=0.9", "text/html;q=x"]
)
async def test_failed_login_is_json_for_programs(visitor: httpx2.AsyncClient, accept: str | None) -> None:
    headers = {} if accept is None else {"Accept": accept}
    refused = await visitor.get("/api/auth/oidc/callback?error=access_denied", headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")


async def test_page_of_a_failed_login_escapes_what_others_wrote(visitor: httpx2.AsyncClient) -> None:
    for path in ("%22%3E%3Cscript%3E/login", "%22%3E%3Cscript%3E/callback"):
        missing = await visitor.get(f"/api/auth/{path}", headers={"Accept": BROWSER_ACCEPT})
        assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "<script" not in missing.text
        assert "Try again" not in missing.text
    # The cookie with the way back is not signed: only a local path of it is used.
    visitor.cookies.set("rem_next", "https://evil.example", path="/api/auth")
    refused = await visitor.get("/api/auth/oidc/callback", headers={"Accept": BROWSER_ACCEPT})
    assert 'href="/api/auth/oidc/login"' in refused.text
    assert "evil" not in refused.text


async def test_callback_works_once(visitor: httpx2.AsyncClient) -> None:
    callback = await finish_by_hand(visitor)
    assert (await visitor.get(callback)).status_code == 200
    await visitor.post("/api/auth/logout")
    assert (await visitor.get(callback)).status_code == 401


async def test_id_tokens_that_are_not_for_this_login_are_refused(
    visitor: httpx2.AsyncClient, provider: Provider
) -> None:
    for name, value in (
        ("aud", "another-client"),
        ("iss", "https://evil.example"),
        ("nonce", "replayed"),
        ("exp", int(time.time()) - 3600),
        ("sub", None),
        ("email", None),
        ("email", ["sarah@example.com"]),
    ):
        provider.changes = {name: value}
        assert (await visitor.get("/api/auth/oidc/login")).status_code in (401, 403), name
        assert (await visitor.get("/api/auth/me")).json()["method"] == "none"


async def test_id_tokens_with_a_forged_signature_are_refused(visitor: httpx2.AsyncClient, provider: Provider) -> None:
    for algorithm in ("none", "HS256", "foreign key"):
        provider.algorithm = algorithm
        provider.signs_with_foreign_key = algorithm == "foreign key"
        assert (await visitor.get("/api/auth/oidc/login")).status_code == 401, algorithm
        assert (await visitor.get("/api/auth/me")).json()["method"] == "none"


async def test_address_must_be_verified(visitor: httpx2.AsyncClient, provider: Provider) -> None:
    for verified in (False, None, "no"):
        provider.claims["email_verified"] = verified
        refused = await visitor.get("/api/auth/oidc/login")
        assert refused.status_code == 403
        assert "not verified" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "email", ["\u212aim@example.com", "bo\u017fs@example.com", "\uff53arah@example.com"], ids=ascii
)
async def test_address_with_characters_that_stand_for_others_is_refused(
    visitor: httpx2.AsyncClient, provider: Provider, email: str
) -> None:
    provider.claims["email"] = email
    # The Kelvin sign in lower case is a plain k, so this would be the id of another person.
    assert resolve_user_id("\u212aim@example.com") == resolve_user_id("kim@example.com")
    assert (await visitor.get("/api/auth/oidc/login")).status_code == 403
    assert (await visitor.get("/api/auth/me")).json()["method"] == "none"


async def test_service_account_makes_no_credentials_of_others(visitor: httpx2.AsyncClient, rem: Rem) -> None:
    await Accounts(rem.database).save("sarah@example.com", "default", role=UserRole.SERVICE)
    await log_in(visitor)
    named = {"X-User-Id": "victim@example.com"}
    assert (await visitor.get("/api/auth/me", headers=named)).json()["id"] == resolve_user_id("victim@example.com")
    for path in ("keys", "tokens"):
        answer = await visitor.post(f"/api/auth/{path}", json={"name": "stolen"}, headers=named)
        assert answer.status_code == 403, answer.text
    assert (await visitor.get("/api/auth/keys", headers=named)).status_code == 403


async def test_provider_that_is_down_is_reported(settings: Settings) -> None:
    async with auth_served(settings, Provider(base="http://127.0.0.1:9")) as address, browser(address) as client:
        refused = await client.get("/api/auth/oidc/login")
        assert refused.status_code == 502
        assert refused.json()["error"]["code"] == "login_provider_error"
        page = await client.get("/api/auth/oidc/login?next=/chat", headers={"Accept": BROWSER_ACCEPT})
        assert page.status_code == 502
        assert "cannot be reached" in page.text
        assert 'href="/api/auth/oidc/login?next=%2Fchat"' in page.text
        assert (await client.get("/api/auth/google/login")).status_code == 404
        assert (await client.get("/api/auth/providers")).json()["providers"] == ["microsoft", "oidc"]


async def test_tenant_and_admission_follow_the_domain(settings: Settings, provider: Provider) -> None:
    rules: dict[str, Any] = {"allowed_domains": ["example.com"], "tenants_by_domain": {"acme.com": "acme"}}
    async with auth_served(settings, provider, **rules) as address:
        for email, tenant in (("a@example.com", "default"), ("b@ACME.com", "acme")):
            provider.claims["email"] = email
            async with browser(address) as client:
                assert (await log_in(client))["tenant_id"] == tenant
        for email in ("c@evil.com", "d@example.com.evil.com", "e@notexample.com"):
            provider.claims["email"] = email
            async with browser(address) as client:
                assert (await client.get("/api/auth/oidc/login")).status_code == 403


async def test_disabled_account_cannot_log_in(visitor: httpx2.AsyncClient, address: str, rem: Rem) -> None:
    from rem.auth.accounts import Accounts

    await log_in(visitor)
    await Accounts(rem.database).set_disabled("sarah@example.com", "default", disabled=True)
    async with browser(address) as client:
        assert (await client.get("/api/auth/oidc/login")).status_code == 403


async def test_microsoft_with_many_directories(address: str, provider: Provider) -> None:
    provider.issuer_template = "{base}/{tenantid}/v2.0"
    cases: list[tuple[dict[str, Any], int]] = [
        ({"tid": "9188040d-6c67-4c5b-b112-36a304b66dad"}, 200),
        ({"tid": "11111111-2222", "xms_edov": True}, 200),
        # The administrator of any directory can write any address into an account.
        ({"tid": "11111111-2222"}, 403),
        ({"tid": "11111111-2222", "email_verified": True}, 403),
        ({}, 401),
        # The issuer must be that of the directory.
        ({"tid": "9188040d-6c67-4c5b-b112-36a304b66dad", "iss": f"{provider.base}/another/v2.0"}, 401),
        ({"tid": "9188040d-6c67-4c5b-b112-36a304b66dad", "iss": f"{provider.base}/{{tenantid}}/v2.0"}, 401),
        ({"tid": "9188040d-6c67-4c5b-b112-36a304b66dad", "iss": "https://evil.example"}, 401),
    ]
    for claims, status in cases:
        provider.claims = {"sub": "m1", "email": "sarah@example.com", "name": "Sarah"}
        provider.changes = {"iss": f"{provider.base}/{claims.get('tid', 'x')}/v2.0", **claims}
        async with browser(address) as client:
            assert (await client.get("/api/auth/microsoft/login")).status_code == status, claims
