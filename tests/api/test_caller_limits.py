"""Reads end: after a maximum time, and when their client disconnects. The database works on none of them then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
import httpx2 as httpx
import pytest

from tests.cli.test_serve import serving

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
HEADERS = {"X-User-Id": "alice"}
LOCKED = "rem.kv_store, rem.edges, rem.resources, rem.statements, rem.sessions"
"""Tables that the background worker of the server does not read."""
ROW = {"name": "Sarah Chen", "content": "She has a boat."}
READS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "LOOKUP": ("POST", "query", {"query": "LOOKUP sarah-chen"}),
    "FUZZY": ("POST", "query", {"query": 'FUZZY "sara"'}),
    "SEARCH": ("POST", "query", {"query": 'SEARCH "a boat" MODE text'}),
    "TRAVERSE": ("POST", "query", {"query": "TRAVERSE FROM sarah-chen DEPTH 2"}),
    "plain words": ("POST", "query", {"query": "sarah chen", "mode": "plain-words"}),
    "list": ("GET", "entities/resources", None),
    "sessions": ("GET", "sessions", None),
    "graph": ("GET", "graph?key=sarah-chen&depth=3", None),
    "statements": ("GET", "statements", None),
    "plan to forget": ("POST", "forget/preview", {"name": "Sarah Chen", "mentions": True}),
}


def store_row(address: str) -> None:
    """Store a row, and index it."""
    with httpx.Client(base_url=f"{address}/api/v1/", headers=HEADERS, timeout=60) as http:
        assert http.post("entities/resources", json=ROW).status_code == 201
        assert http.post("query", json={"query": 'SEARCH "a boat" MODE text'}).json()["count"] == 1


@asynccontextmanager
async def locked(sql: Sql) -> AsyncIterator[None]:
    """Lock the tables: every read of them takes as long as the block."""
    async with sql.transaction():
        await sql.execute(f"LOCK TABLE {LOCKED} IN ACCESS EXCLUSIVE MODE")
        yield


async def count_waiting(sql: Sql) -> int:
    """Return how many statements of others wait for the locked tables."""
    count: int = await sql.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return count


async def wait_for_waiting(sql: Sql, count: int) -> None:
    """Wait until so many statements wait for the locked tables."""
    for _ in range(1500):
        if await count_waiting(sql) == count:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"there are never {count} waiting statements")


async def test_slow_read_is_stopped_with_a_clear_error(dsn: str, sql: Sql) -> None:
    configured = {"POSTGRES__CONNECTION_STRING": dsn, "POSTGRES__READ_TIMEOUT_SECONDS": "0.5"}
    with serving(settings=configured) as (address, _process):
        store_row(address)
        async with httpx.AsyncClient(base_url=f"{address}/api/v1/", headers=HEADERS, timeout=60) as http:
            async with locked(sql):
                for name, (method, path, body) in READS.items():
                    answer = await http.request(method, path, json=body)
                    assert "took longer than 0.5 s and was stopped" in answer.text, f"{name}: {answer.text}"
                    assert answer.status_code == 504
                    assert answer.json()["error"]["code"] == "query_timeout"
                    await wait_for_waiting(sql, 0)
            for name, (method, path, body) in READS.items():
                answer = await http.request(method, path, json=body)
                assert answer.status_code == 200, f"{name}: {answer.text}"


async def test_read_ends_with_its_client(dsn: str, sql: Sql, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(settings={"POSTGRES__CONNECTION_STRING": dsn}) as (address, _process):
        store_row(address)
        async with locked(sql):
            for method, path, body in READS.values():
                # Each on a connection of its own, which ends with it.
                async with httpx.AsyncClient(base_url=f"{address}/api/v1/", headers=HEADERS, timeout=60) as http:
                    asking = asyncio.create_task(http.request(method, path, json=body))
                    await wait_for_waiting(sql, 1)
                    asking.cancel()
                    await wait_for_waiting(sql, 0)
        answer = httpx.get(f"{address}/api/v1/sessions", headers=HEADERS)
        assert answer.status_code == 200
    assert "ClientDisconnect" not in capfd.readouterr().err


async def test_requests_of_one_caller_leave_connections_to_others(dsn: str, sql: Sql) -> None:
    # The worker would wait for the locked tables, too, and so would a new connection, which checks kv_store.
    configured = {
        "POSTGRES__CONNECTION_STRING": dsn,
        "POSTGRES__POOL_MIN_SIZE": "4",
        "POSTGRES__POOL_MAX_SIZE": "4",
        "WORKER__IN_PROCESS": "false",
    }
    with serving(settings=configured) as (address, _process):
        store_row(address)
        async with httpx.AsyncClient(base_url=f"{address}/api/v1/", timeout=60) as http:
            async with locked(sql):
                requests = [*READS.values(), ("POST", "sessions", {}), ("POST", "entities/resources", {"name": "Boat"})]
                asking = [
                    asyncio.create_task(http.request(method, path, json=body, headers=HEADERS))
                    for method, path, body in requests
                ]
                await wait_for_waiting(sql, 2)
                others = await http.get("agents", headers={"X-User-Id": "bob"})
                assert others.status_code == 200
                assert not any(task.done() for task in asking)
            assert [(await task).status_code for task in asking] == [200] * len(READS) + [201, 201]
