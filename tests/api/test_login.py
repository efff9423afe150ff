"""Log in with a real OpenID Connect provider on loopback, and what an attacker may try."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from pydantic import SecretStr

from rem.app import Rem
from rem.audit.log import AuditFilter
from rem.auth.accounts import Accounts
from rem.auth.identity import UserRole
from rem.context import resolve_user_id
from rem.models import User
from rem.settings import MicrosoftSettings, Settings
from tests.api.auth_server import MAX_COOKIE_BYTES, auth_served, bearer, browser, get_cookies, log_in
from tests.api.oidc_server import CLIENT_ID, CLIENT_SECRET, Provider, provider_served

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
    (profile,) = await rem.for_user("sarah@example.com").store.find(User)
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


async def test_cookies_over_https_belong_to_one_host(settings: Settings, provider: Provider) -> None:
    async with (
        auth_served(settings, provider, "production", public_url="https://rem.example.com") as address,
        httpx2.AsyncClient(base_url=address) as client,
    ):
        first = await client.get("/api/auth/oidc/login", params={"next": "/health/live"})
        sent = parse_cookies(first)
        assert set(sent) == {"__Host-rem_login", "__Host-rem_next"}
        callback = urlsplit((await client.get(first.headers["location"])).headers["location"])
        done_at = f"{callback.path}?{callback.query}"
        client.cookies.clear()
        # Another host of the domain can plant a cookie without the prefix: it starts no login.
        planted = f"rem_login={sent['__Host-rem_login']}"
        assert (await client.get(done_at, headers={"Cookie": planted})).status_code == 401
        cookies = "; ".join(f"{name}={value}" for name, value in sent.items())
        done = await client.get(done_at, headers={"Cookie": f"{cookies}; rem_next=/evil"})
        assert (done.status_code, done.headers["location"]) == (302, "/health/live")
        ended = parse_cookies(done)
        assert (ended["__Host-rem_login"], ended["__Host-rem_next"]) == ("", "")
        login = f"rem_session={ended['__Host-rem_session']}"
        assert (await client.get("/api/auth/me", headers={"Cookie": f"__Host-{login}"})).json()["method"] == "cookie"
        assert (await client.get("/api/auth/me", headers={"Cookie": login})).status_code == 401


def parse_cookies(response: httpx2.Response) -> dict[str, str]:
    """Return the cookies of an answer, all of which have what their prefix demands."""
    found = {}
    for cookie in response.headers.get_list("set-cookie"):
        pair, *attributes = cookie.split("; ")
        assert {"Path=/", "Secure", "HttpOnly", "SameSite=Lax"} <= set(attributes), cookie
        assert not any(attribute.startswith("Domain") for attribute in attributes)
        name, _, found[name] = pair.partition("=")
    return found


async def test_second_login_keeps_the_account_and_the_profile(
    visitor: httpx2.AsyncClient, provider: Provider, rem: Rem
) -> None:
    await rem.for_user("sarah@example.com").store.upsert(
        User(name="S. Chen", email="sarah@example.com", interests=["tea"])
    )
    await log_in(visitor)
    provider.claims["name"] = "Sarah Chen-Li"
    assert (await log_in(visitor))["name"] == "Sarah Chen-Li"
    (profile,) = await rem.for_user("sarah@example.com").store.find(User)
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


async def test_role_admin_ends_with_its_setting(settings: Settings, provider: Provider, rem: Rem) -> None:
    provider.claims |= {"email": "Boss@Example.com", "sub": "2"}
    async with auth_served(settings, provider, admin_emails=["boss@example.com"]) as address, browser(address) as boss:
        assert (await log_in(boss))["role"] == "admin"
        pair = (await boss.post("/api/auth/tokens")).json()
        key = (await boss.post("/api/auth/keys", json={"name": "k", "scopes": ["read", "admin"]})).json()["key"]
        credentials = [
            {"Cookie": f"rem_session={boss.cookies['rem_session']}"},
            bearer(pair["access_token"]),
            bearer(key),
        ]
        assert await read_roles(address, credentials) == [("admin", 200)] * 3
        users = (await boss.get("/api/v1/admin/users")).json()["data"]
        assert [user["role"] for user in users if user["email"] == "Boss@Example.com"] == ["admin"]
    async with auth_served(settings, provider) as address, browser(address) as boss:
        assert await read_roles(address, credentials) == [("user", 403)] * 3
        renewed = (await boss.post("/api/auth/refresh", json={"refresh_token": pair["refresh_token"]})).json()
        assert await read_roles(address, [bearer(renewed["access_token"])]) == [("user", 403)]
        assert (await log_in(boss))["role"] == "user"
    # A role that was given to the account itself does not depend on the setting.
    await Accounts(rem.database).save("boss@example.com", "default", role=UserRole.ADMIN)
    async with auth_served(settings, provider) as address:
        assert await read_roles(address, credentials) == [("admin", 200)] * 3


async def read_roles(address: str, credentials: list[dict[str, str]]) -> list[tuple[str, int]]:
    """Return the role of each credential, and what an administrator's page answers to it."""
    found = []
    async with httpx2.AsyncClient(base_url=address) as client:
        for headers in credentials:
            caller = (await client.get("/api/auth/me", headers=headers)).json()
            found.append((caller["role"], (await client.get("/api/v1/admin/users", headers=headers)).status_code))
    return found


async def test_login_ends_when_its_domain_is_no_longer_allowed(settings: Settings, provider: Provider) -> None:
    async with auth_served(settings, provider, allowed_domains=["example.com"]) as address, browser(address) as sarah:
        await log_in(sarah)
        pair = (await sarah.post("/api/auth/tokens")).json()
        cookie = {"Cookie": f"rem_session={sarah.cookies['rem_session']}"}
    async with auth_served(settings, provider, allowed_domains=["other.com"]) as address, browser(address) as sarah:
        assert (await sarah.get("/api/auth/me", headers=cookie)).json()["method"] == "none"
        assert (await sarah.get("/api/auth/me", headers=bearer(pair["access_token"]))).status_code == 401
        refresh = {"refresh_token": pair["refresh_token"]}
        assert (await sarah.post("/api/auth/refresh", json=refresh)).status_code == 401
    async with auth_served(settings, provider, allowed_domains=["example.com"]) as address, browser(address) as sarah:
        assert (await sarah.get("/api/auth/me", headers=cookie)).json()["method"] == "cookie"
        assert (await sarah.post("/api/auth/refresh", json=refresh)).status_code == 200


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


async def finish_by_hand(visitor: httpx2.AsyncClient, name: str = "oidc") -> str:
    """Start a login, and return the address that the provider sends the browser back to."""
    first = await visitor.get(f"/api/auth/{name}/login", follow_redirects=False)
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


CONSUMERS = "9188040d-6c67-4c5b-b112-36a304b66dad"
DIRECTORY = "11111111-2222-4333-8444-555555555555"
OTHER_DIRECTORY = "66666666-7777-4888-8999-aaaaaaaaaaaa"


def come_from_microsoft(provider: Provider, claims: dict[str, Any]) -> None:
    """Let the provider's person come from a directory of Microsoft."""
    provider.claims = {"sub": "m1", "email": "sarah@example.com", "name": "Sarah"}
    provider.changes = {"iss": f"{provider.base}/{claims.get('tid', 'x')}/v2.0", **claims}


async def test_microsoft_with_many_directories(address: str, provider: Provider) -> None:
    provider.issuer_template = "{base}/{tenantid}/v2.0"
    cases: list[tuple[dict[str, Any], int]] = [
        ({"tid": CONSUMERS}, 200),
        ({"tid": DIRECTORY, "xms_edov": True}, 200),
        # The administrator of any directory can write any address into an account.
        ({"tid": DIRECTORY}, 403),
        ({"tid": DIRECTORY, "email_verified": True}, 403),
        ({}, 401),
        ({"tid": "11111111-2222", "xms_edov": True}, 401),
        ({"tid": "{tenantid}", "xms_edov": True}, 401),
        ({"tid": f"x/../{DIRECTORY}", "xms_edov": True}, 401),
        # The issuer must be that of the directory.
        ({"tid": CONSUMERS, "iss": f"{provider.base}/{DIRECTORY}/v2.0"}, 401),
        ({"tid": CONSUMERS, "iss": f"{provider.base}/another/v2.0"}, 401),
        ({"tid": CONSUMERS, "iss": f"{provider.base}/{{tenantid}}/v2.0"}, 401),
        ({"tid": CONSUMERS, "iss": "https://evil.example"}, 401),
    ]
    for claims, status in cases:
        come_from_microsoft(provider, claims)
        async with browser(address) as client:
            assert (await client.get("/api/auth/microsoft/login")).status_code == status, claims


async def test_issuer_of_microsoft_is_below_its_own_address(address: str, provider: Provider) -> None:
    """Metadata that names another issuer does not make it the one of Microsoft's login."""
    provider.issuer_template = "https://evil.example/{tenantid}/v2.0"
    come_from_microsoft(provider, {"tid": CONSUMERS, "iss": f"https://evil.example/{CONSUMERS}/v2.0"})
    async with browser(address) as client:
        assert (await client.get("/api/auth/microsoft/login")).status_code == 401


async def test_answer_of_microsoft_names_the_issuer_of_the_token(address: str, provider: Provider) -> None:
    provider.issuer_template = "{base}/{tenantid}/v2.0"
    come_from_microsoft(provider, {"tid": CONSUMERS})
    for issuer, status in (
        ("https://evil.example", 401),
        ("", 401),
        (provider.issuer, 401),
        (f"{provider.base}/{CONSUMERS}/v2.0/x", 401),
        (f"{provider.base}/{OTHER_DIRECTORY}/v2.0", 401),
        (f"{provider.base}/{CONSUMERS}/v2.0", 200),
    ):
        async with browser(address) as client:
            callback = await finish_by_hand(client, "microsoft")
            assert (await client.get(f"{callback}&iss={issuer}")).status_code == status, issuer


@pytest.mark.parametrize("tenant", ["common", "Common", " COMMON ", "Organizations", "CONSUMERS"])
async def test_address_is_checked_however_the_tenant_is_written(
    settings: Settings, provider: Provider, tenant: str
) -> None:
    provider.issuer_template = "{base}/{tenantid}/v2.0"
    come_from_microsoft(provider, {"tid": DIRECTORY})
    async with (
        auth_served(settings, provider, microsoft=microsoft_of(provider, tenant)) as address,
        browser(address) as client,
    ):
        assert (await client.get("/api/auth/microsoft/login")).status_code == 403
        assert (await client.get("/api/auth/me")).json()["method"] == "none"


def microsoft_of(provider: Provider, tenant: str) -> MicrosoftSettings:
    """Return the settings of a login with a directory of Microsoft."""
    secret = SecretStr(CLIENT_SECRET)
    return MicrosoftSettings(client_id=CLIENT_ID, client_secret=secret, authority=provider.base, tenant=tenant)


@pytest.mark.parametrize("tenant", [f" {DIRECTORY.upper()} ", "Example.OnMicrosoft.com"])
async def test_own_directory_of_microsoft_admits_its_own_accounts(
    settings: Settings, provider: Provider, tenant: str
) -> None:
    provider.issuer_template = f"{{base}}/{DIRECTORY}/v2.0"
    async with auth_served(settings, provider, microsoft=microsoft_of(provider, tenant)) as address:
        for directory, status in ((DIRECTORY, 200), (OTHER_DIRECTORY, 401), (CONSUMERS, 401)):
            come_from_microsoft(provider, {"tid": directory})
            async with browser(address) as client:
                assert (await client.get("/api/auth/microsoft/login")).status_code == status, directory
            # A token that names another directory than its issuer.
            provider.changes["iss"] = provider.issuer
            async with browser(address) as client:
                assert (await client.get("/api/auth/microsoft/login")).status_code == status, directory


async def test_own_directory_needs_an_issuer_of_its_own(settings: Settings, provider: Provider) -> None:
    """Metadata for many directories would admit the accounts of all of them without a check of the address."""
    provider.issuer_template = "{base}/{tenantid}/v2.0"
    async with auth_served(settings, provider, microsoft=microsoft_of(provider, "example.com")) as address:
        come_from_microsoft(provider, {"tid": OTHER_DIRECTORY})
        async with browser(address) as client:
            assert (await client.get("/api/auth/microsoft/login")).status_code == 401
