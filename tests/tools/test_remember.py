"""Tools that keep something, and tools that ask others: texts, agents, questions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rem import Rem
from rem.agents.catalog import AgentCatalog
from rem.db.store import Store
from rem.errors import (
    ConflictError,
    InvalidAgentError,
    InvalidInputError,
    MemoryDisabledError,
    ModelTimeoutError,
    NotFoundError,
    ToolFailedError,
)
from rem.models import Resource, User
from rem.settings import Settings
from rem.tools.agents import ask_agent, save_agent
from rem.tools.remember import ingest_into_rem
from rem.tools.resources import read_resource
from rem.tools.schema import get_schema, list_schema
from rem.tools.search import ask_rem, lookup
from tests.tools.tool_env import env_for

ALICE, BOB = "alice@example.com", "bob@example.com"
AGENT = """
type: object
description: You answer questions about releases, from memory only.
properties:
  answer: {type: string}
required: [answer]
json_schema_extra:
  kind: agent
  name: release-helper
  version: "1.0.0"
  tools:
    - name: search_rem
"""


async def test_a_text_is_kept_for_its_user_alone(rem: Rem, alice: Store) -> None:
    kept = await ingest_into_rem(
        env_for(rem, ALICE), "We decided to ship in May. 🚢", "Pricing decision", category="decision", tags=["pricing"]
    )
    assert (kept["status"], kept["key"], kept["characters"]) == ("success", "pricing-decision", 28)
    (stored,) = await alice.find(Resource)
    assert (stored.content, stored.category, stored.tags) == ("We decided to ship in May. 🚢", "decision", ["pricing"])
    assert (await lookup(env_for(rem, BOB), "pricing-decision"))["count"] == 0


async def test_a_kept_text_is_not_written_over_by_accident(rem: Rem, alice: Store) -> None:
    env = env_for(rem, ALICE)
    await ingest_into_rem(env, "first", "Note")
    await ingest_into_rem(env, "first", "note")
    with pytest.raises(ConflictError, match="replace=true"):
        await ingest_into_rem(env, "second", "NOTE")
    await ingest_into_rem(env, "third", "note", replace=True)
    assert [resource.content for resource in await alice.find(Resource)] == ["third"]


async def test_two_users_and_the_workspace_keep_texts_of_one_name(rem: Rem, shared: Store) -> None:
    await shared.upsert(Resource(name="Note", content="everyone's"))
    for user in (ALICE, BOB):
        await ingest_into_rem(env_for(rem, user), user, "note")
    for user in (ALICE, BOB):
        rows = (await lookup(env_for(rem, user), "note"))["results"]
        assert [row["record"]["content"] for row in rows] == [user, "everyone's"]


@pytest.mark.parametrize(("content", "name"), [("x\0y", "note"), ("x", "---"), ("x", "n\0"), ("\ud800", "note")])
async def test_a_text_that_cannot_be_stored_is_refused(rem: Rem, content: str, name: str) -> None:
    with pytest.raises(InvalidInputError):
        await ingest_into_rem(env_for(rem, ALICE), content, name)


async def test_a_large_text_is_kept_whole(rem: Rem, alice: Store) -> None:
    text = "many words " * 200_000
    await ingest_into_rem(env_for(rem, ALICE), text, "Large")
    (stored,) = await alice.find(Resource)
    assert stored.content == text


async def test_a_saved_agent_is_its_users_own(rem: Rem, settings: Settings) -> None:
    agents = AgentCatalog(settings, rem)
    env = env_for(rem, ALICE, agents=agents)
    saved = await save_agent(env, AGENT)
    assert saved == {"status": "success", "name": "release-helper", "uri": "rem://agents/release-helper"}
    page = (await read_resource(env, "rem://agents/release-helper"))["content"]
    assert page["definition"]["json_schema_extra"]["tools"][0]["name"] == "search_rem"
    assert "release-helper" in page["yaml"]
    with pytest.raises(NotFoundError):
        await read_resource(env_for(rem, BOB, agents=agents), "rem://agents/release-helper")
    with pytest.raises(InvalidAgentError, match="line"):
        await save_agent(env, AGENT.replace("search_rem", "serch_rem"))


async def test_the_kinds_of_things_are_told_with_their_fields(rem: Rem) -> None:
    env = env_for(rem, ALICE)
    outline = {kind["table"]: kind for kind in (await list_schema(env))["types"]}
    assert outline["users"]["key"] == ["name", "email", "id"]
    assert outline["moments"]["searched"] == ["summary"]
    detail = await get_schema(env, "moments")
    assert detail["fields"]["starts_timestamp"] == "time"
    assert detail["fields"]["present_persons"] == "list of text"
    assert (await get_schema(env, "Resource"))["table"] == "resources"
    with pytest.raises(NotFoundError, match="Did you mean 'moments'"):
        await get_schema(env, "momnts")


async def test_the_kinds_of_things_are_known_without_a_database() -> None:
    env = env_for(None)
    assert (await list_schema(env))["count"] >= 14
    assert (await get_schema(env, "users"))["fields"]["interests"] == "list of text"


class Desk:
    """Where agents answer in these tests: keeps what they were asked."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.asked: list[tuple[str, str, float]] = []
        self._answer = answer

    async def __call__(self, agent_name: str, text: str, timeout_seconds: float) -> dict[str, Any]:
        self.asked.append((agent_name, text, timeout_seconds))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def test_another_agent_gets_the_text_and_the_data() -> None:
    desk = Desk({"status": "success", "output": "done"})
    env = env_for(None, ALICE, delegate=desk)
    assert await ask_agent(env, "summarizer", "Sum it up.", {"n": 1}, 20) == {"status": "success", "output": "done"}
    assert desk.asked == [("summarizer", 'Sum it up.\n\n```json\n{\n  "n": 1\n}\n```', 20)]


async def test_an_agent_that_takes_too_long_is_told_as_such() -> None:
    async def sleeps(_name: str, _text: str, timeout_seconds: float) -> dict[str, Any]:
        async with asyncio.timeout(timeout_seconds / 100):
            await asyncio.sleep(60)
        return {}

    with pytest.raises(ToolFailedError, match="did not answer within 1 seconds"):
        await ask_agent(env_for(None, ALICE, delegate=sleeps), "rem", "hello", timeout_seconds=1)
    with pytest.raises(ToolFailedError, match="answer yourself"):
        await ask_agent(env_for(None, ALICE), "rem", "hello")


async def test_a_question_is_understood_by_an_agent_if_there_is_a_model(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen"))
    desk = Desk({"status": "success", "output": {"answer": "Sarah."}})
    with_model = env_for(rem, ALICE, delegate=desk, has_model=True)
    assert (await ask_rem(with_model, "who is Sarah Chen?"))["output"] == {"answer": "Sarah."}
    without = env_for(rem, ALICE, delegate=desk)
    assert (await ask_rem(without, "who is Sarah Chen?"))["results"][0]["key"] == "sarah-chen"
    assert len(desk.asked) == 1


@pytest.mark.parametrize("error", [ModelTimeoutError(), NotFoundError(), TimeoutError()])
async def test_a_question_is_answered_by_the_memory_if_the_model_fails(
    rem: Rem, alice: Store, error: Exception
) -> None:
    await alice.upsert(User(name="Sarah Chen"))
    env = env_for(rem, ALICE, delegate=Desk(error), has_model=True)
    if type(error) is NotFoundError:
        with pytest.raises(NotFoundError):
            await ask_rem(env, "who is Sarah Chen?")
        return
    answer = await ask_rem(env, "who is Sarah Chen?")
    assert answer["results"][0]["key"] == "sarah-chen"
    assert answer["notes"][0].startswith("Answered without a language model: ")


async def test_without_a_database_what_needs_one_says_so(settings: Settings) -> None:
    env = env_for(None, ALICE, agents=AgentCatalog(settings, None))
    for call in (ingest_into_rem(env, "x", "y"), ask_rem(env, "x"), save_agent(env, AGENT)):
        with pytest.raises(MemoryDisabledError):
            await call
