"""POSTGRES__ENABLED=false: routes that need the database answer 503, the others work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from rem.api.main import create_app
from rem.settings import PostgresSettings, Settings
from tests.api.live_server import client, served


@pytest.fixture
async def client_without_memory(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of a server without a database."""
    settings = Settings(rem_home=tmp_path, postgres=PostgresSettings(enabled=False))
    async with served(create_app(settings)) as address, client(address, "alice@example.com") as opened:
        yield opened


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/query"),
        ("GET", "/sessions"),
        ("GET", "/sessions/x/messages"),
        ("POST", "/sessions"),
        ("GET", "/shared-with-me"),
        ("GET", "/messages/x"),
        ("GET", "/feedback"),
        ("GET", "/moments"),
        ("GET", "/entities"),
        ("GET", "/entities/users/x"),
        ("DELETE", "/agents/x"),
    ],
)
async def test_memory_routes_answer_503_with_advice(
    client_without_memory: httpx2.AsyncClient, method: str, path: str
) -> None:
    body = {"query": "LOOKUP x"} if path == "/query" else None
    answer = await client_without_memory.request(method, f"/api/v1{path}", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "memory_off")
    assert "POSTGRES__ENABLED=true" in answer.json()["error"]["message"]


async def test_agents_answer_without_storing(client_without_memory: httpx2.AsyncClient) -> None:
    answer = await client_without_memory.post("/api/v1/agents/simulator/run", json={"input": "demo"})
    assert answer.status_code == 200
    assert answer.json()["answer"]
    assert "rem" in (await client_without_memory.get("/api/v1/agents")).text
    assert (await client_without_memory.get("/api/v1/models")).status_code == 200


async def test_health_is_ok_and_reports_the_memory_as_off(
    client_without_memory: httpx2.AsyncClient, tmp_path: Path
) -> None:
    health = await client_without_memory.get("/health")
    assert health.status_code == 200
    assert "POSTGRES__ENABLED=false" in health.json()["detail"]
    assert not (tmp_path / "pg").exists()
