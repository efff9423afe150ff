"""After a dream, a chat knows how to get the user's profile, or has it; and never another's."""

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


class Place:
    """Two servers on one database, one of which tells the model the profile itself."""

    def __init__(self, dsn: str, model: ScriptedModel, hinting: str, telling: str) -> None:
        self.dsn = dsn
        self.model = model
        self.hinting = hinting
        self.telling = telling
        self.user = f"{uuid4().hex[:8]}@example.com"
        self.other = f"{uuid4().hex[:8]}@example.com"

    def say(self, address: str, user: str) -> str:
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
                    await rem.store(user).upsert(Moment(name=name, starts_timestamp=at, topic_tags=[topic]))
                await rem.dreamer().dream(rem.store(user).scope, ["profiles"])

    def upsert(self, user: str, row: User) -> None:
        """Write into a user's memory."""

        async def work() -> None:
            async with Rem.open(settings_for(self.dsn)) as rem:
                await rem.store(user).upsert(row)

        asyncio.run(work())


@pytest.fixture(scope="module")
def servers() -> Iterator[Place]:
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
            with serving(settings=settings) as (hinting, _), serving(settings=telling_settings) as (telling, _):
                yield Place(dsn, model, hinting, telling)
    finally:
        asyncio.run(database.__aexit__())


@pytest.fixture
def place(servers: Place) -> Place:
    servers.model.script = lambda _body: ["Hello."]
    servers.model.requests.clear()
    return Place(servers.dsn, servers.model, servers.hinting, servers.telling)


def test_hint_leads_to_the_profile(place: Place) -> None:
    assert "To load user profile" not in place.say(place.hinting, place.user)
    place.dream()
    user_id = resolve_user_id(place.user)
    told = place.say(place.hinting, place.user)
    assert f"User ID: {user_id}. To load user profile: Use REM LOOKUP users/{user_id}" in told
    assert "sailing" not in told

    def follow(body: dict[str, Any]) -> list[Step]:
        return ["I see."] if has_result(body) else [Call("search_rem", {"query": f"LOOKUP users/{user_id}"})]

    place.model.script = follow
    place.say(place.hinting, place.user)
    result = str(place.model.requests[-1]["messages"][-1]["content"])
    assert "Comes back to sailing." in result
    # Another who has the key finds nothing under it.
    place.say(place.hinting, place.other)
    result = str(place.model.requests[-1]["messages"][-1]["content"])
    assert "sailing" not in result


def test_profile_is_added_if_configured(place: Place) -> None:
    place.dream()
    told = place.say(place.telling, place.user)
    assert "You talk to this user:" in told
    assert "About: Comes back to sailing." in told
    assert "Interests: sailing" in told
    assert "chess" not in told
    assert resolve_user_id(place.user) not in told
    assert "sailing" not in place.say(place.telling, place.other)


def test_profile_includes_projects_and_preferences(place: Place) -> None:
    details = {"current_projects": ["Apollo", 7], "preferences": ["Answer in German."], "people": "odd"}
    place.upsert(place.user, User(name="Alice Adams", email=place.user, metadata={"profile": details}))
    told = place.say(place.telling, place.user)
    assert "Name: Alice Adams" in told
    assert "Current projects: Apollo\n" in told
    assert "How the user wants things done: Answer in German." in told


def test_profile_includes_corrections_of_the_user(place: Place) -> None:
    place.dream()
    details = {"about": ["lives in Faro"], "people": ["Carla", "Dora"]}
    place.upsert(place.user, User(name=resolve_user_id(place.user), metadata={"profile": details}))
    told = place.say(place.telling, place.user)
    assert "What the user said of themself: lives in Faro\n" in told
    assert "People the user speaks of: Carla, Dora" in told


def test_profile_with_address_is_found_by_user_id(place: Place) -> None:
    place.upsert(place.user, User(name="Alice Adams", email=place.user, summary="Builds boats."))
    place.dream()
    told = place.say(place.telling, resolve_user_id(place.user))
    assert "About: Builds boats." in told
    assert "Interests: sailing" in told
    assert "REM LOOKUP users/alice-adams" in place.say(place.hinting, resolve_user_id(place.user))
