"""The tools that store texts."""

from __future__ import annotations

import pytest

from rem import Rem
from rem.agents.catalog import AgentCatalog
from rem.db.store import Store
from rem.errors import (
    ConflictError,
    InvalidInputError,
    MemoryDisabledError,
)
from rem.models import Resource
from rem.settings import Settings
from rem.tools.agents import save_agent
from rem.tools.remember import ingest_into_rem
from rem.tools.search import ask_rem, lookup
from tests.agents.sample_agents import COMPLETE
from tests.tools.tool_env import env_for

ALICE, BOB = "alice@example.com", "bob@example.com"


async def test_text_is_stored_for_its_user_only(rem: Rem, alice: Store) -> None:
    result = await ingest_into_rem(
        env_for(rem, ALICE), "We decided to ship in May. 🚢", "Pricing decision", category="decision", tags=["pricing"]
    )
    assert (result["status"], result["key"], result["characters"]) == ("success", "pricing-decision", 28)
    (stored,) = await alice.find(Resource)
    assert (stored.content, stored.category, stored.tags) == ("We decided to ship in May. 🚢", "decision", ["pricing"])
    assert (await lookup(env_for(rem, BOB), "pricing-decision"))["count"] == 0


async def test_stored_text_is_overwritten_only_with_replace(rem: Rem, alice: Store) -> None:
    env = env_for(rem, ALICE)
    await ingest_into_rem(env, "first", "Note")
    await ingest_into_rem(env, "first", "note")
    with pytest.raises(ConflictError, match="replace=true"):
        await ingest_into_rem(env, "second", "NOTE")
    await ingest_into_rem(env, "third", "note", replace=True)
    assert [resource.content for resource in await alice.find(Resource)] == ["third"]


async def test_two_users_and_the_tenant_can_use_the_same_name(rem: Rem, shared: Store) -> None:
    await shared.upsert(Resource(name="Note", content="everyone's"))
    for user in (ALICE, BOB):
        await ingest_into_rem(env_for(rem, user), user, "note")
    for user in (ALICE, BOB):
        rows = (await lookup(env_for(rem, user), "note"))["results"]
        assert [row["text"] for row in rows] == [user, "everyone's"]


@pytest.mark.parametrize(("content", "name"), [("x\0y", "note"), ("x", "---"), ("x", "n\0"), ("\ud800", "note")])
async def test_text_that_cannot_be_stored_is_rejected(rem: Rem, content: str, name: str) -> None:
    with pytest.raises(InvalidInputError):
        await ingest_into_rem(env_for(rem, ALICE), content, name)


async def test_large_text_is_stored_completely(rem: Rem, alice: Store) -> None:
    text = "many words " * 200_000
    await ingest_into_rem(env_for(rem, ALICE), text, "Large")
    (stored,) = await alice.find(Resource)
    assert stored.content == text


async def test_tools_report_a_missing_database(settings: Settings) -> None:
    env = env_for(None, ALICE, agents=AgentCatalog(settings, None))
    for call in (ingest_into_rem(env, "x", "y"), ask_rem(env, "x"), save_agent(env, COMPLETE)):
        with pytest.raises(MemoryDisabledError):
            await call
