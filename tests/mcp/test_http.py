"""MCP over HTTP: every caller sees only its own memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
from fastmcp.exceptions import ToolError

from mcp import MCPError
from rem import Rem
from rem.context import resolve_user_id
from rem.db.store import Store
from rem.models import Moment, Resource, Session
from rem.settings import Settings
from rem.tools.registry import TOOLS
from tests.cases import cases
from tests.cli.test_serve import serving
from tests.mcp.mcp_server import app_for, client_of, served

ALICE, BOB = "alice@example.com", "bob@example.com"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.fixture
async def url(rem: Rem, settings: Settings) -> AsyncIterator[str]:
    """The address of MCP on the test's own database."""
    async with served(app_for(rem, settings)) as address:
        yield address


async def found(url: str, key: str, user: str | None) -> list[str]:
    async with client_of(url, user) as client:
        answer = (await client.call_tool("lookup", {"key": key})).data
    return [row.get("text", "") for row in answer["results"]]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_client_stores_and_finds_with_and_without_trailing_slash(url: str, slash: str) -> None:
    async with client_of(url + slash, ALICE) as client:
        await client.call_tool("ingest_into_rem", {"name": "Größe 🎈", "content": "Zwei Meter. " * 3})
        answer = (await client.call_tool("search_rem", {"query": 'LOOKUP "größe 🎈"'})).data
        assert answer["results"][0]["text"] == "Zwei Meter. " * 3
        assert json.loads((await client.read_resource("rem://status"))[0].text)["counts"] == {"resources": 1}


async def test_callers_see_only_their_own_and_shared_rows(url: str, alice: Store, bob: Store, shared: Store) -> None:
    for store, content in ((alice, "Alice's"), (bob, "Bob's"), (shared, "everyone's")):
        await store.upsert(Resource(name="Note", content=content))
    assert await found(url, "note", ALICE) == ["Alice's", "everyone's"]
    assert await found(url, "note", BOB) == ["Bob's", "everyone's"]
    assert await found(url, "note", None) == ["everyone's"]


async def test_resources_of_another_user_are_not_found(url: str, bob: Store) -> None:
    session = await bob.upsert(Session(name="Bob's secret"))
    await bob.upsert(Moment(name="Bob's day", summary="secret"))
    hidden = (f"rem://sessions/{session.id}", "rem://moments/key/bobs-day", f"user://profile/{resolve_user_id(BOB)}")
    async with client_of(url, ALICE) as client:
        for address in (*hidden, f"user://profile/{BOB}", "rem://sessions/none", "rem://nothing"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(address)
            assert caught.value.error.code == -32602
            assert caught.value.error.message.startswith("Resource not found")
        for address in ("rem://sessions", "rem://moments/1"):
            assert "secret" not in (await client.read_resource(address))[0].text
    async with client_of(url, BOB) as client:
        assert "secret" in (await client.read_resource(hidden[0]))[0].text
        assert json.loads((await client.read_resource("user://profile/me"))[0].text)["user_id"] == resolve_user_id(BOB)


async def test_concurrent_calls_keep_their_callers_apart(url: str, rem: Rem) -> None:
    users = [f"user-{number}" for number in range(5)]
    for user in users:
        await rem.for_user(user).store.upsert(Resource(name="Note", content=user))

    async def ask(user: str, turn: int) -> tuple[str, list[str]]:
        async with client_of(url, user) as client:
            if turn % 2:
                page = json.loads((await client.read_resource("user://profile/me"))[0].text)
                return user, [page["user_id"]]
            answer = (await client.call_tool("search_rem", {"query": "SELECT content FROM resources"})).data
            return user, [row["content"] for row in answer["results"]]

    answers = await asyncio.gather(*(ask(user, turn) for turn in range(4) for user in users))
    assert len(answers) == 20
    assert all(seen == [user] for user, seen in answers)


async def test_user_header_is_ignored_unless_headers_are_trusted(rem: Rem, settings: Settings, alice: Store) -> None:
    await alice.upsert(Resource(name="Note", content="Alice's"))
    async with served(app_for(rem, settings, trusts_headers=False)) as url:
        assert await found(url, "note", ALICE) == []


async def test_invalid_user_header_is_rejected_by_name(url: str) -> None:
    async with client_of(url, "x" * 300) as client:
        with pytest.raises(ToolError, match="X-User-Id: A user id has 1 to 255 characters"):
            await client.call_tool("lookup", {"key": "x"})


@cases(
    ("tool", "arguments", "message"),
    [
        ("lookup", {}, "key: Missing required argument"),
        ("lookup", {"key": 5}, "key: Input should be a valid string"),
        ("lookup", {"key": "x", "user_id": "bob"}, "user_id: Unexpected keyword argument"),
        ("search_rem", {"query": "LOOKUP x", "limit": "7"}, "limit: Input should be a valid integer"),
        ("search_rem", {"query": "LOOKUP x", "mode": "sql"}, "mode: Input should be 'rem-dialect'"),
        ("register_metadata", {"confidence": 2}, "confidence: Input should be less than or equal to 1"),
        ("search_rem", {"query": "LOKUP x"}, "a query begins with LOOKUP"),
        ("search_rem", {"query": "DELETE FROM users"}, "queries are read-only"),
        ("get_schema", {"name": "momnts"}, "Did you mean 'moments'"),
        ("ingest_into_rem", {"name": "---", "content": "x"}, "name: has no letter or digit"),
        ("nothing", {}, "Unknown tool"),
    ],
)
async def test_invalid_call_names_its_error(url: str, tool: str, arguments: dict[str, Any], message: str) -> None:
    async with client_of(url, ALICE) as client:
        with pytest.raises(ToolError) as caught:
            await client.call_tool(tool, arguments)
        assert message in str(caught.value)
        assert "Traceback" not in str(caught.value)
        assert (await client.call_tool("lookup", {"key": "x"})).data["count"] == 0


async def test_huge_arguments_are_accepted(url: str) -> None:
    text = "ein Wort 🎈 " * 100_000
    async with client_of(url, ALICE) as client:
        stored = (await client.call_tool("ingest_into_rem", {"name": "Huge", "content": text})).data
        assert stored["characters"] == len(text)
        assert (await client.call_tool("lookup", {"key": text})).data["count"] == 0
        found = (await client.call_tool("lookup", {"key": "huge"})).data
        assert len(json.dumps(found, ensure_ascii=False)) < 40_000


async def test_unexpected_error_hides_its_details(rem: Rem, settings: Settings) -> None:
    app = app_for(rem, settings)
    async with served(app) as url:
        del app.state.agents
        async with client_of(url, ALICE) as client:
            with pytest.raises(ToolError) as caught:
                await client.call_tool("lookup", {"key": "x"})
            assert str(caught.value) == "Error calling tool 'lookup'"


async def test_other_hosts_and_origins_are_rejected(url: str) -> None:
    own = url.removeprefix("http://").partition("/")[0]
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"http://{own}"}, 200),
        ({"origin": "https://app.example.com"}, 200),
    ]
    async with httpx.AsyncClient() as client:
        for slash in ("", "/"):
            for headers, status in cases:
                answer = await client.post(url + slash, json=LIST, headers={**ACCEPT, **headers})
                assert answer.status_code == status, headers
        assert (await client.get(url.replace("/api/v1/mcp", "/hello"))).status_code == 200
        assert (await client.get(url + "/more")).json() == {"detail": "Not Found"}


async def test_server_is_stateless_and_answers_json(url: str) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.post(url, json=LIST, headers=ACCEPT)
        assert answer.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in answer.headers
        assert len(answer.json()["result"]["tools"]) == len(TOOLS)
        broken = await client.post(url, content=b"{", headers={**ACCEPT, "content-type": "application/json"})
        assert broken.status_code == 400


async def test_server_reports_a_missing_database(settings: Settings) -> None:
    async with served(app_for(None, settings)) as url, client_of(url, ALICE) as client:
        with pytest.raises(ToolError, match="POSTGRES__ENABLED=true"):
            await client.call_tool("lookup", {"key": "x"})
        with pytest.raises(MCPError, match="POSTGRES__ENABLED=true"):
            await client.read_resource("rem://sessions")
        assert (await client.call_tool("list_schema", {})).data["count"] >= 14


async def test_rem_serve_offers_mcp_and_allows_configured_hosts(dsn: str, alice: Store) -> None:
    await alice.upsert(Resource(name="Note", content="Alice's"))
    settings = {
        "POSTGRES__CONNECTION_STRING": dsn,
        "EMBEDDING__PROVIDER": "none",
        "API__ALLOWED_HOSTS": '["memory.example.com"]',
    }
    with serving(settings=settings) as (address, _process):
        url = f"{address}/api/v1/mcp"
        assert await found(url, "note", ALICE) == ["Alice's"]
        assert await found(url, "note", BOB) == []
        async with client_of(url, ALICE) as client:
            assert "query-agent" in (await client.read_resource("rem://agents"))[0].text
        async with httpx.AsyncClient() as plain:
            for host, status in (("memory.example.com", 200), ("evil.example", 421)):
                answer = await plain.post(f"{url}/", json=LIST, headers={**ACCEPT, "host": host})
                assert answer.status_code == status
