"""CallerTurns: the queries of one caller do not take all connections of the database."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx2
import pytest
from fastapi import FastAPI

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


async def test_questions_of_one_caller_at_the_same_time_are_all_answered(settings: Settings) -> None:
    """Each takes one turn: with two, they would wait for each other."""
    postgres = settings.postgres.model_copy(update={"pool_max_size": 4})
    app = create_app(settings.model_copy(update={"postgres": postgres}))
    async with served(app) as address, client(address, "alice@example.com") as alice:
        questions = [alice.post("/api/v1/ask", json={"question": f"Where is bike {n}?"}) for n in range(6)]
        assert [answer.status_code for answer in await asyncio.gather(*questions)] == [200] * 6


async def test_texts_of_one_caller_are_embedded_one_request_after_the_other(settings: Settings) -> None:
    app = create_app(few_queries(settings))
    path, body = "/v1/embeddings", {"input": "tea"}
    address_of_tests = LimitedCaller("", "anon:127.0.0.1")
    async with served(app) as address, client(address, "alice@example.com") as alice:
        async with app.state.embedding_turns.of(address_of_tests):
            tasks = [asyncio.create_task(alice.post(path, json=body)) for _ in range(3)]
            done, waiting = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result().status_code for task in done] == [429]
            async with client(address, "bob@example.com") as bob:
                assert (await bob.post("/api/v1/query", json={"query": "SEARCH tea"})).status_code == 200
        assert [(await task).status_code for task in waiting] == [200, 200]


ASK, MCP = "/api/v1/ask", "/api/v1/mcp"


def few_queries(settings: Settings, max_queries: int = 2) -> Settings:
    """Return settings with one turn for each caller, and few queries that may wait for it."""
    postgres = settings.postgres.model_copy(update={"pool_max_size": 2})
    api = settings.api.model_copy(update={"max_queries_per_caller": max_queries})
    return settings.model_copy(update={"postgres": postgres, "api": api})


async def search(http: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """Send a query, or a call of MCP with it."""
    if path != MCP:
        return await http.post(path, json={"question" if path == ASK else "query": "LOOKUP nothing"})
    params = {"name": "search_rem", "arguments": {"query": "LOOKUP nothing"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return await http.post(path, json=body, headers={"Accept": "application/json, text/event-stream"})


def alice_turns(app: FastAPI) -> asyncio.Semaphore:
    turns: CallerTurns = app.state.caller_turns
    return turns.of(LimitedCaller("default", resolve_user_id("alice@example.com")))


@pytest.mark.parametrize("path", ["/api/v1/query", ASK, MCP])
async def test_query_beyond_the_limit_is_refused(settings: Settings, path: str) -> None:
    app = create_app(few_queries(settings))
    async with served(app) as address, client(address, "alice@example.com") as alice:
        async with alice_turns(app):
            tasks = [asyncio.create_task(search(alice, path)) for _ in range(3)]
            done, waiting = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            (refused,) = [task.result() for task in done]
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_queries")
            assert int(refused.headers["Retry-After"]) > 0
            async with client(address, "bob@example.com") as bob:
                assert (await search(bob, path)).status_code == 200
        assert [(await task).status_code for task in waiting] == [200, 200]
        assert (await search(alice, path)).status_code == 200


async def test_another_header_is_no_new_share_of_queries_without_a_login(settings: Settings) -> None:
    app = create_app(few_queries(settings, 1))
    users = ("alice@example.com", "bob@example.com", "carol@example.com")
    async with served(app) as address, AsyncExitStack() as stack:
        async with AsyncExitStack() as turns:
            for user in users:
                await turns.enter_async_context(
                    app.state.caller_turns.of(LimitedCaller("default", resolve_user_id(user)))
                )
            clients = [await stack.enter_async_context(client(address, user)) for user in users]
            tasks = [asyncio.create_task(search(http, "/api/v1/query")) for http in clients]
            done, waiting = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result().status_code for task in done] == [429]
        assert [(await task).status_code for task in waiting] == [200, 200]


async def test_search_over_mcp_takes_one_turn(settings: Settings) -> None:
    app = create_app(few_queries(settings, 8))
    async with served(app) as address, client(address, "alice@example.com") as alice:
        async with alice_turns(app):
            calls = [asyncio.create_task(search(alice, MCP)) for _ in range(4)]
            async with client(address, "bob@example.com") as bob:
                assert (await search(bob, MCP)).status_code == 200
            assert not any(call.done() for call in calls)
        for call in calls:
            assert (await call).json()["result"]["isError"] is False
