"""A client that disconnects cancels the work, on every route that calls a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest

from tests.cli.test_serve import serving
from tests.scripted_model import Pause, scripted_model

HEADERS = {"X-User-Id": "alice", "Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/agents/rem/run", {"input": "Think about it"}),
        ("/api/v1/query", {"query": "Think about it", "mode": "natural-language"}),
        (
            "/api/v1/mcp",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "ask_agent", "arguments": {"agent_name": "rem", "input_text": "Think about it"}},
            },
        ),
    ],
    ids=["agent", "query", "mcp"],
)
async def test_disconnect_cancels_the_model_call(dsn: str, path: str, body: dict[str, Any]) -> None:
    with scripted_model() as model:
        model.script = lambda _body: ["Well", Pause(30), "."]
        configured = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "LLM__BASE_URL": model.url,
            "LLM__DEFAULT_MODEL": "openai:scripted",
        }
        with serving(settings=configured) as (address, _process):
            async with httpx.AsyncClient(base_url=address, timeout=60) as http:
                asking = asyncio.create_task(http.post(path, json=body, headers=HEADERS))
                await until(lambda: model.open == 1)
                asking.cancel()
                await until(lambda: model.open == 0)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(750):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not happen")
