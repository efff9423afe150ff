"""Whoever loses a key, a login or an account loses the answers that are still being written, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import asyncpg
import httpx2 as httpx
import pytest

from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.auth.authenticator import Authenticator
from rem.context import resolve_user_id
from rem.settings import Settings
from tests.api.auth_server import with_auth
from tests.api.test_disconnect import until
from tests.cli.test_serve import serving
from tests.rem_command import output
from tests.scripted_model import Call, Pause, ScriptedModel, scripted_model

ALICE = "alice@example.com"
CHAT = {"messages": [{"role": "user", "content": "What do you know?"}], "stream": True}
LONG_ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/api/v1/chat/completions", CHAT),
    "responses": ("/api/v1/responses", {"input": "What do you know?", "stream": True}),
    "whole chat": ("/api/v1/chat/completions", {**CHAT, "stream": False}),
    "agent": ("/api/v1/agents/rem/run", {"input": "What do you know?"}),
    "query": ("/api/v1/query", {"query": "What do you know?", "mode": "natural-language"}),
}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        running.script = lambda _body: ["Well", Pause(60), Call("remember", {"text": "Alice likes vermilion73."})]
        yield running


@pytest.fixture
async def environment(dsn: str, model: ScriptedModel) -> dict[str, str]:
    return {
        "POSTGRES__CONNECTION_STRING": dsn,
        "LLM__BASE_URL": model.url,
        "LLM__DEFAULT_MODEL": "openai:scripted",
        "AUTH__ENABLED": "true",
        "AUTH__SESSION_SECRET": "a secret of the tests, long enough",
    }


@pytest.fixture
async def address(environment: dict[str, str]) -> AsyncIterator[str]:
    with serving(settings=environment) as (address, _process):
        yield address


async def ask(address: str, key: str, name: str) -> httpx.Response:
    path, body = LONG_ANSWERS[name]
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        return await http.post(path, json=body, headers={"Authorization": f"Bearer {key}"})


async def test_revoked_key_ends_its_running_answers(address: str, model: ScriptedModel, rem: Rem) -> None:
    keys = ApiKeys(rem.database)
    key, info = await keys.create("script", ALICE, "default")
    kept, _ = await keys.create("other", "bob@example.com", "default")
    asking = {name: asyncio.create_task(ask(address, key, name)) for name in LONG_ANSWERS}
    other = asyncio.create_task(ask(address, kept, "chat"))
    await until(lambda: model.open == len(asking) + 1)
    await keys.revoke(info.prefix)
    for name, answer in asking.items():
        response = await answer
        assert "The login or key was revoked" in response.text, name
        assert response.status_code == (200 if name in ("chat", "responses") else 401)
    await until(lambda: model.open == 1)
    assert not other.done()
    other.cancel()


async def test_erased_user_gets_no_row_from_a_running_answer(
    address: str, environment: dict[str, str], model: ScriptedModel, rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    model.script = lambda _body: ["Well", Pause(12), Call("remember", {"text": "Alice likes vermilion73."})]
    key, _ = await ApiKeys(rem.database).create("script", ALICE, "default")
    asking = asyncio.create_task(ask(address, key, "chat"))
    await until(lambda: model.open == 1)
    assert "nothing is left" in await asyncio.to_thread(output, "erase-user", ALICE, "--yes", settings=environment)
    assert "The login or key was revoked" in (await asking).text
    await until(lambda: model.open == 0)
    user_id = resolve_user_id(ALICE)
    for table in ("sessions", "messages", "resources"):
        assert await sql.fetchval(f"SELECT count(*) FROM rem.{table} WHERE user_id = $1", user_id) == 0, table


async def test_validity_of_a_login_follows_its_end(rem: Rem, settings: Settings) -> None:
    authenticator = Authenticator(with_auth(settings), rem.database)
    account = await authenticator.accounts.log_in(ALICE, "Alice", "default", is_admin=False)
    identities = []
    for _ in range(2):
        cookie, _ = await authenticator.logins.create_cookie(account.user_id, "default", "google")
        identities.append(await authenticator.authenticate({"cookie": f"{authenticator.cookie_name}={cookie}"}))
    first, second = identities
    assert first.credential_id is not None
    await authenticator.logins.revoke(UUID(first.credential_id))
    assert [await authenticator.is_valid(identity) for identity in identities] == [False, True]
    await authenticator.accounts.set_disabled(ALICE, "default", disabled=True)
    assert not await authenticator.is_valid(second)
