"""No two moments of an owner say the same; what was said in several places is remembered as long as one of them is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.forgetting.expiry import expire
from rem.models import Moment, Resource, Session
from tests.dreaming.sample_sessions import (
    MARCH,
    contents,
    dream,
    fifty_sessions,
    marker,
    moments,
    session_id,
    statements,
    tables_with,
    talk,
)

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_DAY = timedelta(days=1)
_FICUS = ("user: Remind me to water the ficus on Fridays, please.", "assistant: I will remind you to water the ficus.")
_BOAT = ("user: Our boat Albatross needs a new mainsail of Dacron for 3,400 euros.",)


async def _closest(sql: Sql) -> float:
    """The highest cosine between two moments' passages."""
    value = await sql.fetchval(
        """SELECT max(1 - (a.embedding <=> b.embedding)) FROM rem.passages a JOIN rem.passages b
           ON a.owner = b.owner AND a.id < b.id AND a.entity_id <> b.entity_id
           WHERE a.entity_type = 'moments' AND b.entity_type = 'moments'"""
    )
    return float(value or 0)


async def _closest_texts(rem: Rem, texts: list[str]) -> float:
    vectors = await rem._embedder.embed(texts)
    alike = vectors @ vectors.T
    count = len(alike)
    return max(float(alike[i, j]) for i in range(count) for j in range(i))


async def test_ten_nights_over_fifty_sessions_and_then_half_of_them_are_gone(rem: Rem, alice: Store, sql: Sql) -> None:
    ids = await fifty_sessions(alice)
    await dream(rem, alice, "moments", "affinity")
    told, stood = await contents(sql), await statements(sql)
    for night in range(9):
        report = await dream(rem, alice, "moments", "affinity", rescan=night % 4 == 3)
        assert (report.run_id, report.statement_count) == (None, 0)
    assert await contents(sql) == told
    assert await statements(sql) == stood
    found = await moments(alice)
    assert 20 <= len(found) <= 45
    assert len({moment.summary for moment in found}) == len({moment.name for moment in found}) == len(found)
    await rem.index(user="alice@example.com")
    assert await _closest(sql) <= 0.95
    assert await _closest_texts(rem, [moment.summary for moment in found]) <= 0.95
    assert await _closest_texts(rem, [f"{moment.name}\n{moment.summary}" for moment in found]) <= 0.95
    assert await sql.fetchval("SELECT count(*) FROM edges WHERE origin = 'dream:affinity'") > 0
    sourced = "SELECT FROM statement_sources x WHERE x.statement_id = s.id"
    assert await sql.fetchval(f"SELECT count(*) FROM statements s WHERE NOT EXISTS ({sourced})") == 0

    memory = rem.memory("alice@example.com")
    for number in range(0, 50, 2):
        await memory.delete_session(ids[number], erase=number % 4 == 0)
    await dream(rem, alice, "moments", "affinity")
    await rem.index(user="alice@example.com")
    for number in range(0, 50, 2):
        # What was deleted and not erased may come back: it is still where it was, and nowhere else.
        beside = () if number % 4 == 0 else ("messages",)
        assert await tables_with(sql, marker(number), beside=beside) == []
        assert await tables_with(sql, str(ids[number]), beside=("messages", "sessions") if beside else ()) == []
    remembered = " ".join(moment.summary for moment in await moments(alice))
    kept = [number for number in range(1, 50, 2) if number % 10 not in (7, 9)]
    assert all(marker(number) in remembered for number in kept)
    assert "ficus" in remembered
    stood = await statements(sql)
    assert (await dream(rem, alice, "moments", "affinity", rescan=True)).statement_count == 0
    assert await statements(sql) == stood


async def test_what_is_said_twice_is_one_moment_with_both_sources(rem: Rem, alice: Store, sql: Sql) -> None:
    first = await talk(alice, "one", *_FICUS)
    await dream(rem, alice)
    second = await talk(alice, "two", *_FICUS, at=MARCH + _DAY)
    await dream(rem, alice)
    (moment,) = await moments(alice)
    assert moment.metadata["occurrences"] == 2
    assert set(moment.sources) == {f"session-{s}-msg-{index}" for s in (first, second) for index in range(2)}
    stood = await statements(sql)
    assert (await dream(rem, alice, rescan=True)).statement_count == 0
    assert await statements(sql) == stood

    memory = rem.memory("alice@example.com")
    await memory.delete_session(first, erase=True)
    await dream(rem, alice)
    (left,) = await moments(alice)
    assert left.source_session_id == second
    assert left.summary == moment.summary
    assert "occurrences" not in left.metadata
    await memory.delete_session(second, erase=True)
    await dream(rem, alice)
    assert await moments(alice) == []
    assert await tables_with(sql, "ficus") == []


async def test_the_second_source_may_go_first(rem: Rem, alice: Store) -> None:
    first = await talk(alice, "one", *_FICUS)
    second = await talk(alice, "two", *_FICUS, at=MARCH + _DAY)
    await dream(rem, alice)
    await rem.memory("alice@example.com").delete_session(second)
    await dream(rem, alice)
    (moment,) = await moments(alice)
    assert moment.source_session_id == first
    assert moment.sources == [f"session-{first}-msg-{index}" for index in range(2)]


async def test_a_repetition_that_grows_into_something_else_is_a_moment_of_its_own(rem: Rem, alice: Store) -> None:
    await talk(alice, "one", *_FICUS)
    await talk(alice, "two", *_FICUS, at=MARCH + _DAY)
    await dream(rem, alice)
    await talk(alice, "two", *_BOAT, at=MARCH + _DAY + timedelta(minutes=3), first=2)
    await dream(rem, alice)
    found = await moments(alice)
    assert [moment.source_session_id for moment in found] == [session_id("one"), session_id("two")]
    assert "Dacron" in found[1].summary


async def test_a_moment_that_grows_away_leaves_those_who_had_joined_it_remembered(rem: Rem, alice: Store) -> None:
    await talk(alice, "one", *_FICUS)
    await talk(alice, "two", *_FICUS, at=MARCH + _DAY)
    await dream(rem, alice)
    long = ("user: The sailmaker in Cowes quoted it, with reefing points and battens included in the 3,400 euros.",)
    await talk(alice, "one", *_BOAT, *long, at=MARCH + timedelta(minutes=3), first=2)
    await dream(rem, alice)
    found = await moments(alice)
    assert [moment.source_session_id for moment in found] == [session_id("one"), session_id("two")]
    assert found[1].summary.count("ficus") == 1
    assert (await dream(rem, alice, rescan=True)).statement_count == 0


async def test_a_repetition_of_what_its_owner_deleted_or_wrote_adds_nothing(rem: Rem, alice: Store) -> None:
    await talk(alice, "one", *_FICUS)
    await talk(alice, "two", *_FICUS, at=MARCH + _DAY)
    await dream(rem, alice)
    (moment,) = await moments(alice)
    await alice.delete(moment)
    await dream(rem, alice, rescan=True)
    assert await moments(alice) == []
    own = await alice.upsert(
        Moment(name="The mainsail", summary=_BOAT[0].removeprefix("user: "), starts_timestamp=MARCH)
    )
    await talk(alice, "three", *_BOAT, at=MARCH + 2 * _DAY)
    await dream(rem, alice)
    assert [found.id for found in await moments(alice)] == [own.id]


async def test_what_is_said_again_with_another_figure_has_the_latest_words(rem: Rem, alice: Store, sql: Sql) -> None:
    rent = "user: The landlord in Graz wants {} euros of monthly rent for the attic flat with the balcony."
    first = await talk(alice, "one", rent.format(810))
    second = await talk(alice, "two", rent.format(870), at=MARCH + _DAY)
    await dream(rem, alice)
    (moment,) = await moments(alice)
    assert "870" in moment.summary
    assert (moment.source_session_id, len(moment.sources)) == (first, 2)
    stood = await statements(sql)
    assert (await dream(rem, alice, rescan=True)).statement_count == 0
    assert await statements(sql) == stood
    memory = rem.memory("alice@example.com")
    await memory.delete_session(second, erase=True)
    await dream(rem, alice)
    assert ["810" in moment.summary for moment in await moments(alice)] == [True]
    assert await tables_with(sql, "870 euros") == []


async def test_the_same_thing_every_morning_in_one_conversation_is_one_moment(rem: Rem, alice: Store) -> None:
    for day in range(5):
        await talk(alice, "mornings", *_FICUS, at=MARCH + day * _DAY, first=2 * day)
        await dream(rem, alice)
    (moment,) = await moments(alice)
    assert len(moment.sources) == 10
    assert (moment.metadata["first_index"], moment.metadata["last_index"]) == (0, 1)
    assert (await dream(rem, alice, rescan=True)).statement_count == 0


async def test_a_note_and_a_conversation_may_say_the_same(rem: Rem, alice: Store) -> None:
    await talk(alice, "boat", *_BOAT)
    text = _BOAT[0].removeprefix("user: ")
    note = await alice.upsert(Resource(name="Sail", content=text, timestamp=MARCH + _DAY))
    await dream(rem, alice)
    (moment,) = await moments(alice)
    assert moment.metadata["occurrences"] == 2
    await rem.memory("alice@example.com").delete_session(session_id("boat"), erase=True)
    await dream(rem, alice)
    (left,) = await moments(alice)
    assert left.source_resource_ids == [note.id]


async def test_two_owners_may_say_the_same(rem: Rem, alice: Store, bob: Store) -> None:
    await talk(alice, "boat", *_BOAT)
    await talk(bob, "boat of bob", *_BOAT)
    await dream(rem, alice)
    await dream(rem, bob)
    assert len(await moments(alice)) == len(await moments(bob)) == 1


async def test_the_vector_of_a_dreamt_moment_is_that_of_what_it_tells(rem: Rem, alice: Store, sql: Sql) -> None:
    await talk(alice, "boat", *_BOAT)
    await alice.upsert(own := Moment(name="Regatta", summary="We came in third.", starts_timestamp=MARCH))
    await dream(rem, alice, "moments")
    await rem.index(user="alice@example.com")
    for moment in await moments(alice):
        given = moment.summary if moment.id != own.id else f"{moment.name}\n{moment.summary}"
        (vector,) = await rem._embedder.embed([given])
        alike = await sql.fetchval(
            "SELECT 1 - (embedding <=> $1::text::halfvec) FROM passages WHERE entity_id = $2",
            str([float(number) for number in vector]),
            moment.id,
        )
        assert alike > 0.999


async def test_what_has_lapsed_does_not_swallow_what_is_said_after_it(rem: Rem, alice: Store, sql: Sql) -> None:
    lapsing = await talk(alice, "one", *_BOAT)
    await talk(alice, "two", *_FICUS, at=MARCH + _DAY)
    soon = datetime.now(UTC) + timedelta(days=1)
    await expire(alice, [await alice.get(Session, lapsing)], soon)
    own = Moment(name="Leica", summary="The shutter of the Leica sticks at one thirtieth.", expires_at=soon)
    await alice.upsert(own)
    await dream(rem, alice)
    await rem.index(user="alice@example.com")
    # A day later; nothing was swept yet.
    for table in ("sessions", "messages", "moments"):
        await sql.execute(f"UPDATE {table} SET expires_at = now() - interval '1 hour' WHERE expires_at IS NOT NULL")
    later = await talk(alice, "three", *_BOAT, at=MARCH + 2 * _DAY)
    of_own = await talk(alice, "four", f"user: {own.summary}", at=MARCH + 3 * _DAY)
    await dream(rem, alice)
    found = {moment.source_session_id: moment for moment in await moments(alice)}
    assert set(found) == {session_id("two"), later, of_own}
    assert found[later].sources == [f"session-{later}-msg-0"]
    assert found[later].previous_moment_keys == [found[session_id("two")].key]
    assert (await dream(rem, alice)).run_id is None


async def test_a_moment_whose_source_lapsed_meanwhile_leaves_the_rest_remembered(
    rem: Rem, alice: Store, sql: Sql
) -> None:
    first = await talk(alice, "one", *_BOAT)
    second = await talk(alice, "two", *_BOAT, at=MARCH + _DAY)
    await dream(rem, alice)
    # As if it lapsed after the moment was found: without the trigger, the moment itself does not lapse with it.
    await sql.execute("SET session_replication_role = replica")
    await sql.execute("UPDATE messages SET expires_at = now() - interval '1 hour' WHERE session_id = $1", first)
    third = await talk(alice, "three", *_BOAT, at=MARCH + 2 * _DAY)
    await dream(rem, alice)
    (moment,) = await moments(alice)
    assert set(moment.sources) == {f"session-{second}-msg-0", f"session-{third}-msg-0"}
    assert (await dream(rem, alice)).run_id is None


async def test_what_its_owner_wrote_in_the_same_words_is_found_by_them(rem: Rem, alice: Store) -> None:
    name = (
        "Grandmother's hip operation at St. Mary's hospital, six weeks of physiotherapy and a wheelchair from the "
        "insurance company"
    )
    text = "The delivery of mangoes to our customer in Hanoi is late."
    own = await alice.upsert(Moment(name=name, summary=text, starts_timestamp=MARCH))
    await talk(alice, "mangoes", f"user: {text}", at=MARCH + 60 * _DAY)
    await dream(rem, alice)
    assert [moment.id for moment in await moments(alice)] == [own.id]
