"""MCP behind a login: clients find the authorization server, register, and log in by themselves."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.auth import OAuth
from fastmcp.exceptions import ToolError
from mcp.shared.auth import AuthorizationCodeResult

from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.context import resolve_user_id
from rem.mcp.oauth_server import MAX_STATE_CHARS
from rem.mcp.scopes import get_tool_scope
from rem.settings import Settings
from rem.tools.registry import TOOLS
from tests.api.auth_server import MAX_COOKIE_BYTES, auth_served, bearer, browser, get_cookies, log_in, read_form
from tests.api.oidc_server import Provider, provider_served

MCP = "/api/v1/mcp"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}
REDIRECT = "http://127.0.0.1:7777/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """Serve a login provider."""
    async with provider_served() as provider:
        yield provider


@pytest.fixture
async def address(settings: Settings, provider: Provider) -> AsyncIterator[str]:
    """Serve the API and MCP with authentication and one login."""
    from rem.settings import MicrosoftSettings

    async with auth_served(settings, provider, microsoft=MicrosoftSettings()) as address:
        yield address


class BrowserLogin(OAuth):
    """The login of fastmcp's client, with a browser of the test instead of the person's."""

    address = ""
    location = ""
    answer = "allow"

    async def redirect_handler(self, authorization_url: str) -> None:
        """Log in and answer the question."""
        async with browser(self.address) as person:
            page = await person.get(authorization_url)
            assert "asks to act for sarah@example.com" in page.text
            fields = {**read_form(page.text), "answer": self.answer}
            done = await person.post("/api/auth/oauth/consent", data=fields, follow_redirects=False)
            self.location = done.headers["location"]

    async def callback_handler(self) -> AuthorizationCodeResult:
        """Return what the browser would bring to the client."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.location).query).items()}
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))


@pytest.mark.filterwarnings("ignore:Using in-memory token storage")
async def test_client_logs_in_by_itself(address: str, rem: Rem) -> None:
    login = BrowserLogin(scopes=["read", "write"], client_name="<b>Editor</b>")
    login.address = address
    async with Client(address + MCP, auth=login) as client:
        await client.call_tool("ingest_into_rem", {"name": "Note", "content": "Tea at noon. " * 3})
        profile = json.loads((await client.read_resource("user://profile/me"))[0].text)
    assert profile["user_id"] == resolve_user_id("sarah@example.com")
    (row,) = await rem.for_user("sarah@example.com").store.lookup("note", table="resources")
    assert row.user_id == resolve_user_id("sarah@example.com")


async def test_anonymous_client_is_told_how_to_log_in(address: str) -> None:
    async with browser(address) as client:
        refused = await client.post(MCP, json=LIST, headers=ACCEPT)
        assert refused.status_code == 401
        challenge = refused.headers["www-authenticate"]
        assert f'resource_metadata="{address}/.well-known/oauth-protected-resource/api/v1/mcp"' in challenge
        resource = (await client.get("/.well-known/oauth-protected-resource/api/v1/mcp")).json()
        assert resource["resource"] == address + MCP
        assert resource["authorization_servers"] == [address]
        assert (await client.get("/.well-known/oauth-protected-resource")).json() == resource
        server = (await client.get("/.well-known/oauth-authorization-server")).json()
        assert server["issuer"] == address
        assert server["code_challenge_methods_supported"] == ["S256"]
        for name in ("authorization", "token", "registration", "revocation"):
            assert server[f"{name}_endpoint"].startswith(f"{address}/api/auth/oauth/")


async def test_anonymous_clients_can_be_allowed_to_read(settings: Settings, rem: Rem) -> None:
    async with auth_served(settings, mcp_requires_auth=False) as address, Client(address + MCP) as client:
        assert await client.list_tools()
        assert (await client.call_tool("lookup", {"key": "x"})).data["results"] == []
        with pytest.raises(ToolError, match="needs a login with the scope write"):
            await client.call_tool("ingest_into_rem", {"name": "Planted", "content": "x"})
    assert await rem.for_user().store.lookup("planted") == []


def test_unknown_tool_needs_the_stronger_scope() -> None:
    assert {get_tool_scope(name) for name in TOOLS} == {"read", "write"}
    assert get_tool_scope("no such tool") == "write"


async def test_key_with_the_scope_read_cannot_change_anything(address: str, rem: Rem) -> None:
    key, _ = await ApiKeys(rem.database).create("reader", "sarah@example.com", "default", scopes=["read"])
    chat, _ = await ApiKeys(rem.database).create("chat", "sarah@example.com", "default", scopes=["chat"])
    async with Client(address + MCP, auth=key) as client:
        for name in TOOLS:
            if get_tool_scope(name) == "write":
                # The scope is checked before the arguments.
                with pytest.raises(ToolError, match=r"scope write|not valid"):
                    await client.call_tool(name, {})
        with pytest.raises(ToolError, match="scope write"):
            await client.call_tool("ingest_into_rem", {"name": "Note", "content": "x"})
    async with Client(address + MCP, auth=chat) as client:
        with pytest.raises(ToolError, match="scope read"):
            await client.call_tool("lookup", {"key": "x"})


async def register(client: httpx2.AsyncClient, **changes: Any) -> httpx2.Response:
    registration = {"client_name": "Test", "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none", **changes}
    return await client.post("/api/auth/oauth/register", json=registration)


async def ask(client: httpx2.AsyncClient, client_id: str, **changes: str) -> httpx2.Response:
    params = {
        "client_id": client_id,
        "redirect_uri": REDIRECT,
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s",
        **changes,
    }
    return await client.get("/api/auth/oauth/authorize", params=params)


async def get_code(client: httpx2.AsyncClient, client_id: str) -> str:
    fields = read_form((await ask(client, client_id)).text)
    done = await client.post("/api/auth/oauth/consent", data={**fields, "answer": "allow"}, follow_redirects=False)
    assert done.headers["location"].startswith(REDIRECT)
    return parse_qs(urlsplit(done.headers["location"]).query)["code"][0]


async def exchange(client: httpx2.AsyncClient, client_id: str, **fields: str) -> httpx2.Response:
    return await client.post("/api/auth/oauth/token", data={"client_id": client_id, **fields})


def for_code(code: str, **changes: str) -> dict[str, str]:
    given = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "code_verifier": VERIFIER}
    return {**given, **changes}


async def test_code_and_tokens_belong_to_one_client(address: str) -> None:
    async with browser(address) as person:
        first = (await register(person)).json()["client_id"]
        second = (await register(person)).json()["client_id"]
        code = await get_code(person, first)
        assert (await exchange(person, second, **for_code(code))).status_code == 400
        assert (await exchange(person, first, **for_code(code, code_verifier="w" * 64))).status_code == 400
        assert (await exchange(person, first, **for_code(code, redirect_uri=REDIRECT + "x"))).status_code == 400
        pair = (await exchange(person, first, **for_code(code))).json()
        me = await person.get("/api/auth/me", headers=bearer(pair["access_token"]))
        assert me.json()["scopes"] == ["chat", "read", "write"]
        # The tokens of a client are no way to more rights.
        for path in ("/api/auth/keys", "/api/auth/tokens"):
            assert (
                await person.post(path, json={"name": "x"}, headers=bearer(pair["access_token"]))
            ).status_code == 403
        renew = {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]}
        assert (await exchange(person, second, **renew)).status_code == 400
        assert (
            await person.post("/api/auth/refresh", json={"refresh_token": pair["refresh_token"]})
        ).status_code == 401
        assert (await exchange(person, first, **renew)).status_code == 200


async def test_replayed_code_ends_the_login_that_it_led_to(address: str) -> None:
    async with browser(address) as person:
        client_id = (await register(person)).json()["client_id"]
        code = await get_code(person, client_id)
        pair = (await exchange(person, client_id, **for_code(code))).json()
        assert (await exchange(person, client_id, **for_code(code))).status_code == 400
        refused = await person.get("/api/auth/me", headers=bearer(pair["access_token"]))
        assert refused.status_code == 401


async def test_replayed_refresh_token_ends_the_login(address: str) -> None:
    async with browser(address) as person:
        client_id = (await register(person)).json()["client_id"]
        pair = (await exchange(person, client_id, **for_code(await get_code(person, client_id)))).json()
        renew = {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]}
        renewed = (await exchange(person, client_id, **renew)).json()
        assert (await exchange(person, client_id, **renew)).json()["error"] == "invalid_grant"
        refused = await person.get("/api/auth/me", headers=bearer(renewed["access_token"]))
        assert refused.status_code == 401


async def test_client_can_revoke_its_login(address: str) -> None:
    async with browser(address) as person:
        client_id = (await register(person)).json()["client_id"]
        for name in ("access_token", "refresh_token"):
            pair = (await exchange(person, client_id, **for_code(await get_code(person, client_id)))).json()
            revoked = await person.post("/api/auth/oauth/revoke", data={"client_id": client_id, "token": pair[name]})
            assert revoked.status_code == 200
            assert (await person.get("/api/auth/me", headers=bearer(pair["access_token"]))).status_code == 401
        other = (await register(person)).json()["client_id"]
        pair = (await exchange(person, client_id, **for_code(await get_code(person, client_id)))).json()
        for name in ("access_token", "refresh_token"):
            await person.post("/api/auth/oauth/revoke", data={"client_id": other, "token": pair[name]})
        assert (await person.get("/api/auth/me", headers=bearer(pair["access_token"]))).status_code == 200


async def test_client_cannot_end_other_logins_of_the_person(address: str) -> None:
    async with browser(address) as client:
        client_id = (await register(client)).json()["client_id"]
        pair = (await exchange(client, client_id, **for_code(await get_code(client, client_id)))).json()
        async with httpx2.AsyncClient(base_url=address, headers=bearer(pair["access_token"])) as program:
            refused = await program.post("/api/auth/logout", params={"everywhere": "true"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
            assert (await client.get("/api/auth/me")).json()["method"] == "cookie"
            assert (await program.post("/api/auth/logout")).status_code == 204
            assert (await program.get("/api/auth/me")).status_code == 401
        assert (await client.get("/api/auth/me")).json()["method"] == "cookie"


async def test_long_state_survives_the_login(address: str) -> None:
    async with browser(address) as client:
        client_id = (await register(client)).json()["client_id"]
        asked = await ask(client, client_id, state="s" * MAX_STATE_CHARS)
        assert "Allow access" in asked.text
        assert max(map(len, get_cookies(asked))) <= MAX_COOKIE_BYTES
        fields = read_form(asked.text)
        done = await client.post("/api/auth/oauth/consent", data={**fields, "answer": "allow"}, follow_redirects=False)
        assert parse_qs(urlsplit(done.headers["location"]).query)["state"] == ["s" * MAX_STATE_CHARS]
        # A letter beyond ASCII takes six bytes there.
        client.follow_redirects = False
        too_long = await ask(client, client_id, state="ü" * MAX_STATE_CHARS)
        assert "error=invalid_request" in too_long.headers["location"]


async def test_person_can_deny(address: str) -> None:
    async with browser(address) as person:
        client_id = (await register(person)).json()["client_id"]
        page = await ask(person, client_id)
        assert page.headers["x-frame-options"] == "DENY"
        fields = {**read_form(page.text), "answer": "deny"}
        done = await person.post("/api/auth/oauth/consent", data=fields, follow_redirects=False)
        query = parse_qs(urlsplit(done.headers["location"]).query)
        assert (query["error"], query["state"], "code" in query) == (["access_denied"], ["s"], False)


async def test_answer_of_another_browser_is_refused(address: str, provider: Provider) -> None:
    async with browser(address) as attacker, browser(address) as victim:
        client_id = (await register(attacker)).json()["client_id"]
        fields = read_form((await ask(attacker, client_id)).text)
        provider.claims = {**provider.claims, "email": "victim@example.com", "sub": "2"}
        await log_in(victim)
        for changed in ({}, {"proof": ""}, {"proof": "0" * 64}):
            answer = {**fields, "answer": "allow", **changed}
            assert (await victim.post("/api/auth/oauth/consent", data=answer)).status_code == 403
        forged = {"request": "a.b.c", "proof": "", "answer": "allow"}
        assert (await victim.post("/api/auth/oauth/consent", data=forged)).status_code == 401


async def test_name_of_a_client_is_text(address: str) -> None:
    async with browser(address) as person:
        client_id = (await register(person, client_name="<script>alert(1)</script>")).json()["client_id"]
        page = (await ask(person, client_id)).text
        assert "<script>" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


async def test_unsafe_redirects_cannot_be_registered(address: str) -> None:
    unsafe = [
        *("http://evil.example/cb", "http://localhost.evil.example/cb", "http://127.0.0.1@evil.example/cb"),
        *("http://user@127.0.0.1:7777/cb", "https://rem.example.com@evil.example/cb", "http://0.0.0.0/cb"),
        *("https://a.example/cb#x", "https://a.example/cb#", "com.example.app:/cb#x"),
        *("javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "vbscript:x", "file:///x", "blob:x"),
        *(
            "about:blank",
            "ftp://evil.example/cb",
            "FTP://evil.example/cb",
            "ws://evil.example/cb",
            "mailto:a@b.example",
        ),
        *("tel:1", "smb://evil.example/x", "ms-msdt:/id", "search-ms:query=x", "view-source:https://a.example/"),
        *("intent://x", "urn:ietf:wg:oauth:2.0:oob", "jar:https://a.example/", "app://done", "com.:/cb"),
    ]
    async with browser(address) as client:
        for uri in unsafe:
            refused = await register(client, redirect_uris=[uri])
            assert refused.status_code == 400, uri
            assert refused.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata"), uri
        # One good address does not carry a bad one with it.
        assert (await register(client, redirect_uris=[REDIRECT, "ftp://evil.example/cb"])).status_code == 400
        assert (await register(client, client_name="a\x00b")).status_code == 400


@pytest.mark.parametrize(
    "uri",
    [
        *("https://a.example/cb", "https://a.example:8443/cb?x=1", "http://localhost:33418/", "http://[::1]:7777/cb"),
        *(
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "vscode://vendor.extension/callback",
            "warp://mcp/oauth2callback",
        ),
        *("com.example.app:/oauth2redirect", "com.example.app://callback"),
    ],
)
async def test_apps_get_their_code_at_their_own_address(address: str, uri: str) -> None:
    async with browser(address) as client:
        registered = await register(client, redirect_uris=[uri])
        assert registered.status_code == 201, registered.text
        fields = read_form((await ask(client, registered.json()["client_id"], redirect_uri=uri)).text)
        done = await client.post("/api/auth/oauth/consent", data={**fields, "answer": "allow"}, follow_redirects=False)
        assert done.headers["location"].startswith(uri)
        assert parse_qs(urlsplit(done.headers["location"]).query)["code"]


async def test_registered_clients_get_no_secret(address: str) -> None:
    async with browser(address) as client:
        made = (await register(client, token_endpoint_auth_method="client_secret_post")).json()
        assert made["token_endpoint_auth_method"] == "none"
        assert not made.get("client_secret")


async def test_wrong_authorization_requests_lead_to_no_question(address: str) -> None:
    async with browser(address) as person:
        await log_in(person)
        client_id = (await register(person)).json()["client_id"]
        params = {"client_id": client_id, "redirect_uri": REDIRECT, "response_type": "code", "state": "s"}
        params |= {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}
        for name, value in (
            ("redirect_uri", "http://127.0.0.1:7777/other"),
            ("client_id", "unknown"),
            ("code_challenge_method", "plain"),
            ("response_type", "token"),
            ("scope", "admin"),
            ("resource", "https://other.example/api/v1/mcp"),
            ("state", "s" * 3000),
            ("state", "a\x00b"),
            ("client_id", "a\x00b"),
        ):
            answer = await person.get(
                "/api/auth/oauth/authorize", params={**params, name: value}, follow_redirects=False
            )
            location = answer.headers.get("location", "")
            assert answer.status_code == 400 or (location.startswith(REDIRECT) and "error=" in location), name
            assert "code=" not in location


async def test_without_a_login_there_is_no_authorization_server(settings: Settings) -> None:
    async with auth_served(settings) as address, browser(address) as client:
        refused = await client.post(MCP, json=LIST, headers=ACCEPT)
        assert refused.status_code == 401
        assert "resource_metadata" not in refused.headers["www-authenticate"]
        assert (await client.get("/.well-known/oauth-authorization-server")).status_code == 404
        assert (await register(client)).status_code == 404
