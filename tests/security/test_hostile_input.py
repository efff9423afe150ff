"""Malformed and oversized requests get an answer that says what is wrong, on every route, and never an error 500."""

from __future__ import annotations

import httpx2
import orjson
import pytest

from rem.api.main import create_app
from rem.settings import Settings
from tests.api.live_server import client, served
from tests.security.http_attacks import MCP, PUBLIC, list_routes

JSON = {"Content-Type": "application/json"}
DEEP = b"[" * 100_000 + b"]" * 100_000
BODIES: dict[str, tuple[bytes, dict[str, str]]] = {
    "no body": (b"", JSON),
    "no JSON": (b"{", JSON),
    "another type": (b'{"name": "x"}', {"Content-Type": "text/plain"}),
    "a list": (b"[]", JSON),
    "null": (b"null", JSON),
    "a number": (b"1e999", JSON),
    "deep": (DEEP, JSON),
    "deep object": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, JSON),
    "not UTF-8": (b'{"name": "\xff\xfe"}', JSON),
    "NUL": (orjson.dumps({"name": "a\0b", "query": "LOOKUP \0", "input": "\0", "content": "\0"}), JSON),
    "lone surrogate": (b'{"name": "\\ud800", "query": "\\ud800", "input": "\\ud800", "content": "\\ud800"}', JSON),
    "repeated names": (b'{"name": "a", "name": "b", "query": "x", "query": "y"}', JSON),
    "unknown fields": (b'{"__class__": "x", "constructor": {"prototype": 1}}', JSON),
    "broken form": (b"--x\r\nContent-Disposition: form-data", {"Content-Type": "multipart/form-data; boundary=x"}),
    "form without boundary": (b"x", {"Content-Type": "multipart/form-data"}),
    "YAML bomb": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
        b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
        {"Content-Type": "application/yaml"},
    ),
}
PATHS = ["a%00b", "..%2f..%2fetc%2fpasswd", "%ff", "'%20OR%20true--", "x" * 3000, "%F0%9F%98%80", "a%0d%0aX-Y:%20z"]

PARAMETERS = [
    "\0",
    "-1",
    "1e999",
    "9" * 400,
    "NaN",
    "' OR true --",
    "x" * 50_000,
    "%",
    "\U0001f600",
    "0001-01-01T00:00:00Z",
]


@pytest.mark.parametrize("name", BODIES)
async def test_malformed_body_is_refused_on_every_route(name: str, settings: Settings) -> None:
    body, headers = BODIES[name]
    app = create_app(settings)
    failures = []
    async with served(app) as address, client(address, "bob@example.com") as http:
        for method, path in sorted(list_routes(app) - PUBLIC - MCP):
            if method in ("POST", "PUT", "PATCH"):
                response = await http.request(method, _fill(path, "x"), content=body, headers=headers)
                failures += _check(f"{method} {path}", response)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("value", PATHS)
async def test_hostile_path_is_refused_on_every_route(value: str, settings: Settings) -> None:
    app = create_app(settings)
    failures = []
    async with served(app) as address, client(address, "bob@example.com") as http:
        for method, path in sorted(list_routes(app) - PUBLIC - MCP):
            if "{" in path:
                response = await http.request(method, _fill(path, value), headers=JSON, content=b"{}")
                failures += _check(f"{method} {path}", response)
                assert "X-Y" not in response.headers
                assert "root:" not in response.text
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("value", PARAMETERS, ids=ascii)
async def test_hostile_parameter_is_refused_on_every_route(value: str, settings: Settings) -> None:
    app = create_app(settings)
    failures = []
    sent = 0
    async with served(app) as address, client(address, "bob@example.com") as http:
        for path, methods in app.openapi()["paths"].items():
            for parameter in methods.get("get", {}).get("parameters", ()):
                if parameter["in"] == "query":
                    response = await http.get(_fill(path, "x"), params={"key": "x", parameter["name"]: value})
                    failures += _check(f"GET {path} {parameter['name']}", response)
                    sent += 1
    assert sent > 40
    assert not failures, "\n".join(failures)


async def test_oversized_body_is_refused_on_every_route(settings: Settings) -> None:
    settings.audio.max_bytes = 10_000
    settings.ingest.max_bytes = 10_000
    app = create_app(settings)
    failures = []
    body = b'{"name": "' + b"x" * 3_000_000 + b'"}'
    async with served(app) as address, client(address, "bob@example.com") as http:
        for method, path in sorted(list_routes(app) - PUBLIC):
            if method in ("POST", "PUT", "PATCH"):
                response = await http.request(method, _fill(path, "x"), content=body, headers=JSON)
                if response.status_code != 413:
                    failures.append(f"{method} {path}: {response.status_code}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-User-Id": "x" * 300},
        {"X-User-Id": "anon:550e8400-e29b-41d4-a716-446655440000"},
        {"X-Tenant-Id": "x" * 300},
        {"X-Session-Id": "x" * 5000},
        {"X-Session-Id": "' OR true --"},
        {"X-User-Id": "' OR true --", "X-Tenant-Id": "'; DROP TABLE rem.resources; --"},
        {"X-Model-Name": "../../etc/passwd"},
        {"X-Agent-Schema": "../../etc/passwd"},
        {"Accept": "x" * 5000},
        {"If-Match": '"; DROP TABLE'},
    ],
    ids=str,
)
async def test_hostile_headers_are_refused_or_harmless(headers: dict[str, str], settings: Settings) -> None:
    app = create_app(settings)
    failures = []
    async with served(app) as address, client(address) as http:
        for path in ("/api/v1/sessions", "/api/v1/entities/resources", "/api/v1/agents", "/api/v1/files"):
            failures += _check(path, await http.get(path, headers=headers))
        chat = {"messages": [{"role": "user", "content": "Hello"}]}
        failures += _check("chat", await http.post("/api/v1/chat/completions", json=chat, headers=headers))
        assert (await http.get("/api/v1/entities/resources")).status_code == 200
    assert not failures, "\n".join(failures)


def _fill(path: str, value: str) -> str:
    parts = path.split("/")
    return "/".join(
        "550e8400-e29b-41d4-a716-446655440000" if part == "{file_id:uuid}" else value if part.startswith("{") else part
        for part in parts
    )


def _check(request: str, response: httpx2.Response) -> list[str]:
    return [f"{request}: {response.status_code} {response.text[:200]}"] if response.status_code >= 500 else []
