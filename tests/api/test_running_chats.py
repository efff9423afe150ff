"""The limit of running chats of one caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.context import resolve_user_id
from rem.rate_limits import LimitedCaller
from rem.settings import Settings
from tests.api.auth_server import bearer, with_auth
from tests.api.live_server import client, served
from tests.scripted_model import Pause, ScriptedModel, scripted_model

LIMIT = 2
CHAT = "/api/v1/chat/completions"
QUESTION = {"messages": [{"role": "user", "content": "Think about it"}]}
RUNS = {
    CHAT: QUESTION,
    "/v1/chat/completions": {**QUESTION, "stream": True},
    "/api/v1/responses": {"input": "Think about it"},
    "/v1/responses": {"input": "Think about it", "stream": True},
    "/api/v1/agents/rem/run": {"input": "Think about it"},
    "/api/v1/query": {"query": "Think about it", "mode": "natural-language"},
}


@asynccontextmanager
async def limited(settings: Settings, model: ScriptedModel, **groups: object) -> AsyncIterator[str]:
    """Serve with a limit of two running chats, and yield the address."""
    llm = settings.llm.model_copy(update={"base_url": model.url, "default_model": "openai:scripted"})
    api = settings.api.model_copy(update={"max_chats_per_caller": LIMIT})
    async with served(create_app(settings.model_copy(update={"llm": llm, "api": api, **groups}))) as address:
        yield address


@asynccontextmanager
async def chatting(address: str, user: str | None = "alice@example.com", **headers: str) -> AsyncIterator[None]:
    """Let a caller read a stream whose model has begun to answer, until the block ends."""
    async with (
        client(address, user, **headers) as http,
        http.stream("POST", CHAT, json={**QUESTION, "stream": True}) as answer,
    ):
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        while "Well" not in await anext(lines):
            pass
        yield


@pytest.mark.parametrize("path", RUNS)
async def test_chat_beyond_the_limit_is_refused(settings: Settings, path: str) -> None:
    with scripted_model() as model:
        model.script = lambda _body: ["Well", Pause(20), "."]
        async with limited(settings, model) as address, client(address, "alice@example.com") as alice:
            async with chatting(address), chatting(address):
                refused = await alice.post(path, json=RUNS[path])
                lookup = await alice.post("/api/v1/query", json={"query": "LOOKUP nothing"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_chats")
            assert int(refused.headers["Retry-After"]) > 0
            assert lookup.status_code == 200
            # The streams have ended, so there is room again.
            model.script = lambda _body: ["Well."]
            for _ in range(200):
                again = await alice.post(path, json=RUNS[path])
                if again.status_code != 429:
                    break
                await asyncio.sleep(0.05)
            assert again.status_code == 200


async def test_another_header_is_no_new_share_without_a_login(settings: Settings) -> None:
    with scripted_model() as model:
        model.script = lambda _body: ["Well", Pause(20), "."]
        async with (
            limited(settings, model) as address,
            chatting(address, "alice@example.com"),
            chatting(address, "bob@example.com"),
        ):
            for headers in ({"X-User-Id": "carol@example.com"}, {"X-Tenant-Id": "other"}, {}):
                async with httpx2.AsyncClient(base_url=address, headers=headers) as other:
                    assert (await other.post(CHAT, json=QUESTION)).status_code == 429


async def test_agent_that_a_client_of_mcp_asks_counts(settings: Settings) -> None:
    call = {"name": "ask_agent", "arguments": {"agent_name": "rem", "input_text": "Think about it"}}
    with scripted_model() as model:
        model.script = lambda _body: ["Well", Pause(20), "."]
        async with limited(settings, model) as address, client(address, "alice@example.com") as alice:
            headers = {"Accept": "application/json, text/event-stream"}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            async with chatting(address), chatting(address):
                result = (await alice.post("/api/v1/mcp", json=body, headers=headers)).json()["result"]
    assert result["isError"]
    assert f"You have {LIMIT} running chats" in result["content"][0]["text"]


async def test_each_user_with_a_login_has_a_share_at_the_same_address(settings: Settings, rem: Rem) -> None:
    keys = ApiKeys(rem.database)
    alice, bob = [bearer((await keys.create("script", user, "default"))[0]) for user in ("alice@x.com", "bob@x.com")]
    with scripted_model() as model:
        model.script = lambda _body: ["Well", Pause(20), "."]
        async with (
            limited(with_auth(settings), model) as address,
            chatting(address, None, **alice),
            chatting(address, None, **alice),
            client(address, **alice) as again,
        ):
            assert (await again.post(CHAT, json=QUESTION)).status_code == 429
            async with chatting(address, None, **bob), chatting(address, None, **bob):
                pass


async def test_database_work_of_chats_takes_turns(settings: Settings) -> None:
    postgres = settings.postgres.model_copy(update={"pool_max_size": 2})
    app = create_app(settings.model_copy(update={"postgres": postgres}))
    async with served(app) as address, client(address, "alice@example.com") as alice:
        caller = LimitedCaller("default", resolve_user_id("alice@example.com"))
        async with app.state.caller_turns.of(caller):
            chats = [asyncio.create_task(alice.post(CHAT, json=QUESTION)) for _ in range(4)]
            async with client(address, "bob@example.com") as bob:
                for _ in range(10):
                    assert (await bob.post("/api/v1/query", json={"query": "LOOKUP nothing"})).status_code == 200
            assert not any(chat.done() for chat in chats)
        assert [(await chat).status_code for chat in chats] == [200] * 4
