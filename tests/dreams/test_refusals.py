"""What an owner deleted or changed does not come back when a source is erased."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.forget.forget import forget, plan_forget
from rem.models import Message, Moment, Ontology, User
from tests.dreams.sample_sessions import find_tables_with, list_moments, run_dreams, store_session

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_LINES = (
    "user: The mainsail of the Albatross is torn.",
    "user: Bogdan Ilie brought the mainsail of the Albatross to the sailmaker.",
    "user: The sailmaker wants 3,400 euros for the mainsail.",
)


async def _forget(rem: Rem, store: Store, name: str) -> None:
    plan = await plan_forget(rem.database, store.scope, name, with_mentions=True)
    report = await forget(rem.database, plan)
    assert report.is_gone


@pytest.mark.parametrize("rescan", [False, True])
async def test_deleted_moment_stays_deleted_after_its_mention_is_forgotten(
    rem: Rem, alice: Store, sql: Sql, rescan: bool
) -> None:
    await store_session(alice, "boat", *_LINES)
    await rem.dreamer().dream(alice.scope)
    (moment,) = await list_moments(alice)
    await alice.delete(moment)
    await _forget(rem, alice, "Bogdan Ilie")
    await rem.dreamer().dream(alice.scope, rescan=rescan)
    assert await list_moments(alice) == []
    assert await find_tables_with(sql, "Bogdan") == []


async def test_edited_moment_is_not_duplicated_after_its_mention_is_forgotten(rem: Rem, alice: Store) -> None:
    await store_session(alice, "boat", *_LINES)
    await rem.dreamer().dream(alice.scope)
    (moment,) = await list_moments(alice)
    moment.name, moment.summary = "The mainsail", "We had the mainsail repaired."
    await alice.upsert(moment)
    await _forget(rem, alice, "Bogdan Ilie")
    await rem.dreamer().dream(alice.scope)
    assert [(row.id, row.summary) for row in await list_moments(alice)] == [(moment.id, moment.summary)]


async def test_deleted_person_stays_deleted_after_a_message_is_erased(rem: Rem, alice: Store) -> None:
    await store_session(alice, "boat", "user: My colleague Ingrid Solberg met Bogdan Ilie.")
    await store_session(alice, "work", "user: My colleague Ingrid Solberg is ill.")
    await run_dreams(rem, alice, "entities")
    (person,) = await alice.lookup("Ingrid Solberg", table="ontologies")
    await alice.delete(person)
    await _forget(rem, alice, "Bogdan Ilie")
    await run_dreams(rem, alice, "entities", rescan=True)
    assert await alice.find(Ontology) == []


async def test_emptied_field_stays_empty_after_a_message_is_erased(rem: Rem, alice: Store) -> None:
    await store_session(alice, "home", "user: I live in Porto with Bogdan Ilie.", "user: I play the violin!")
    await run_dreams(rem, alice, "profiles")
    (user,) = await alice.find(User)
    user.metadata = {"profile": {**user.metadata["profile"], "about": []}}
    await alice.upsert(user)
    await run_dreams(rem, alice, "profiles")
    await _forget(rem, alice, "Bogdan Ilie")
    await run_dreams(rem, alice, "profiles", rescan=True)
    (after,) = await alice.find(User)
    assert after.metadata["profile"].get("about", []) == []


async def test_refusal_goes_with_its_last_source(rem: Rem, alice: Store, sql: Sql) -> None:
    session_id = await store_session(alice, "boat", *_LINES)
    await run_dreams(rem, alice, "moments")
    (moment,) = await list_moments(alice)
    await alice.delete(moment)
    await sql.execute("DELETE FROM messages WHERE session_id = $1", session_id)
    assert await sql.fetchval("SELECT count(*) FROM statements WHERE state = 'refused'") == 0
    assert await alice.find(Message) == []
    assert await alice.find(Moment) == []


async def test_refused_moment_keeps_no_words(rem: Rem, alice: Store, sql: Sql) -> None:
    await store_session(alice, "boat", *_LINES)
    await run_dreams(rem, alice, "moments")
    (moment,) = await list_moments(alice)
    await alice.delete(moment)
    (row,) = await sql.fetch("SELECT name, value::text FROM statements WHERE state = 'refused' AND kind = 'row'")
    assert "mainsail" not in row["name"]
    assert row["value"] == "{}"
