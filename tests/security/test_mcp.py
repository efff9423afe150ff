"""Every MCP tool, resource and prompt answers another user, another tenant and nobody as if Alice had no memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import MCPError

from rem.api.main import create_app
from rem.app import Rem
from rem.settings import Settings
from rem.tools.registry import AGENT_TOOLS
from rem.tools.resources import RESOURCE_PAGES
from tests.api.live_server import served
from tests.security.callers import CALLERS, is_with_authentication, make_headers, make_settings
from tests.security.http_attacks import MCP, list_queries
from tests.security.victim import AGENT_NAME, AGENT_YAML, NAME, SECRET, Victim, create_victim, take_fingerprint

WRITERS = {
    *("action", "ask_agent", "ask_rem", "correct", "forget", "ingest_into_rem", "parse_and_ingest_file"),
    *("register_metadata", "remember", "save_agent"),
}
REFUSED = {"nobody, with authentication", "a forged key", "a key of another user that names Alice"}
"""Callers that do not get as far as a tool."""


def list_tool_attacks(victim: Victim) -> dict[str, list[dict[str, Any]]]:
    """Return arguments for each tool that ask for Alice's rows."""
    topics = [f"{NAME} note", "the word", str(victim.rows["resources"][0])]
    return {
        "search_rem": [
            *({"query": text} for text in list_queries(victim)),
            {"query": "the word", "mode": "natural-language"},
        ],
        "lookup": [{"key": identifier} for identifier in victim.identifiers],
        "fuzzy": [{"text": NAME, "limit": 50}],
        "traverse": [{"key": key, "depth": 3} for _, key in victim.rows.values()],
        "search": [{"query": "the word"}],
        "ask_rem": [{"question": f"Who is {NAME} person?"}],
        "ask_agent": [{"agent_name": AGENT_NAME, "input_text": "Say your word."}],
        "register_metadata": [{"references": [f"{NAME}-note"], "session_name": "taken"}],
        "action": [{"type": "observation", "payload": {"session_id": str(victim.session_id)}}],
        "remember": [{"text": f"{NAME} note is mine."}],
        "forget": [{"what": topic} for topic in topics],
        "correct": [{"what": topic, "to": "Nothing is true."} for topic in topics],
        "ingest_into_rem": [{"name": f"{NAME} note", "content": "Mine.", "replace": True}],
        "parse_and_ingest_file": [
            {"uri": uri} for uri in ("file:///etc/passwd", "../../etc/passwd", "http://127.0.0.1:1/", f"{NAME}.md")
        ],
        "read_resource": [{"uri": uri} for uri in list_resource_attacks(victim)],
        "list_schema": [{}],
        "get_schema": [{"name": AGENT_NAME}, {"name": "resources"}],
        "save_agent": [{"definition": AGENT_YAML.replace(SECRET, "nothing")}],
    }


def list_resource_attacks(victim: Victim) -> Iterator[str]:
    """Yield the address of every resource, with Alice's identifiers in place of parameters."""
    values: dict[str, list[str]] = {
        "rem://agents/{name}": [AGENT_NAME],
        "rem://sessions/{id}": [str(victim.session_id), victim.session_name],
        "rem://moments/{page}": ["1", "2"],
        "rem://moments/key/{key}": [str(part) for part in victim.rows["moments"]],
        "user://profile/{user_id}": [victim.user_id, "alice@example.com", f"{NAME}@example.com", "me"],
    }
    for page in RESOURCE_PAGES:
        parameter = page.uri.partition("{")[2].rstrip("}")
        for value in values[page.uri] if parameter else [""]:
            yield page.uri.replace(f"{{{parameter}}}", value.replace(" ", "%20"))


async def test_every_tool_and_resource_is_attacked(rem: Rem, settings: Settings) -> None:
    victim = await create_victim(rem, settings)
    assert set(list_tool_attacks(victim)) == set(AGENT_TOOLS), "describe an attack for each tool"
    assert len(list(list_resource_attacks(victim))) >= len(RESOURCE_PAGES)


@pytest.mark.parametrize("caller", [caller for caller in CALLERS if caller not in REFUSED])
async def test_nobody_else_reads_or_changes_a_memory_through_mcp(
    caller: str, rem: Rem, settings: Settings, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    victim = await create_victim(rem, settings)
    await rem.index()
    before = await take_fingerprint(sql, victim)
    failures: list[str] = []
    address = min(path for _, path in MCP)
    headers = await make_headers(caller, rem)
    async with served(create_app(make_settings(caller, settings))) as server:
        transport = StreamableHttpTransport(f"{server}{address}", headers=headers)
        async with Client(transport) as client:
            for uri in list_resource_attacks(victim):
                failures += _check(uri, await _read(client, uri), {"uri": uri})
            for prompt in await client.list_prompts():
                failures += _check(prompt.name, prompt.model_dump_json(), {})
            tools = {tool.name for tool in await client.list_tools()}
            attacks = list_tool_attacks(victim)
            # What stores a text comes last: the caller may have a row of the same name then.
            for name in sorted(tools, key=lambda name: (name in WRITERS, name)):
                for arguments in attacks[name]:
                    answer = await _call(client, name, arguments)
                    failures += _check(f"{name} {arguments}", answer, {"name": NAME} if name in WRITERS else arguments)
                    if name in WRITERS and await take_fingerprint(sql, victim) != before:
                        failures.append(f"{name} {arguments} changed Alice's rows")
                        before = await take_fingerprint(sql, victim)
        assert await take_fingerprint(sql, victim) == before
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("caller", sorted(REFUSED))
async def test_unproven_caller_is_refused_by_mcp(caller: str, rem: Rem, settings: Settings) -> None:
    assert is_with_authentication(caller)
    headers = {**await make_headers(caller, rem), "Accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with served(create_app(make_settings(caller, settings))) as server, httpx2.AsyncClient() as http:
        for _, path in sorted(MCP):
            response = await http.post(f"{server}{path}", json=call, headers=headers)
            assert response.status_code in (401, 403), response.text


async def _call(client: Client[Any], name: str, arguments: dict[str, Any]) -> str:
    try:
        return str(await client.call_tool(name, arguments))
    except (ToolError, MCPError) as error:
        return str(error)


async def _read(client: Client[Any], uri: str) -> str:
    try:
        return str(await client.read_resource(uri))
    except (ToolError, MCPError) as error:
        return str(error)


def _check(attack: str, answer: str, arguments: dict[str, Any]) -> list[str]:
    failures = []
    if SECRET in answer:
        failures.append(f"{attack} leaks the content: {answer[:300]}")
    if NAME in answer.lower() and NAME not in json.dumps(arguments).lower():
        failures.append(f"{attack} leaks a name: {answer[:300]}")
    return failures
