"""A client that disconnects cancels the work, on every route that calls a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx2 as httpx
import pytest

from tests.cli.test_serve import serving
from tests.scripted_model import Pause, scripted_model


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/agents/rem/run", {"input": "Think about it"}),
        ("/api/v1/query", {"query": "Think about it", "mode": "natural-language"}),
    ],
)
async def test_disconnect_cancels_the_model_call(dsn: str, path: str, body: dict[str, str]) -> None:
    with scripted_model() as model:
        model.script = lambda _body: ["Well", Pause(30), "."]
        configured = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "LLM__BASE_URL": model.url,
            "LLM__DEFAULT_MODEL": "openai:scripted",
        }
        with serving(settings=configured) as (address, _process):
            async with httpx.AsyncClient(base_url=address, timeout=60) as http:
                asking = asyncio.create_task(http.post(path, json=body, headers={"X-User-Id": "alice"}))
                await until(lambda: model.open == 1)
                asking.cancel()
                await until(lambda: model.open == 0)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(750):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not happen")
