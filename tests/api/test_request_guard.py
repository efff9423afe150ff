"""RequestGuardMiddleware and SecurityHeadersMiddleware: hosts, duplicate headers, foreign web pages, slow bodies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import cache

import httpx2 as httpx
import pytest
from fastapi import FastAPI

from rem.api.main import create_app
from rem.api.request_guard import (
    SAFE_METHODS,
    SINGLE_HEADERS,
    SecurityHeadersMiddleware,
    _drop_escaped_cookies,
    parse_host,
)
from rem.mcp.http import MCP_PATH
from rem.settings import ApiSettings, Settings
from tests.api.live_server import client as live_client
from tests.api.live_server import served


@cache
def make_app(allowed: tuple[str, ...] = (), origins: tuple[str, ...] = ()) -> FastAPI:
    """Return an application that is never started: nothing that these tests send reaches the memory."""
    return create_app(Settings(api=ApiSettings(allowed_hosts=list(allowed), cors_origins=list(origins))))


def client(*allowed: str, origins: tuple[str, ...] = ()) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=make_app(allowed, origins))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "[::1]:8000", "[::1]", "192.168.1.5", "localhost:80", "rem", "rem:8000", "me.localhost", ""],
)
async def test_ip_address_or_plain_host_name_is_allowed(host: str) -> None:
    async with client() as http:
        assert (await http.get("/health/live", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "evil.example."])
async def test_unknown_host_name_is_refused(host: str) -> None:
    async with client() as http:
        refused = await http.get("/health/live", headers={"host": host})
    assert refused.status_code == 421
    assert refused.json()["error"]["code"] == "host_not_allowed"
    assert "API__ALLOWED_HOSTS" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "host",
    [
        *("[::1].evil.com", "[::1]evil.com", "[::1", "[127.0.0.1]", "[::1%25eth0]", "[]", "a b", "user@rem", "rem/x"),
        *("rem:80:80", "rem:http", "rem:99999", "rem,evil.com", "localhost\t.evil.com"),
    ],
)
async def test_host_that_is_no_host_is_refused(host: str) -> None:
    async with client("*") as http:
        refused = await http.get("/health/live", headers={"host": host})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_host")


async def test_configured_host_names_are_allowed() -> None:
    async with client("REM.example.com") as http:
        assert (await http.get("/health/live", headers={"host": "rem.example.com:443"})).status_code == 200
        assert (await http.get("/health/live", headers={"host": "other.example.com"})).status_code == 421
    async with client("*") as http:
        assert (await http.get("/health/live", headers={"host": "any.example.com"})).status_code == 200


def test_address_has_one_form() -> None:
    assert parse_host("[0:0::1]:80") == parse_host("[::1]:80")
    assert parse_host("REM.Example.com.") == ("rem.example.com", None)


@pytest.mark.parametrize("name", sorted(SINGLE_HEADERS))
async def test_header_that_decides_something_must_not_occur_twice(name: str) -> None:
    async with client() as http:
        refused = await http.get("/health/live", headers=[("host", "rem"), (name, "rem"), (name.title(), "other")])
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "duplicate_header")
        assert name in refused.json()["error"]["message"]
        twice = [("accept-language", "en"), ("accept-language", "de"), ("x-user-id", "alice@example.com")]
        assert (await http.get("/health/live", headers=twice)).status_code == 200


FOREIGN = (
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:3000"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"origin": "http://[::1].evil.com"},
    {"origin": "ftp://127.0.0.1"},
    {"origin": "http://"},
    {"origin": "http://[broken"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://127.0.0.1", "sec-fetch-site": "cross-site"},
)
OWN: tuple[dict[str, str], ...] = (
    {},
    {"origin": "http://127.0.0.1"},
    {"origin": "https://127.0.0.1"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
    {"origin": "https://rem.example.com", "sec-fetch-site": "same-origin"},
)


def changing_operations(app: FastAPI) -> list[tuple[str, str]]:
    """Return the method and path of each route that may change something, also those that are not documented."""
    documented = [(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods]
    hidden = [("POST", MCP_PATH), ("DELETE", MCP_PATH), ("POST", f"{MCP_PATH}/"), ("POST", "/v1/chat/completions")]
    return sorted(operation for operation in [*documented, *hidden] if operation[0] not in SAFE_METHODS)


async def test_foreign_web_pages_may_change_nothing_on_any_route() -> None:
    operations = changing_operations(make_app())
    assert ("POST", "/api/v1/mcp") in operations
    assert ("POST", "/api/v1/files") in operations
    async with client() as http:
        for method, path in [*operations, ("PATCH", "/nothing")]:
            for headers in FOREIGN:
                refused = await http.request(method, path, headers=headers, files={"file": ("a.txt", b"planted")})
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin_not_allowed"), (
                    *(method, path, headers),
                )


@pytest.mark.parametrize("headers", OWN)
async def test_own_pages_and_programs_may_change_something(headers: dict[str, str]) -> None:
    async with client() as http:
        assert (await http.post("/nothing", headers=headers)).status_code == 404


@pytest.mark.parametrize("headers", FOREIGN)
async def test_foreign_pages_may_ask_without_reading_the_answer(headers: dict[str, str]) -> None:
    async with client() as http:
        answer = await http.get("/health/live", headers=headers)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_configured_origin_may_change_something() -> None:
    async with client(origins=("https://App.example",)) as http:
        page = {"origin": "https://app.example", "sec-fetch-site": "cross-site"}
        assert (await http.post("/nothing", headers=page)).status_code == 404
        page["origin"] = "https://other.example"
        assert (await http.post("/nothing", headers=page)).status_code == 403


async def test_planted_upload_is_not_stored(address: str, as_alice: httpx.AsyncClient) -> None:
    page = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    async with live_client(address) as browser:
        planted = await browser.post("/api/v1/files", files={"file": ("a.md", b"# Planted")}, headers=page)
    assert planted.status_code == 403
    assert (await as_alice.get("/api/v1/files")).json()["data"] == []


async def test_every_answer_has_the_security_headers() -> None:
    async with client() as http:
        answers = [
            await http.get("/health/live"),
            await http.get("/nothing"),
            await http.get("/health/live", headers={"host": "evil.example"}),
            await http.post("/nothing", headers={"origin": "https://evil.example"}),
            await http.post("/api/v1/query", content=b"{"),
        ]
        docs = await http.get("/docs")
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "strict-transport-security" not in answer.headers
    # The page of the documentation loads the scripts of this server.
    assert "script-src 'self';" in docs.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in docs.headers["content-security-policy"]


async def test_browser_must_use_https_in_production() -> None:
    app = SecurityHeadersMiddleware(make_app(), requires_https=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as http:
        answer = await http.get("/health/live")
    assert answer.headers["strict-transport-security"].startswith("max-age=31536000")


async def test_slow_body_is_refused(settings: Settings) -> None:
    limited = settings.model_copy(update={"api": ApiSettings(body_seconds=0.2)})
    async with served(create_app(limited)) as address:
        port = int(address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            "POST /api/v1/query HTTP/1.1\r\nHost: rem\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        )
        writer.write(head.encode() + b'{"query":')
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in answer


async def test_body_in_parts_is_accepted(settings: Settings) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b'{"query": ', b'"LOOKUP x"}'):
            await asyncio.sleep(0.01)
            yield part

    async with served(create_app(settings)) as address, live_client(address) as http:
        answer = await http.post("/api/v1/query", content=parts(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 200


async def test_cookies_with_backslashes_cost_nothing() -> None:
    header = 'a=1; evil="' + "\\\\" * 29_000 + '"; b=2'
    started = time.process_time()
    async with client() as http:
        assert (await http.get("/health/live", headers={"cookie": header})).status_code == 200
    assert time.process_time() - started < 3


def test_other_cookies_stay() -> None:
    headers = [(b"cookie", b'a=1; evil="\\054"; b=2'), (b"x", b"\\")]
    assert _drop_escaped_cookies(headers) == [(b"cookie", b"a=1; b=2"), (b"x", b"\\")]
