"""Erasing a user removes the rows of that user from every table, and keeps the rows of all others."""

from __future__ import annotations

import asyncio
import os
import signal

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import DatabaseError, InvalidInputError, NotFoundError, RemError
from rem.forget.owned_tables import find_owned_tables
from rem.models import Resource, Role, User
from rem.sessions.message import NewMessage
from tests.dreams.sample_claims import store_note
from tests.forget.sample_user import create_sample_user
from tests.forget.text_traces import find_in_planner_stats, find_traces
from tests.rem_command import start_rem

_ALICE, _BOB = "alice@example.com", "bob@example.com"
_ALICE_MARKER, _BOB_MARKER = "xylographica", "quinquereme"


@pytest.fixture
async def two_users(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> tuple[Store, Store]:
    """Create Alice and Bob, each with rows in every table, and with a session shared with the other."""
    alice = await create_sample_user(rem, _ALICE, _ALICE_MARKER, sql)
    bob = await create_sample_user(rem, _BOB, _BOB_MARKER, sql)
    for owner, reader in ((_ALICE, _BOB), (_BOB, _ALICE)):
        (session,) = await rem.for_user(owner).sessions.list_sessions()
        await rem.for_user(owner).sessions.share_session(session.id, reader)
    indexed_note = await store_note(alice, f"{_ALICE_MARKER} passing", f"{_ALICE_MARKER} is indexed, and gone")
    await rem.index()
    await alice.delete(indexed_note)
    await store_note(alice, f"{_ALICE_MARKER} waits", f"{_ALICE_MARKER} is in the queue")
    return alice, bob


async def test_sample_user_has_rows_in_every_table(
    two_users: tuple[Store, Store], sql: asyncpg.Connection[asyncpg.Record], rem: Rem
) -> None:
    report = await rem.for_user(_ALICE).count_user_rows()
    assert [row.table for row in report.tables if row.before == 0] == [], "the tests below would prove nothing of these"
    assert len(await find_traces(sql, _ALICE_MARKER)) > 30


async def test_erase_removes_one_user_and_keeps_the_other(
    two_users: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    alice, _ = two_users
    bob_traces = await find_traces(sql, _BOB_MARKER)
    of_bob = {row.table: row.before for row in (await rem.for_user(_BOB).count_user_rows()).tables}
    report = await rem.for_user(_ALICE).erase_user()
    assert (report.is_applied, report.after, report.passes) == (True, 0, 1)
    assert report.before > 100
    await rem.index()
    assert await find_traces(sql, _ALICE_MARKER) == {}
    assert await find_traces(sql, str(alice.scope.user_id)) == {}
    assert await find_traces(sql, _BOB_MARKER) == bob_traces
    kept = {row.table: row.before for row in (await rem.for_user(_BOB).count_user_rows()).tables}
    assert kept.pop("rem.shared_sessions") == of_bob.pop("rem.shared_sessions") - 2, "both of them had Alice in them"
    changing = {"rem.kv_store", "rem.edges", "rem.search_queue", "rem.passage_totals", "rem.passage_total_deltas"}
    assert {name: kept[name] for name in kept if name not in changing} == {
        name: of_bob[name] for name in of_bob if name not in changing
    }
    assert (await rem.check_cache()).wrong_keys == 0
    assert (await rem.check_index()).unindexed_rows == 0


async def test_erase_resets_planner_stats(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    """Check also tables that are empty now, because Alice was the only user."""
    await create_sample_user(rem, _ALICE, _ALICE_MARKER, sql)
    await sql.execute("ANALYZE")
    assert {"rem.messages.content", "rem.kv_store.content_summary"} <= set(
        await find_in_planner_stats(sql, _ALICE_MARKER)
    )
    await rem.for_user(_ALICE).erase_user()
    assert await find_in_planner_stats(sql, _ALICE_MARKER) == []
    await create_sample_user(rem, _ALICE, _ALICE_MARKER, sql)
    await create_sample_user(rem, _BOB, _BOB_MARKER, sql)
    await sql.execute("ANALYZE")
    assert await find_in_planner_stats(sql, _ALICE_MARKER) != []
    await rem.for_user(_ALICE).erase_user()
    assert await find_in_planner_stats(sql, _ALICE_MARKER) == []
    assert "rem.messages.content" in await find_in_planner_stats(sql, _BOB_MARKER), (
        "the planner still knows the rows that are there"
    )


async def test_second_erase_changes_nothing_and_user_can_start_again(
    two_users: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await rem.for_user(_ALICE).erase_user()
    again = await rem.for_user(_ALICE).erase_user()
    assert (again.before, again.after) == (0, 0)
    new_store = await create_sample_user(rem, _ALICE, _ALICE_MARKER, sql)
    assert await new_store.count(Resource) > 1
    assert (await rem.for_user(_ALICE).query(f'SEARCH "{_ALICE_MARKER}" FROM resources')).count > 0


async def test_mentions_by_others_stay_and_are_counted(rem: Rem, alice: Store, bob: Store) -> None:
    await store_note(alice, "mine")
    await rem.for_user().store.upsert(User(name="Alice", email=_ALICE))
    await store_note(bob, "colleague", f"Alice can be reached at {_ALICE.upper()}.")
    await store_note(bob, "badge", f"Her id is {alice.scope.user_id}.")
    report = await rem.for_user(_ALICE).erase_user()
    assert report.mentions == {"users": 1, "resources": 2}
    assert await bob.count(Resource) == 2


async def test_erase_is_limited_to_one_tenant(rem: Rem, alice: Store) -> None:
    await store_note(alice, "mine")
    elsewhere = rem.for_user(_ALICE, tenant="elsewhere").store
    await store_note(elsewhere, "there")
    await rem.for_user(_ALICE).erase_user()
    assert await alice.count(Resource) == 0
    assert await elsewhere.count(Resource) == 1


async def test_count_user_changes_nothing(
    two_users: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    before = await find_traces(sql, _ALICE_MARKER)
    report = await rem.for_user(_ALICE).count_user_rows()
    assert (report.is_applied, report.before > 100) == (False, True)
    assert await find_traces(sql, _ALICE_MARKER) == before


@pytest.mark.parametrize("nobody", ["", "   "])
async def test_empty_user_is_rejected(rem: Rem, nobody: str) -> None:
    with pytest.raises(InvalidInputError, match="A user id has 1 to 255 characters"):
        await rem.for_user(nobody).erase_user()


async def test_shared_rows_are_not_erased_as_those_of_a_user(rem: Rem) -> None:
    with pytest.raises(InvalidInputError, match="Give the user to erase"):
        await rem.for_user().erase_user()


async def test_custom_table_is_erased(rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await sql.execute("CREATE TABLE rem.later (tenant_id text, user_id text, said text)")
    await sql.execute("CREATE TABLE rem.much_later (tenant_id text, owner text)")
    for table in ("later (tenant_id, user_id)", "much_later (tenant_id, owner)"):
        await sql.execute(f"INSERT INTO rem.{table} VALUES ('default', $1), ('default', 'bob')", alice.scope.user_id)
    report = await rem.for_user(_ALICE).erase_user()
    counts = {row.table: (row.before, row.after) for row in report.tables}
    assert (counts["rem.later"], counts["rem.much_later"]) == ((1, 0), (1, 0))
    assert await sql.fetchval("SELECT count(*) FROM rem.later") == 1


async def test_owner_of_every_table_is_known(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    """Fail for a new table without an owner: give it tenant_id and user_id, or list it in owned_tables.py."""
    tables, unknown = await find_owned_tables(sql)
    assert unknown == []
    suspicious = await sql.fetch(
        r"""
        SELECT table_schema || '.' || table_name AS table_name, array_agg(column_name::text) AS columns
        FROM information_schema.columns
        WHERE table_schema IN ('rem', 'rem_jobs') AND column_name ~ '(user|owner|email|person)'
        GROUP BY 1
        """
    )
    covered = {table.full_name for table in tables}
    # Every table with a column that may identify a user is covered.
    assert {row["table_name"] for row in suspicious} <= covered


async def test_table_without_known_owner_stops_erase(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await store_note(alice, "mine")
    await sql.execute("CREATE TABLE rem.mystery (secret text)")
    with pytest.raises(DatabaseError, match=r"rem\.mystery"):
        await rem.for_user(_ALICE).erase_user()
    assert await alice.count(Resource) == 1


async def test_rows_written_during_erase_are_erased_or_reported(
    two_users: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    memory = rem.for_user(_ALICE).sessions
    is_over = False

    async def write() -> None:
        number = 0
        while not is_over:
            number += 1
            session = await memory.create_session()
            try:
                await memory.append(session.id, [NewMessage(role=Role.USER, content=f"{_ALICE_MARKER} {number}")])
            except RemError:  # its session was just erased
                continue

    writer = asyncio.create_task(write())
    await asyncio.sleep(0.1)
    report = await rem.for_user(_ALICE).erase_user()
    is_over = True
    await writer
    assert report.passes > 1
    # The report counts the rows that were left. After the last write, nothing is left.
    assert (await rem.for_user(_ALICE).erase_user()).after == 0
    await rem.index()
    assert await find_traces(sql, _ALICE_MARKER) == {}


async def test_killed_erase_is_completed_by_the_next(
    two_users: tuple[Store, Store], rem: Rem, dsn: str, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    # A lock on one of the last tables stops the erasure in the middle.
    async with sql.transaction():
        await sql.execute("LOCK TABLE rem.search_queue IN ACCESS EXCLUSIVE MODE")
        process = start_rem("erase-user", _ALICE, "--yes", settings={"POSTGRES__CONNECTION_STRING": dsn})
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(30):
            while not await sql.fetchval(waiting):
                # Outside a transaction, because a transaction would always see the same activity.
                await sql.execute("SELECT pg_stat_clear_snapshot()")
                await asyncio.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(await find_traces(sql, _ALICE_MARKER)) > 30
    report = await rem.for_user(_ALICE).erase_user()
    assert report.after == 0
    await rem.index()
    assert await find_traces(sql, _ALICE_MARKER) == {}


async def test_clone_of_a_shared_session_stays_and_forgets_its_source(rem: Rem) -> None:
    alice, bob = rem.for_user(_ALICE).sessions, rem.for_user(_BOB).sessions
    session = await alice.create_session(name="The launch")
    await alice.append(session.id, [NewMessage(role=Role.USER, content="It is on Friday.")])
    await alice.share_session(session.id, _BOB)
    clone = await bob.clone_session(session.id)
    other = await bob.create_session(metadata={"cloned_from": "elsewhere"})
    assert clone.metadata["cloned_from"] == str(session.id)
    await rem.for_user(_ALICE).erase_user()
    kept = await bob.get_session(clone.id)
    assert [message.content for message in await bob.get_messages(clone.id)] == ["It is on Friday."]
    assert "cloned_from" not in kept.metadata
    assert (await bob.get_session(other.id)).metadata == {"cloned_from": "elsewhere"}
    assert await bob.list_shared_sessions() == []


async def test_clone_stays_when_sharing_is_revoked(rem: Rem) -> None:
    alice, bob = rem.for_user(_ALICE).sessions, rem.for_user(_BOB).sessions
    session = await alice.create_session()
    await alice.append(session.id, [NewMessage(role=Role.USER, content="Hello")])
    await alice.share_session(session.id, _BOB)
    clone = await bob.clone_session(session.id)
    assert await alice.unshare_session(session.id, _BOB) == 1
    with pytest.raises(NotFoundError):
        await bob.get_session(session.id)
    await alice.delete_session(session.id, erase=True)
    assert [message.content for message in await bob.get_messages(clone.id)] == ["Hello"]
