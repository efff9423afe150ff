"""A user is erased: nothing is left, which is proved for every table, and everybody else keeps everything."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import DatabaseError, InvalidInputError, RemError
from rem.forgetting.owned_tables import find_owned_tables
from rem.memory.message import NewMessage
from rem.models import Resource, Role, User
from tests.dreaming.sample_claims import note
from tests.forgetting.sample_user import live
from tests.forgetting.text_traces import sampled, traces
from tests.rem_command import REM, REPOSITORY, environment

_ALICE, _BOB = "alice@example.com", "bob@example.com"
_HERS, _HIS = "xylographica", "quinquereme"


@pytest.fixture
async def lives(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> tuple[Store, Store]:
    """Alice and Bob, both with something everywhere, and something of each other."""
    alice = await live(rem, _ALICE, _HERS, sql)
    bob = await live(rem, _BOB, _HIS, sql)
    for owner, reader in ((_ALICE, _BOB), (_BOB, _ALICE)):
        (session,) = await rem.memory(owner).list_sessions()
        await rem.memory(owner).share_session(session.id, reader)
    passing = await note(alice, f"{_HERS} passing", f"{_HERS} is indexed, and gone")
    await rem.index(everyone=True)
    await alice.delete(passing)
    await note(alice, f"{_HERS} waits", f"{_HERS} is in the queue")
    return alice, bob


async def test_every_table_has_something_of_a_user(
    lives: tuple[Store, Store], sql: asyncpg.Connection[asyncpg.Record], rem: Rem
) -> None:
    report = await rem.count_user(_ALICE)
    assert [row.table for row in report.tables if row.before == 0] == [], "the tests below would prove nothing of these"
    assert len(await traces(sql, _HERS)) > 30


async def test_nothing_is_left_of_who_is_erased_and_everything_of_the_other(
    lives: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    alice, _ = lives
    his = await traces(sql, _HIS)
    of_bob = {row.table: row.before for row in (await rem.count_user(_BOB)).tables}
    report = await rem.erase_user(_ALICE)
    assert (report.is_applied, report.after, report.passes) == (True, 0, 1)
    assert report.before > 100
    await rem.index(everyone=True)
    assert await traces(sql, _HERS) == {}
    assert await traces(sql, str(alice.scope.user_id)) == {}
    assert await traces(sql, _HIS) == his
    kept = {row.table: row.before for row in (await rem.count_user(_BOB)).tables}
    assert kept.pop("rem.shared_sessions") == of_bob.pop("rem.shared_sessions") - 2, "both of them had Alice in them"
    changing = {"rem.kv_store", "rem.edges", "rem.search_queue", "rem.passage_totals", "rem.passage_total_deltas"}
    assert {name: kept[name] for name in kept if name not in changing} == {
        name: of_bob[name] for name in of_bob if name not in changing
    }
    assert (await rem.check_cache()).wrong_keys == 0
    assert (await rem.check_index()).forgotten == 0


async def test_the_planner_has_kept_nothing_of_who_is_erased(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    """Also of tables that have no row any more: Alice was the only one."""
    await live(rem, _ALICE, _HERS, sql)
    await sql.execute("ANALYZE")
    assert {"rem.messages.content", "rem.kv_store.content_summary"} <= set(await sampled(sql, _HERS))
    await rem.erase_user(_ALICE)
    assert await sampled(sql, _HERS) == []
    await live(rem, _ALICE, _HERS, sql)
    await live(rem, _BOB, _HIS, sql)
    await sql.execute("ANALYZE")
    assert await sampled(sql, _HERS) != []
    await rem.erase_user(_ALICE)
    assert await sampled(sql, _HERS) == []
    assert "rem.messages.content" in await sampled(sql, _HIS), "the planner still knows the rows that are there"


async def test_erasing_again_changes_nothing_and_the_user_can_start_anew(
    lives: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await rem.erase_user(_ALICE)
    again = await rem.erase_user(_ALICE)
    assert (again.before, again.after) == (0, 0)
    anew = await live(rem, _ALICE, _HERS, sql)
    assert await anew.count(Resource) > 1
    assert (await rem.query(f'SEARCH "{_HERS}" FROM resources', user=_ALICE)).count > 0


async def test_what_others_and_the_tenant_say_of_the_user_stays_and_is_counted(
    rem: Rem, alice: Store, bob: Store
) -> None:
    await note(alice, "mine")
    await rem.store().upsert(User(name="Alice", email=_ALICE))
    await note(bob, "colleague", f"Alice can be reached at {_ALICE.upper()}.")
    await note(bob, "badge", f"Her id is {alice.scope.user_id}.")
    report = await rem.erase_user(_ALICE)
    assert report.mentions == {"users": 1, "resources": 2}
    assert await bob.count(Resource) == 2


async def test_the_same_user_in_another_tenant_is_somebody_else(rem: Rem, alice: Store) -> None:
    await note(alice, "mine")
    elsewhere = rem.store(_ALICE, tenant="elsewhere")
    await note(elsewhere, "there")
    await rem.erase_user(_ALICE)
    assert await alice.count(Resource) == 0
    assert await elsewhere.count(Resource) == 1


async def test_looking_changes_nothing(
    lives: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    before = await traces(sql, _HERS)
    report = await rem.count_user(_ALICE)
    assert (report.is_applied, report.before > 100) == (False, True)
    assert await traces(sql, _HERS) == before


@pytest.mark.parametrize("nobody", ["", "   "])
async def test_nobody_cannot_be_erased(rem: Rem, nobody: str) -> None:
    with pytest.raises(InvalidInputError, match="Say who"):
        await rem.erase_user(nobody)


async def test_a_table_that_is_made_later_is_emptied_too(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await sql.execute("CREATE TABLE rem.later (tenant_id text, user_id text, said text)")
    await sql.execute("CREATE TABLE rem.much_later (tenant_id text, owner text)")
    for table in ("later (tenant_id, user_id)", "much_later (tenant_id, owner)"):
        await sql.execute(f"INSERT INTO rem.{table} VALUES ('default', $1), ('default', 'bob')", alice.scope.user_id)
    report = await rem.erase_user(_ALICE)
    counts = {row.table: (row.before, row.after) for row in report.tables}
    assert (counts["rem.later"], counts["rem.much_later"]) == ((1, 0), (1, 0))
    assert await sql.fetchval("SELECT count(*) FROM rem.later") == 1


async def test_every_table_is_accounted_for(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    """If this fails for a new table: give it tenant_id and user_id, or say in owned_tables.py why it holds nothing."""
    tables, unknown = await find_owned_tables(sql)
    assert unknown == []
    suspicious = await sql.fetch(
        r"""
        SELECT table_schema || '.' || table_name AS place, array_agg(column_name::text) AS columns
        FROM information_schema.columns
        WHERE table_schema IN ('rem', 'rem_jobs') AND column_name ~ '(user|owner|email|person)'
        GROUP BY 1
        """
    )
    covered = {table.full_name for table in tables}
    # Whom a conversation was with, in the user's own rows; whether the last job's owner is known.
    assert {row["place"] for row in suspicious} <= covered


async def test_a_table_of_which_nobody_knows_whose_it_is_stops_the_proof(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await note(alice, "mine")
    await sql.execute("CREATE TABLE rem.mystery (secret text)")
    with pytest.raises(DatabaseError, match=r"rem\.mystery"):
        await rem.erase_user(_ALICE)
    assert await alice.count(Resource) == 1


async def test_what_the_user_writes_meanwhile_is_erased_too_or_reported(
    lives: tuple[Store, Store], rem: Rem, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    memory = rem.memory(_ALICE)
    is_over = False

    async def write() -> None:
        number = 0
        while not is_over:
            number += 1
            session = await memory.create_session()
            try:
                await memory.append(session.id, [NewMessage(role=Role.USER, content=f"{_HERS} {number}")])
            except RemError:  # its session was erased under it
                continue

    writer = asyncio.create_task(write())
    await asyncio.sleep(0.1)
    report = await rem.erase_user(_ALICE)
    is_over = True
    await writer
    assert report.passes > 1
    # It says what it saw; when nobody writes any more, nothing is left.
    assert (await rem.erase_user(_ALICE)).after == 0
    await rem.index(everyone=True)
    assert await traces(sql, _HERS) == {}


async def test_an_erasure_that_is_killed_is_done_by_the_next_one(
    lives: tuple[Store, Store], rem: Rem, dsn: str, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    # Somebody holds one of the last tables, so that the erasure stops in its middle.
    async with sql.transaction():
        await sql.execute("LOCK TABLE rem.search_queue IN ACCESS EXCLUSIVE MODE")
        process = subprocess.Popen(
            [str(REM), "erase-user", _ALICE, "--yes"],
            env=environment({"POSTGRES__CONNECTION_STRING": dsn}),
            cwd=REPOSITORY / "tests",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(30):
            while not await sql.fetchval(waiting):
                # Inside a transaction it would be told the same for ever.
                await sql.execute("SELECT pg_stat_clear_snapshot()")
                await asyncio.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(await traces(sql, _HERS)) > 30
    report = await rem.erase_user(_ALICE)
    assert report.after == 0
    await rem.index(everyone=True)
    assert await traces(sql, _HERS) == {}
