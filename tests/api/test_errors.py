"""Error responses: one format for all, and no content of users in responses or logs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from loguru import logger

from rem import errors
from rem.api.errors import http_status
from rem.api.main import create_app
from rem.settings import ApiSettings, AudioSettings, Settings
from tests.api.live_server import client, served
from tests.cases import cases

Client = httpx2.AsyncClient
_JSON = {"Content-Type": "application/json"}


def error_of(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check the format of an error response, and return its error."""
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "code", "param", "details"}
    assert error["code"] == code
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert response.headers["x-request-id"]
    return error


async def test_unknown_path_and_wrong_method(anyone: Client) -> None:
    assert "/docs" in error_of(await anyone.get("/api/v1/nothing"), 404, "not_found")["message"]
    error_of(await anyone.get("/api/v1/sessions/"), 404, "not_found")
    wrong = await anyone.put("/api/v1/sessions/x")
    assert "PUT" in error_of(wrong, 405, "method_not_allowed")["message"]
    assert wrong.headers["allow"] == "GET, PATCH, DELETE"


@cases(
    "content",
    [
        b"{",
        b"",
        b"not json",
        b'{"query": "LOOKUP \xff"}',
        b'{"a":' * 10_000,
        b'{"query": NaN}',
        b"\x00",
        b"\xef\xbb\xbf{}",
    ],
    ids=["cut off", "empty", "text", "not UTF-8", "deep", "NaN", "NUL", "byte order mark"],
)
async def test_body_that_is_not_json(anyone: Client, content: bytes) -> None:
    refused = await anyone.post("/api/v1/query", content=content, headers=_JSON)
    assert refused.status_code in (400, 422)
    error_of(refused, refused.status_code, refused.json()["error"]["code"])


async def test_error_names_the_invalid_field(anyone: Client) -> None:
    for body, param, reason in (
        ({"query": 5}, "query", "valid string"),
        ({"query": "x", "mode": "prolog"}, "mode", "rem-dialect"),
        ({"query": "x", "limit": 0}, "limit", "greater than or equal to 1"),
        ({"query": "x", "lmit": 3}, "lmit", "there is no such field"),
        ([], None, ""),
    ):
        error = error_of(await anyone.post("/api/v1/query", json=body), 422, "invalid_request")
        assert error["param"] == param
        assert reason in error["message"]
        assert "prolog" not in error["message"]


@cases(
    ("method", "path", "body"),
    [
        ("POST", "/query", {"query": "LOOKUP x"}),
        ("POST", "/entities/users", {"name": "Sarah"}),
        ("PATCH", "/entities/users/sarah", {"summary": "x"}),
        ("PATCH", "/messages/x", {"important": True}),
        ("POST", "/feedback", {"session_id": "x", "rating": 1}),
        ("POST", "/agents/rem/run", {"input": "Hi"}),
        ("POST", "/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    ],
)
async def test_body_without_json_content_type(anyone: Client, method: str, path: str, body: dict[str, Any]) -> None:
    for headers in ({}, {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "nonsense"}):
        refused = await anyone.request(method, f"/api/v1{path}", content=json.dumps(body), headers=headers)
        assert "Content-Type: application/json" in error_of(refused, 400, "invalid_input")["message"]
    for kind in ("application/json; charset=utf-8", "application/vnd.rem+json"):
        sent = await anyone.request(method, f"/api/v1{path}", content=json.dumps(body), headers={"Content-Type": kind})
        assert "Content-Type" not in sent.text


@cases(
    ("content", "place", "reason"),
    [
        (
            [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
            "messages[0].content[1]",
            "images are not supported; send text or input_audio",
        ),
        ([{"type": "file"}], "messages[0].content[0]", "this type of content is not supported; send text or"),
        ([{"text": "Hi"}], "messages[0].content[0]", "its type is missing; send text or input_audio"),
        ([{"type": "text"}], "messages[0].content[0].text", "is missing"),
        ([{"type": "text", "text": 5}], "messages[0].content[0].text", "input should be a valid string"),
        ([{"type": "input_audio", "input_audio": {}}], "messages[0].content[0].input_audio.data", "is missing"),
        (["Hi"], "messages[0].content[0]", "input should be an object"),
        (5, "messages[0].content", "input should be a valid string, or input should be a valid list"),
        ("x" * 2_000_001, "messages[0].content", "string should have at most 2000000 characters"),
    ],
    ids=["image", "file", "no type", "no text", "number as text", "no data", "text as part", "number", "too long"],
)
async def test_invalid_chat_message_error_is_readable(anyone: Client, content: Any, place: str, reason: str) -> None:
    body = {"messages": [{"role": "user", "content": content}]}
    error = error_of(await anyone.post("/api/v1/chat/completions", json=body), 422, "invalid_request")
    assert error["param"] == place
    assert error["message"].startswith(f"{place}: {reason}")
    assert ";" not in error["message"].removeprefix(f"{place}: {reason}"), "one mistake is one problem"


async def test_several_errors_in_a_chat_request_are_located(anyone: Client) -> None:
    body = {"messages": [{"content": "Hi"}, 7], "stop": [5], "temperature": 9}
    error = error_of(await anyone.post("/api/v1/chat/completions", json=body), 422, "invalid_request")
    for place in ("messages[0].role: is missing", "messages[1]: input", "stop[0]: input", "temperature: input"):
        assert place in error["message"]


@pytest.mark.parametrize(
    ("header", "value"), [("X-User-Id", "anon:somebody"), ("X-User-Id", "x" * 300), ("X-Tenant-Id", "x" * 300)]
)
async def test_invalid_identity_headers_are_refused(anyone: Client, header: str, value: str) -> None:
    refused = await anyone.get("/api/v1/moments", headers={header: value})
    assert error_of(refused, 400, "invalid_input")["message"]


async def test_large_body_is_refused_by_length_and_while_streaming(settings: Settings) -> None:
    small = settings.model_copy(update={"audio": AudioSettings(max_bytes=1000)})
    async with served(create_app(small)) as address, client(address) as anyone:
        large = b'{"query": "' + b"x" * 2_000_000 + b'"}'
        error_of(await anyone.post("/api/v1/query", content=large, headers=_JSON), 413, "body_too_large")

        async def chunks() -> Any:
            for start in range(0, len(large), 100_000):
                yield large[start : start + 100_000]

        error_of(await anyone.post("/api/v1/query", content=chunks(), headers=_JSON), 413, "body_too_large")
        assert (await anyone.post("/api/v1/query", json={"query": "LOOKUP nobody"})).status_code == 200


def test_every_rem_error_has_a_status_and_a_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RemError)]
    statuses = {kind.__name__: (http_status(kind()), kind.code) for kind in kinds}
    assert {status for status, _ in statuses.values()} <= {400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504}
    assert statuses["NotFoundError"] == (404, "not_found")
    assert statuses["DeletedError"] == (409, "deleted")
    assert statuses["DatabaseUnavailableError"] == (503, "database_unavailable")
    assert statuses["ModelNotFoundError"] == (404, "model_not_found")


@pytest.fixture
def lines() -> Any:
    """Yield the log lines."""
    logged: list[str] = []
    number = logger.add(logged.append, level="DEBUG", format="{level} {message} {extra}", diagnose=False)
    yield logged
    logger.remove(number)


def _with_failures(settings: Settings) -> FastAPI:
    app = create_app(settings)

    @app.get("/fail/{secret}")
    async def fail(secret: str) -> None:
        raise ValueError(f"cannot do {secret}")

    return app


async def test_internal_error_response_and_log_have_no_content(settings: Settings, lines: list[str]) -> None:
    async with served(_with_failures(settings)) as address, client(address) as anyone:
        headers = {"X-Request-Id": "my-request-7", "Origin": "http://app.example"}
        error = error_of(await anyone.get("/fail/hunter2", headers=headers), 500, "internal_error")
        assert error["details"] == {"request_id": "my-request-7"}
        assert "hunter2" not in error["message"]
        assert (await anyone.get("/health/live")).status_code == 200
    log = "".join(lines)
    assert "ValueError" in log
    assert "my-request-7" in log
    assert "in fail" in log
    assert "GET /fail/{secret} 500" in log
    assert "hunter2" not in log


async def test_log_has_one_line_per_request_without_content(settings: Settings, lines: list[str]) -> None:
    async with served(create_app(settings)) as address, client(address, "alice@example.com") as alice:
        answer = await alice.get("/api/v1/entities/users/hunter2", params={"where": "hunter2"})
        await alice.post("/api/v1/query", json={"query": "LOOKUP hunter2"})
        await alice.get("/hunter2")
    log = "".join(lines)
    assert "INFO GET /api/v1/entities/{table}/{key} 404" in log
    assert "POST /api/v1/query 200" in log
    assert "GET (no route) 404" in log
    assert answer.headers["x-request-id"] in log
    assert "hunter2" not in log
    assert "alice" not in log


async def test_valid_request_id_is_kept(anyone: Client) -> None:
    for given, taken in (("abc-1.2_3:4", True), ("x" * 129, False), ("a b", False), ("a\u00e9", False), ("", False)):
        answer = await anyone.get("/health/live", headers={b"X-Request-Id": given.encode("latin-1")})
        assert (answer.headers["x-request-id"] == given) is taken
    first, second = await asyncio.gather(anyone.get("/health/live"), anyone.get("/health/live"))
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


async def test_only_configured_cors_origins_are_allowed(settings: Settings) -> None:
    named = settings.model_copy(update={"api": ApiSettings(cors_origins=["https://app.example"])})
    async with served(_with_failures(named)) as address, client(address) as anyone:
        good, evil = {"Origin": "https://app.example"}, {"Origin": "https://evil.example"}
        asked = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "X-User-Id"}
        allowed = await anyone.options("/api/v1/sessions/x", headers={**good, **asked})
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert (await anyone.options("/api/v1/sessions/x", headers={**evil, **asked})).status_code == 400
        # Errors can be read by the page, too; also those of code that fails.
        for path in ("/health/live", "/api/v1/nothing", "/fail/x"):
            answer = await anyone.get(path, headers=good)
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            exposed = answer.headers["access-control-expose-headers"]
            assert {"X-Session-Id", "X-Request-Id", "ETag"} <= {name.strip() for name in exposed.split(",")}
            assert "access-control-allow-origin" not in (await anyone.get(path, headers=evil)).headers
