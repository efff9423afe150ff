"""The model gets a hint to the user's profile, or the profile itself, and never that of another user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest

from rem.app import Rem
from rem.context import resolve_user_id
from rem.models import Moment, User
from tests.cli.test_serve import serving
from tests.conftest import fresh_database, settings_for
from tests.scripted_model import Call, ScriptedModel, Step, has_result, instructions, scripted_model

_START = datetime(2026, 5, 4, 9, tzinfo=UTC)


class ChatServers:
    """Two servers on one database, one of which tells the model the profile itself."""

    def __init__(self, dsn: str, model: ScriptedModel, with_hint: str, with_profile: str) -> None:
        self.dsn = dsn
        self.model = model
        self.with_hint = with_hint
        self.with_profile = with_profile
        self.user = f"{uuid4().hex[:8]}@example.com"
        self.other = f"{uuid4().hex[:8]}@example.com"

    def send(self, address: str, user: str) -> str:
        """What the model is told beside a message."""
        headers = {"X-User-Id": user}
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        response = httpx.post(f"{address}/api/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert response.status_code == 200, response.text
        return instructions(self.model.requests[-1])

    def dream(self) -> None:
        """Let both users have something to dream of, and dream."""
        asyncio.run(self._dream())

    async def _dream(self) -> None:
        async with Rem.open(settings_for(self.dsn)) as rem:
            for user, topic in ((self.user, "sailing"), (self.other, "chess")):
                for day in range(3):
                    at = _START + timedelta(days=day)
                    name = f"{topic} {day}"
                    await rem.for_user(user).store.upsert(Moment(name=name, starts_timestamp=at, topic_tags=[topic]))
                await rem.dreamer().dream(rem.for_user(user).store.scope, ["profiles"])

    def upsert(self, user: str | None, row: User) -> None:
        """Write into a user's memory."""

        async def work() -> None:
            async with Rem.open(settings_for(self.dsn)) as rem:
                await rem.for_user(user).store.upsert(row)

        asyncio.run(work())


@pytest.fixture(scope="module")
def servers() -> Iterator[ChatServers]:
    database = fresh_database()
    dsn = asyncio.run(database.__aenter__())
    try:
        with scripted_model() as model:
            settings = {
                "POSTGRES__CONNECTION_STRING": dsn,
                "LLM__BASE_URL": model.url,
                "LLM__OPENAI_API_KEY": "unused",
                "LLM__DEFAULT_MODEL": "openai:scripted",
                "LLM__MAX_RETRIES": "0",
            }
            telling_settings = {**settings, "CHAT__AUTO_INJECT_USER_CONTEXT": "true"}
            with serving(settings=settings) as (with_hint, _), serving(settings=telling_settings) as (with_profile, _):
                yield ChatServers(dsn, model, with_hint, with_profile)
    finally:
        asyncio.run(database.__aexit__())


@pytest.fixture
def chat_servers(servers: ChatServers) -> ChatServers:
    servers.model.script = lambda _body: ["Hello."]
    servers.model.requests.clear()
    return ChatServers(servers.dsn, servers.model, servers.with_hint, servers.with_profile)


def test_hint_leads_to_the_profile(chat_servers: ChatServers) -> None:
    assert "To load user profile" not in chat_servers.send(chat_servers.with_hint, chat_servers.user)
    chat_servers.dream()
    user_id = resolve_user_id(chat_servers.user)
    prompt = chat_servers.send(chat_servers.with_hint, chat_servers.user)
    address = chat_servers.user
    assert f"User ID: {address}. To load user profile: Use REM LOOKUP users/{address}" in prompt
    assert "sailing" not in prompt
    prompt = chat_servers.send(chat_servers.with_hint, user_id)
    assert f"User ID: {user_id}. To load user profile: Use REM LOOKUP users/{user_id}" in prompt

    def follow(body: dict[str, Any]) -> list[Step]:
        return ["I see."] if has_result(body) else [Call("search_rem", {"query": f"LOOKUP users/{address}"})]

    chat_servers.model.script = follow
    chat_servers.send(chat_servers.with_hint, chat_servers.user)
    result = str(chat_servers.model.requests[-1]["messages"][-1]["content"])
    assert "Comes back to sailing." in result
    # Another who has the key finds nothing under it.
    chat_servers.send(chat_servers.with_hint, chat_servers.other)
    result = str(chat_servers.model.requests[-1]["messages"][-1]["content"])
    assert "sailing" not in result


def test_hint_leads_to_a_shared_row_that_is_never_added(chat_servers: ChatServers) -> None:
    chat_servers.upsert(None, User(name="Anna Ort", email=chat_servers.user, summary="Leads the harbour team."))
    prompt = chat_servers.send(chat_servers.with_hint, chat_servers.user)
    assert f"To load user profile: Use REM LOOKUP users/{chat_servers.user}" in prompt
    assert "harbour" not in prompt
    chat_servers.model.script = lambda body: (
        ["I see."] if has_result(body) else [Call("search_rem", {"query": f"LOOKUP users/{chat_servers.user}"})]
    )
    chat_servers.send(chat_servers.with_hint, chat_servers.user)
    assert "Leads the harbour team." in str(chat_servers.model.requests[-1]["messages"][-1]["content"])
    chat_servers.model.script = lambda _body: ["Hello."]
    assert "harbour" not in chat_servers.send(chat_servers.with_profile, chat_servers.user)


def test_profile_is_added_if_configured(chat_servers: ChatServers) -> None:
    chat_servers.dream()
    prompt = chat_servers.send(chat_servers.with_profile, chat_servers.user)
    assert "You talk to this user:" in prompt
    assert "About: Comes back to sailing." in prompt
    assert "Interests: sailing" in prompt
    assert "chess" not in prompt
    assert resolve_user_id(chat_servers.user) not in prompt
    assert "sailing" not in chat_servers.send(chat_servers.with_profile, chat_servers.other)


def test_profile_includes_projects_and_preferences(chat_servers: ChatServers) -> None:
    details = {"current_projects": ["Apollo", 7], "preferences": ["Answer in German."], "people": "odd"}
    chat_servers.upsert(
        chat_servers.user, User(name="Alice Adams", email=chat_servers.user, metadata={"profile": details})
    )
    prompt = chat_servers.send(chat_servers.with_profile, chat_servers.user)
    assert "Name: Alice Adams" in prompt
    assert "Current projects: Apollo\n" in prompt
    assert "How the user wants things done: Answer in German." in prompt


def test_profile_includes_corrections_of_the_user(chat_servers: ChatServers) -> None:
    chat_servers.dream()
    details = {"about": ["lives in Faro"], "people": ["Carla", "Dora"]}
    chat_servers.upsert(chat_servers.user, User(name=resolve_user_id(chat_servers.user), metadata={"profile": details}))
    prompt = chat_servers.send(chat_servers.with_profile, chat_servers.user)
    assert "What the user said about themselves: lives in Faro\n" in prompt
    assert "People the user speaks of: Carla, Dora" in prompt


def test_profile_with_address_is_found_by_user_id(chat_servers: ChatServers) -> None:
    chat_servers.upsert(chat_servers.user, User(name="Alice Adams", email=chat_servers.user, summary="Builds boats."))
    chat_servers.dream()
    prompt = chat_servers.send(chat_servers.with_profile, resolve_user_id(chat_servers.user))
    assert "About: Builds boats." in prompt
    assert "Interests: sailing" in prompt
    assert f"REM LOOKUP users/{chat_servers.user}" in chat_servers.send(
        chat_servers.with_hint, resolve_user_id(chat_servers.user)
    )
