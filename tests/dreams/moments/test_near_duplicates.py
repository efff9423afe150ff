"""No two moments of an owner say the same, and a repeated moment stays while one of its sources exists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import asyncpg

from rem.app import Rem
from rem.db.store import Store
from rem.forget.expiry import expire
from rem.models import Moment, Resource, Session
from tests.dreams.sample_sessions import (
    MARCH,
    fetch_moments_content,
    fetch_statement_rows,
    find_tables_with,
    list_moments,
    make_marker,
    make_session_id,
    run_dreams,
    store_fifty_sessions,
    store_session,
)

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_DAY = timedelta(days=1)
_FICUS = ("user: I water the ficus on Fridays.", "assistant: Good to know that the ficus gets its water.")
_BOAT = ("user: Our boat Albatross needs a new mainsail of Dacron for 3,400 euros.",)


async def _find_highest_cosine(sql: Sql) -> float:
    """Return the highest cosine between the passages of two moments."""
    value = await sql.fetchval(
        """SELECT max(1 - (a.embedding <=> b.embedding)) FROM rem.passages a JOIN rem.passages b
           ON a.owner = b.owner AND a.id < b.id AND a.entity_id <> b.entity_id
           WHERE a.entity_type = 'moments' AND b.entity_type = 'moments'"""
    )
    return float(value or 0)


async def _find_highest_text_cosine(rem: Rem, texts: list[str]) -> float:
    vectors = await rem._embedder.embed(texts)
    cosines = vectors @ vectors.T
    count = len(cosines)
    return max(float(cosines[i, j]) for i in range(count) for j in range(i))


async def test_ten_runs_over_fifty_sessions_then_half_of_them_deleted(rem: Rem, alice: Store, sql: Sql) -> None:
    ids = await store_fifty_sessions(alice)
    await run_dreams(rem, alice, "moments", "affinity")
    content, rows = await fetch_moments_content(sql), await fetch_statement_rows(sql)
    for run in range(9):
        report = await run_dreams(rem, alice, "moments", "affinity", rescan=run % 4 == 3)
        assert (report.run_id, report.statement_count) == (None, 0)
    assert await fetch_moments_content(sql) == content
    assert await fetch_statement_rows(sql) == rows
    found = await list_moments(alice)
    assert 20 <= len(found) <= 45
    assert len({moment.summary for moment in found}) == len({moment.name for moment in found}) == len(found)
    await rem.for_user("alice@example.com").index()
    assert await _find_highest_cosine(sql) <= 0.95
    assert await _find_highest_text_cosine(rem, [moment.summary for moment in found]) <= 0.95
    assert await _find_highest_text_cosine(rem, [f"{moment.name}\n{moment.summary}" for moment in found]) <= 0.95
    assert await sql.fetchval("SELECT count(*) FROM edges WHERE origin = 'dream:affinity'") > 0
    sourced = "SELECT FROM statement_sources x WHERE x.statement_id = s.id"
    assert await sql.fetchval(f"SELECT count(*) FROM statements s WHERE NOT EXISTS ({sourced})") == 0

    memory = rem.for_user("alice@example.com").sessions
    for number in range(0, 50, 2):
        await memory.delete_session(ids[number], erase=number % 4 == 0)
    await run_dreams(rem, alice, "moments", "affinity")
    await rem.for_user("alice@example.com").index()
    for number in range(0, 50, 2):
        # A deleted session can be restored, so its messages stay; nothing derived from it does.
        beside = () if number % 4 == 0 else ("messages",)
        assert await find_tables_with(sql, make_marker(number), beside=beside) == []
        assert await find_tables_with(sql, str(ids[number]), beside=("messages", "sessions") if beside else ()) == []
    remembered = " ".join(moment.summary for moment in await list_moments(alice))
    kept = [number for number in range(1, 50, 2) if number % 10 not in (7, 9)]
    assert all(make_marker(number) in remembered for number in kept)
    assert "ficus" in remembered
    rows = await fetch_statement_rows(sql)
    assert (await run_dreams(rem, alice, "moments", "affinity", rescan=True)).statement_count == 0
    assert await fetch_statement_rows(sql) == rows


async def test_repeated_message_is_one_moment_with_both_sources(rem: Rem, alice: Store, sql: Sql) -> None:
    first = await store_session(alice, "one", *_FICUS)
    await run_dreams(rem, alice)
    second = await store_session(alice, "two", *_FICUS, at=MARCH + _DAY)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert moment.metadata["occurrences"] == 2
    assert set(moment.sources) == {f"session-{s}-msg-0" for s in (first, second)}
    rows = await fetch_statement_rows(sql)
    assert (await run_dreams(rem, alice, rescan=True)).statement_count == 0
    assert await fetch_statement_rows(sql) == rows

    memory = rem.for_user("alice@example.com").sessions
    await memory.delete_session(first, erase=True)
    await run_dreams(rem, alice)
    (left,) = await list_moments(alice)
    assert left.source_session_id == second
    assert left.summary == moment.summary
    assert "occurrences" not in left.metadata
    await memory.delete_session(second, erase=True)
    await run_dreams(rem, alice)
    assert await list_moments(alice) == []
    assert await find_tables_with(sql, "ficus") == []


async def test_moment_survives_deletion_of_the_second_source(rem: Rem, alice: Store) -> None:
    first = await store_session(alice, "one", *_FICUS)
    second = await store_session(alice, "two", *_FICUS, at=MARCH + _DAY)
    await run_dreams(rem, alice)
    await rem.for_user("alice@example.com").sessions.delete_session(second)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert moment.source_session_id == first
    assert moment.sources == [f"session-{first}-msg-0"]


async def test_repetition_that_changes_becomes_its_own_moment(rem: Rem, alice: Store) -> None:
    await store_session(alice, "one", *_FICUS)
    await store_session(alice, "two", *_FICUS, at=MARCH + _DAY)
    await run_dreams(rem, alice)
    await store_session(alice, "two", *_BOAT, at=MARCH + _DAY + timedelta(minutes=3), first=2)
    await run_dreams(rem, alice)
    found = await list_moments(alice)
    assert [moment.source_session_id for moment in found] == [make_session_id("one"), make_session_id("two")]
    assert "Dacron" in found[1].summary


async def test_joined_sources_stay_remembered_when_the_moment_changes(rem: Rem, alice: Store) -> None:
    await store_session(alice, "one", *_FICUS)
    await store_session(alice, "two", *_FICUS, at=MARCH + _DAY)
    await run_dreams(rem, alice)
    long = ("user: The sailmaker in Cowes quoted it, with reefing points and battens included in the 3,400 euros.",)
    await store_session(alice, "one", *_BOAT, *long, at=MARCH + timedelta(minutes=3), first=2)
    await run_dreams(rem, alice)
    found = await list_moments(alice)
    assert [moment.source_session_id for moment in found] == [make_session_id("one"), make_session_id("two")]
    assert found[1].summary.count("ficus") == 1
    assert (await run_dreams(rem, alice, rescan=True)).statement_count == 0


async def test_repetition_of_deleted_or_own_moment_adds_nothing(rem: Rem, alice: Store) -> None:
    await store_session(alice, "one", *_FICUS)
    await store_session(alice, "two", *_FICUS, at=MARCH + _DAY)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    await alice.delete(moment)
    await run_dreams(rem, alice, rescan=True)
    assert await list_moments(alice) == []
    own = await alice.upsert(
        Moment(name="The mainsail", summary=_BOAT[0].removeprefix("user: "), starts_timestamp=MARCH)
    )
    await store_session(alice, "three", *_BOAT, at=MARCH + 2 * _DAY)
    await run_dreams(rem, alice)
    assert [found.id for found in await list_moments(alice)] == [own.id]


async def test_repetition_with_another_number_has_the_latest_wording(rem: Rem, alice: Store, sql: Sql) -> None:
    rent = "user: The landlord in Graz wants {} euros of monthly rent for the attic flat with the balcony."
    first = await store_session(alice, "one", rent.format(810))
    second = await store_session(alice, "two", rent.format(870), at=MARCH + _DAY)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert "870" in moment.summary
    assert (moment.source_session_id, len(moment.sources)) == (first, 2)
    rows = await fetch_statement_rows(sql)
    assert (await run_dreams(rem, alice, rescan=True)).statement_count == 0
    assert await fetch_statement_rows(sql) == rows
    memory = rem.for_user("alice@example.com").sessions
    await memory.delete_session(second, erase=True)
    await run_dreams(rem, alice)
    assert ["810" in moment.summary for moment in await list_moments(alice)] == [True]
    assert await find_tables_with(sql, "870 euros") == []


async def test_daily_repetition_in_one_session_is_one_moment(rem: Rem, alice: Store) -> None:
    for day in range(5):
        await store_session(alice, "mornings", *_FICUS, at=MARCH + day * _DAY, first=2 * day)
        await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert len(moment.sources) == 5
    assert (moment.metadata["first_index"], moment.metadata["last_index"]) == (0, 0)
    assert (await run_dreams(rem, alice, rescan=True)).statement_count == 0


async def test_note_and_session_share_one_moment(rem: Rem, alice: Store) -> None:
    await store_session(alice, "boat", *_BOAT)
    text = _BOAT[0].removeprefix("user: ")
    note = await alice.upsert(Resource(name="Sail", content=text, timestamp=MARCH + _DAY))
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert moment.metadata["occurrences"] == 2
    await rem.for_user("alice@example.com").sessions.delete_session(make_session_id("boat"), erase=True)
    await run_dreams(rem, alice)
    (left,) = await list_moments(alice)
    assert left.source_resource_ids == [note.id]


async def test_two_owners_have_separate_moments(rem: Rem, alice: Store, bob: Store) -> None:
    await store_session(alice, "boat", *_BOAT)
    await store_session(bob, "boat of bob", *_BOAT)
    await run_dreams(rem, alice)
    await run_dreams(rem, bob)
    assert len(await list_moments(alice)) == len(await list_moments(bob)) == 1


async def test_vector_of_derived_moment_is_that_of_its_summary(rem: Rem, alice: Store, sql: Sql) -> None:
    await store_session(alice, "boat", *_BOAT)
    await alice.upsert(own := Moment(name="Regatta", summary="We came in third.", starts_timestamp=MARCH))
    await run_dreams(rem, alice, "moments")
    await rem.for_user("alice@example.com").index()
    for moment in await list_moments(alice):
        given = moment.summary if moment.id != own.id else f"{moment.name}\n{moment.summary}"
        (vector,) = await rem._embedder.embed([given])
        cosine = await sql.fetchval(
            "SELECT 1 - (embedding <=> $1::text::halfvec) FROM passages WHERE entity_id = $2",
            str([float(number) for number in vector]),
            moment.id,
        )
        assert cosine > 0.999


async def test_expired_moment_does_not_absorb_later_messages(rem: Rem, alice: Store, sql: Sql) -> None:
    expiring = await store_session(alice, "one", *_BOAT)
    await store_session(alice, "two", *_FICUS, at=MARCH + _DAY)
    soon = datetime.now(UTC) + timedelta(days=1)
    await expire(alice, [await alice.get(Session, expiring)], soon)
    own = Moment(name="Leica", summary="The shutter of the Leica sticks at one thirtieth.", expires_at=soon)
    await alice.upsert(own)
    await run_dreams(rem, alice)
    await rem.for_user("alice@example.com").index()
    # A day later, before the sweep.
    for table in ("sessions", "messages", "moments"):
        await sql.execute(f"UPDATE {table} SET expires_at = now() - interval '1 hour' WHERE expires_at IS NOT NULL")
    later = await store_session(alice, "three", *_BOAT, at=MARCH + 2 * _DAY)
    of_own = await store_session(alice, "four", f"user: {own.summary}", at=MARCH + 3 * _DAY)
    await run_dreams(rem, alice)
    found = {moment.source_session_id: moment for moment in await list_moments(alice)}
    assert set(found) == {make_session_id("two"), later, of_own}
    assert found[later].sources == [f"session-{later}-msg-0"]
    assert found[later].previous_moment_keys == [found[make_session_id("two")].key]
    assert (await run_dreams(rem, alice)).run_id is None


async def test_other_sources_are_remembered_after_one_expired(rem: Rem, alice: Store, sql: Sql) -> None:
    first = await store_session(alice, "one", *_BOAT)
    second = await store_session(alice, "two", *_BOAT, at=MARCH + _DAY)
    await run_dreams(rem, alice)
    # As if it expired after the moment was read: without the trigger, the moment does not expire with it.
    await sql.execute("SET session_replication_role = replica")
    await sql.execute("UPDATE messages SET expires_at = now() - interval '1 hour' WHERE session_id = $1", first)
    third = await store_session(alice, "three", *_BOAT, at=MARCH + 2 * _DAY)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert set(moment.sources) == {f"session-{second}-msg-0", f"session-{third}-msg-0"}
    assert (await run_dreams(rem, alice)).run_id is None


async def test_own_moment_with_long_name_is_found_by_its_summary(rem: Rem, alice: Store) -> None:
    name = (
        "Grandmother's hip operation at St. Mary's hospital, six weeks of physiotherapy and a wheelchair from the "
        "insurance company"
    )
    text = "The delivery of mangoes to our customer in Hanoi is late."
    own = await alice.upsert(Moment(name=name, summary=text, starts_timestamp=MARCH))
    await store_session(alice, "mangoes", f"user: {text}", at=MARCH + 60 * _DAY)
    await run_dreams(rem, alice)
    assert [moment.id for moment in await list_moments(alice)] == [own.id]
