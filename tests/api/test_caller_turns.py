"""CallerTurns: the queries of one caller do not take all connections of the database."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from rem.api.caller_turns import CallerTurns
from rem.api.main import create_app
from rem.context import resolve_user_id
from rem.rate_limits import LimitedCaller
from rem.settings import PostgresSettings, Settings
from tests.api.live_server import client, served


async def test_each_caller_has_its_own_turns() -> None:
    turns = CallerTurns(2)
    async with turns.of("alice"), turns.of("alice"):
        assert turns.of("alice").locked()
        async with asyncio.timeout(5), turns.of("bob"):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), turns.of("alice"):
                pass
    assert not turns.of("alice").locked()


async def test_queries_of_one_caller_run_in_turns(settings: Settings) -> None:
    postgres = PostgresSettings.model_validate({**settings.postgres.model_dump(), "pool_max_size": 2})
    app = create_app(settings.model_copy(update={"postgres": postgres}))
    async with served(app) as address, client(address, "alice@example.com") as alice:

        async def look_up() -> httpx2.Response:
            return await alice.post("/api/v1/query", json={"query": "LOOKUP nothing"})

        async def list_rows() -> httpx2.Response:
            return await alice.get("/api/v1/entities/resources")

        caller = LimitedCaller("default", resolve_user_id("alice@example.com"))
        async with app.state.caller_turns.of(caller):
            waiting = [asyncio.create_task(look_up()), asyncio.create_task(list_rows())]
            async with client(address, "bob@example.com") as bob:
                assert (await bob.post("/api/v1/query", json={"query": "LOOKUP nothing"})).status_code == 200
            assert not any(task.done() for task in waiting)
        assert [(await task).status_code for task in waiting] == [200, 200]
