"""The resource pages, each for its caller only."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest

from rem import Rem
from rem.agents.catalog import AgentCatalog
from rem.context import resolve_user_id
from rem.db.store import Store
from rem.errors import InvalidInputError, MemoryDisabledError, NotFoundError, ToolFailedError
from rem.models import Message, Moment, Resource, Role, Session, User
from rem.query.grammar import VERBS, describe_grammar
from rem.query.parser import parse_query
from rem.settings import Settings
from rem.tools.resources import RESOURCE_PAGES, read_page
from tests.cases import cases
from tests.tools.tool_env import env_for

ALICE, BOB = "alice@example.com", "bob@example.com"
UTC_NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_resource_pages() -> None:
    assert [page.uri for page in RESOURCE_PAGES] == [
        "rem://agents",
        "rem://agents/{name}",
        "rem://schema/entities",
        "rem://schema/query-types",
        "rem://sessions",
        "rem://sessions/{id}",
        "rem://moments/{page}",
        "rem://moments/key/{key}",
        "rem://status",
        "rem://help",
        "user://profile/{user_id}",
    ]


async def test_agents_are_listed_and_shown(rem: Rem, settings: Settings) -> None:
    env = env_for(rem, ALICE, agents=AgentCatalog(settings, rem))
    listed = {agent["name"]: agent for agent in (await read_page(env, "rem://agents"))["agents"]}
    assert {"rem", "query-agent", "orchestrator", "simulator"} <= set(listed)
    assert len(listed["rem"]["description"]) <= 301
    shown = await read_page(env, listed["rem"]["uri"])
    assert shown["definition"]["json_schema_extra"]["name"] == "rem"
    with pytest.raises(NotFoundError, match="rem agents list"):
        await read_page(env, "rem://agents/nobody")
    with pytest.raises(ToolFailedError):
        await read_page(env_for(rem, ALICE), "rem://agents")


async def test_query_language_is_described_from_its_grammar(rem: Rem) -> None:
    page = await read_page(env_for(rem), "rem://schema/query-types")
    assert page["grammar"] == describe_grammar()
    assert [verb["verb"] for verb in page["query_types"]] == list(VERBS)
    for verb in page["query_types"]:
        assert type(parse_query(verb["example"])).__name__.upper() == verb["verb"]
        assert verb["syntax"].startswith(verb["verb"])
    assert (await read_page(env_for(rem), "rem://schema/entities"))["count"] >= 14


async def test_sessions_are_visible_only_to_their_owner(rem: Rem, alice: Store) -> None:
    session = await alice.upsert(Session(name="Planning"))
    for index in range(60):
        content = f"message {index} " + "word " * 500 * (index == 59)
        await alice.upsert(Message(session_id=session.id, message_index=index, role=Role.USER, content=content))
    env = env_for(rem, ALICE)
    listed = await read_page(env, "rem://sessions")
    assert (listed["count"], listed["sessions"][0]["name"]) == (1, "Planning")
    page = await read_page(env, listed["sessions"][0]["uri"])
    assert (page["shown"], page["messages"][0]["content"].split()[:2]) == (50, ["message", "10"])
    assert f'lookup(key="session-{session.id}-msg-59"' in page["messages"][-1]["content"]
    for other in (BOB, None):
        assert (await read_page(env_for(rem, other), "rem://sessions"))["count"] == 0
        for unknown in (session.id, uuid4()):
            with pytest.raises(NotFoundError, match=f"sessions has no {unknown}"):
                await read_page(env_for(rem, other), f"rem://sessions/{unknown}")


async def test_moments_are_listed_in_pages_newest_first(rem: Rem, alice: Store) -> None:
    await alice.upsert_many(
        [Moment(name=f"day {day}", starts_timestamp=UTC_NOON + timedelta(days=day)) for day in range(25)]
    )
    env = env_for(rem, ALICE)
    first, second = await read_page(env, "rem://moments/1"), await read_page(env, "rem://moments/2/")
    assert (first["count"], first["pages"], first["moments"][0]["name"]) == (25, 2, "day 24")
    assert [moment["name"] for moment in second["moments"]] == [f"day {day}" for day in range(4, -1, -1)]
    assert (await read_page(env, "rem://moments/99"))["moments"] == []
    assert (await read_page(env_for(rem, BOB), "rem://moments/1"))["count"] == 0
    for page in ("0", "-1", "first", "1.5", "9" * 30, "٣"):
        with pytest.raises(InvalidInputError, match="rem://moments/1"):
            await read_page(env, f"rem://moments/{quote(page)}")


async def test_moment_is_found_by_any_form_of_its_key(rem: Rem, alice: Store) -> None:
    await alice.upsert(Moment(name="Größe/Tiefe ☀", summary="It was."))
    env = env_for(rem, ALICE)
    address = f"rem://moments/key/{quote('Größe/Tiefe ☀', safe='')}"
    assert (await read_page(env, address))["summary"] == "It was."
    for reader, unknown in ((env_for(rem, BOB), address), (env, "rem://moments/key/none")):
        with pytest.raises(NotFoundError):
            await read_page(reader, unknown)


async def test_profile_is_visible_only_to_its_user(rem: Rem, alice: Store, bob: Store) -> None:
    own, other = resolve_user_id(ALICE), resolve_user_id(BOB)
    await alice.upsert(User(id=UUID(own), name="Alice", email=ALICE, interests=["engines"]))
    await bob.upsert(User(id=UUID(other), name="Bob"))
    env = env_for(rem, ALICE)
    for name in ("me", own, ALICE, quote("Alice@Example.com ")):
        profile = await read_page(env, f"user://profile/{name}")
        assert (profile["user_id"], profile["name"], profile["interests"]) == (own, "Alice", ["engines"])
    for name in (other, BOB, "bob", str(uuid4()), "Me", ""):
        with pytest.raises(NotFoundError):
            await read_page(env, f"user://profile/{name}")
    for reader in (env_for(rem), env_for(rem, session_id=str(uuid4()))):
        with pytest.raises(NotFoundError):
            await read_page(reader, "user://profile/me")


async def test_unknown_user_has_an_empty_profile(rem: Rem, shared: Store) -> None:
    await shared.upsert(User(name="carol", summary="somebody else's words"))
    assert await read_page(env_for(rem, "carol"), "user://profile/me") == {
        "user_id": "carol",
        "note": "Nothing is known about this user yet.",
    }
    await rem.for_user("carol").store.upsert(User(name="carol", summary="her own"))
    assert (await read_page(env_for(rem, "carol"), "user://profile/carol"))["summary"] == "her own"


async def test_status_counts_rows_of_the_caller_and_has_no_secrets(
    rem: Rem, alice: Store, bob: Store, dsn: str
) -> None:
    await alice.upsert(Resource(name="one", content="x"))
    await bob.upsert_many([Resource(name=f"note {number}", content="x") for number in range(5)])
    page = await read_page(env_for(rem, ALICE), "rem://status")
    assert page["counts"] == {"resources": 1}
    assert page["language_model"].startswith("none")
    assert (await read_page(env_for(rem, ALICE, has_model=True), "rem://status"))["language_model"] == "configured"
    text = json.dumps(page)
    assert rem.database.server_info.version in text
    assert not any(part in text for part in (dsn, "postgresql://", "host=", rem.database.server_info.role_name + "@"))


@cases(
    "uri", ["", "rem://", "rem://nothing", "http://example.com", "rem://agents/a/b", "REM://agents", "rem://agents?x=1"]
)
async def test_error_for_unknown_address_lists_the_resources(rem: Rem, uri: str) -> None:
    with pytest.raises(NotFoundError, match=r"The resources: rem://agents, .*user://profile/\{user_id\}"):
        await read_page(env_for(rem, ALICE), uri)


async def test_agent_reads_only_allowed_resources(rem: Rem) -> None:
    env = env_for(rem, ALICE, may_read=lambda uri: uri.startswith("rem://moments/"))
    assert (await read_page(env, "rem://moments/1"))["count"] == 0
    with pytest.raises(NotFoundError):
        await read_page(env, "rem://status")


async def test_pages_report_a_missing_database(settings: Settings) -> None:
    env = env_for(None, ALICE, agents=AgentCatalog(settings, None))
    assert (await read_page(env, "rem://status"))["memory"].startswith("off")
    assert (await read_page(env, "rem://agents"))["count"] >= 5
    for uri in ("rem://sessions", f"rem://sessions/{uuid4()}", "rem://moments/1", "user://profile/me"):
        with pytest.raises(MemoryDisabledError):
            await read_page(env, uri)
