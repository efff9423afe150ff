"""The OpenAPI document describes the API: a fuzzer that follows it finds no errors."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.demo import load_workspace
from rem.models import Role, User
from rem.sessions.message import NewMessage
from rem.settings import RateLimitSettings, Settings
from tests.api.auth_server import auth_served
from tests.api.live_server import client

_SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
_HTTP_METHODS = {"get", "post", "put", "patch", "delete"}
_NOT_CHECKED = [
    # A text that fits its schema may be no valid query, key, agent or header all the same.
    "positive_data_acceptance",
]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return create_app(Settings()).openapi()


async def test_server_returns_the_document(anyone: httpx2.AsyncClient, document: dict[str, Any]) -> None:
    assert (await anyone.get("/openapi.json")).json() == document


async def test_fuzzing_with_random_values_finds_no_errors(address: str, rem: Rem, tmp_path: Path) -> None:
    await load_workspace(rem.for_user(tenant="default").store)
    await fuzz(address, tmp_path)


async def test_fuzzing_with_existing_ids_finds_no_errors(address: str, rem: Rem, tmp_path: Path) -> None:
    memory = rem.for_user("fuzzer").sessions
    session = (await memory.create_session("Be kind.")).id
    await memory.save_message(session, NewMessage(role=Role.USER, content="Hello"))
    await rem.for_user("fuzzer").store.upsert(User(name="Sarah Chen"))
    values = {
        "path.session": str(session),
        "path.message": f"session-{session}-msg-0",
        "path.table": "users",
        "path.key": "sarah-chen",
        "path.name": "rem",
        "path.model": "rem:local",
        "path.user": "bob@example.com",
    }
    parameters = ["[parameters]", *(f'"{name}" = "{value}"' for name, value in values.items())]
    # The requests to other paths are those of the test above.
    await fuzz(address, tmp_path, *parameters, paths=r"\{")


async def fuzz(address: str, folder: Path, *settings: str, paths: str = "") -> None:
    """Run schemathesis against the API, always with the same requests, for the paths that match an expression."""
    # A list that is too long can also be too large a body.
    refusals = "[checks.negative_data_rejection]\nexpected-statuses = [400, 401, 403, 404, 405, 409, 413, 415, 422]"
    (folder / "schemathesis.toml").write_text("\n".join([*settings, refusals]), encoding="utf-8")
    # The server makes the document once. On a busy machine that takes longer than schemathesis waits.
    async with client(address) as http:
        await http.get("/openapi.json")
    process = await asyncio.create_subprocess_exec(
        *(str(_SCHEMATHESIS), "run", f"{address}/openapi.json"),
        *("--phases=examples,coverage,fuzzing", "--max-examples=3", "--generation-deterministic"),
        *("--header=X-User-Id:fuzzer", f"--exclude-checks={','.join(_NOT_CHECKED)}"),
        *([f"--include-path-regex={paths}"] if paths else []),
        *("--no-shrink", "--continue-on-failure", "--suppress-health-check=all"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def test_every_operation_has_a_description(document: dict[str, Any]) -> None:
    operations = [
        (f"{method} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in _HTTP_METHODS
    ]
    assert len(operations) >= 40
    tags = {tag["name"] for tag in document["tags"]}
    for name, operation in operations:
        assert operation["summary"], name
        assert operation["description"], name
        assert set(operation["tags"]) <= tags, name
    assert len({operation["operationId"] for _, operation in operations}) == len(operations)


def test_every_error_response_uses_the_error_schema(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        if not path.startswith("/api/"):
            continue
        for method, operation in methods.items():
            responses = operation["responses"]
            assert {"400", "422", "500", "503"} <= set(responses), f"{method} {path}"
            for status, response in responses.items():
                if status >= "400":
                    schema = response["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/ErrorResponse"}, f"{method} {path} {status}"
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_document_without_authentication_makes_logins_optional(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {
        "accessToken": "http",
        "apiKey": "http",
        "sessionCookie": "apiKey",
    }
    assert schemes["sessionCookie"]["name"] == "rem_session"
    assert {} in document["paths"]["/api/v1/entities/{table}"]["post"]["security"]
    assert document["paths"]["/health/live"]["get"]["security"] == []


@pytest.mark.parametrize(("allows_anonymous", "reads_openly"), [(True, True), (False, False)])
async def test_document_says_what_needs_a_login(settings: Settings, allows_anonymous: bool, reads_openly: bool) -> None:
    """The document and the answers of the server agree for every operation."""
    settings = settings.model_copy(update={"rate_limit": RateLimitSettings(enabled=False)})
    async with auth_served(settings, allow_anonymous=allows_anonymous) as address, client(address) as opened:
        document = (await opened.get("/openapi.json")).json()
        assert {} not in document["security"]
        assert ({} in document["paths"]["/api/v1/query"]["post"].get("security", ())) is reads_openly
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                security = operation.get("security", document["security"])
                is_open = not security or {} in security
                answer = await opened.request(method, re.sub(r"{\w+}", "x", path), follow_redirects=False)
                is_refused = answer.status_code == 401 and answer.headers.get("www-authenticate") is not None
                if not is_open:
                    assert is_refused, f"{method} {path}: {answer.status_code}"
                elif not path.startswith("/api/v1/admin"):
                    assert answer.status_code != 401 or "/api/auth" in path, f"{method} {path}"
