"""After a message is deleted, only the messages around it are read again."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.models import Message
from tests.conftest import fresh_database, settings_for
from tests.dreams.sample_sessions import (
    MARCH,
    fetch_moments_content,
    fetch_statement_rows,
    find_tables_with,
    list_moments,
    make_session_id,
    run_dreams,
    store_session,
)

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_USER = "alice@example.com"
_NAME = "endless"
_DREAMS = ("entities", "moments", "affinity", "profiles")
_THINGS = (
    "greenhouse tomatoes blight spray marathon trainers kilometres harbour mainsail sailmaker violin concerto kitchen "
    "plumber gasket cupboard telescope comet observatory filter bakery oven apprentice ledger invoice auditor beehive "
    "queen swarm orchard cider press glacier crampon ridge theatre curtain prompter compiler parser linker vineyard "
    "barrel cork choir organ hymn bicycle chain saddle notary deed seal falcon glove perch reactor rod turbine chimney "
    "soot brick almanac moon tide cathedral nave spire aquarium coral pump tractor plough furrow sculpture chisel"
)
_WORDS = _THINGS.split()
_DAYS, _MESSAGES_PER_DAY = 14, 10
_LAST_INDEX = _DAYS * _MESSAGES_PER_DAY - 1
_INTRODUCED, _CALLED, _MIDDLE = 14, 124, 66


def _make_lines() -> list[str]:
    """Return the lines of some days, each about another topic, every third about two topics without a pause.

    A person is introduced once, and named again long after.
    """
    lines = []
    for day in range(_DAYS):
        chance = random.Random(day)
        things = [chance.sample(_WORDS, 8), chance.sample(_WORDS, 8)]
        for number in range(_MESSAGES_PER_DAY // 2):
            thing = things[number > 2 and day % 3 == 0]
            one, two, three, four = chance.sample(thing, 4)
            lines += [
                f"user: The {one} beside the {two} is for the {three}, and the {four} too.",
                f"assistant: So the {four} goes with the {one}, noted.",
            ]
    lines[_INTRODUCED] = "user: My colleague Sarah Chen <sarah.chen@acme.com> brings a ladder and a hammer for it."
    lines[_CALLED] = "user: Sarah Chen forgot the ladder and the hammer in the garage yesterday."
    return lines


async def _store_messages(store: Store, without: int | None = None) -> None:
    lines = _make_lines()
    for day in range(_DAYS):
        first, last = day * _MESSAGES_PER_DAY, (day + 1) * _MESSAGES_PER_DAY
        cut = without if without is not None and first <= without < last else last
        for start, end in ((first, cut), (cut + 1, last)):
            at = MARCH + timedelta(days=day, minutes=start)
            await store_session(store, _NAME, *lines[start:end], at=at, first=start)


@asynccontextmanager
async def _memory_without(index: int) -> AsyncIterator[list[tuple[Any, ...]]]:
    """Yield the derived rows of a memory that never had a message."""
    async with fresh_database() as dsn, Rem.open(settings_for(dsn)) as rem:
        store = rem.for_user(_USER).store
        await _store_messages(store, without=index)
        await run_dreams(rem, store, *_DREAMS)
        connection = await asyncpg.connect(dsn)
        try:
            yield await _fetch_derived(connection)
        finally:
            await connection.close()


async def _fetch_derived(sql: Sql) -> list[tuple[Any, ...]]:
    edges = await sql.fetch(
        "SELECT e.src_type, e.rel_type, e.dst_key FROM rem.edges e WHERE e.src_type <> 'moments' ORDER BY 1, 2, 3"
    )
    rows = await sql.fetch(
        "SELECT o.key, o.content, o.extracted_data::text, o.sources FROM rem.ontologies o ORDER BY 1"
    )
    return [*await fetch_moments_content(sql), *map(tuple, edges), *map(tuple, rows)]


async def _get_message(store: Store, index: int) -> Message:
    messages = await store.find(Message, limit=1000)
    return next(message for message in messages if message.message_index == index)


@pytest.mark.parametrize(
    ("index", "erase"),
    [(0, False), (_INTRODUCED, True), (_MIDDLE, False), (_MIDDLE + 4, True), (_LAST_INDEX - 1, False)],
)
async def test_memory_without_a_message_equals_memory_that_never_had_it(
    rem: Rem, alice: Store, sql: Sql, index: int, erase: bool
) -> None:
    await _store_messages(alice)
    await run_dreams(rem, alice, *_DREAMS)
    assert len(await list_moments(alice)) >= _DAYS
    all_statements = await sql.fetchval("SELECT count(*) FROM statements WHERE dream = 'moments'")
    message = await _get_message(alice, index)
    await (alice.erase(message) if erase else alice.delete(message))
    report = await run_dreams(rem, alice, *_DREAMS)
    read = report.changes["moments"].said + report.changes["moments"].unchanged
    assert 2 * read < all_statements
    async with _memory_without(index) as fresh:
        assert await _fetch_derived(sql) == fresh
    if erase:
        assert await find_tables_with(sql, f"-msg-{index}\\M") == []
    assert (await rem.dreamer().audit(alice.scope)).is_clean
    before = await fetch_statement_rows(sql)
    assert (await run_dreams(rem, alice, *_DREAMS)).changes == {}
    assert await fetch_statement_rows(sql) == before
    assert (await run_dreams(rem, alice, *_DREAMS, rescan=True)).statement_count == 0


async def test_restored_message_restores_its_statements(rem: Rem, alice: Store, sql: Sql) -> None:
    await _store_messages(alice)
    await run_dreams(rem, alice, *_DREAMS)
    before = await _fetch_derived(sql)
    message = await _get_message(alice, _MIDDLE)
    await alice.delete(message)
    assert await _fetch_derived(sql) != before
    await alice.restore(Message, message.id)
    await run_dreams(rem, alice, *_DREAMS)
    assert await _fetch_derived(sql) == before


async def test_run_without_new_messages_changes_nothing(rem: Rem, alice: Store) -> None:
    await _store_messages(alice)
    assert (await run_dreams(rem, alice, *_DREAMS)).statement_count > 0
    assert (await run_dreams(rem, alice, *_DREAMS)).changes == {}


async def test_only_messages_around_the_deleted_one_are_read_again(rem: Rem, alice: Store, sql: Sql) -> None:
    await _store_messages(alice)
    await run_dreams(rem, alice, "moments")
    progress = "SELECT again::text, seen_index FROM dream_progress WHERE source_id = $1 AND dream = 'moments'"
    assert tuple(await sql.fetchrow(progress, make_session_id(_NAME)) or ()) == ("{}", _LAST_INDEX)
    await alice.delete(await _get_message(alice, _MIDDLE))
    ranges, seen_index = await sql.fetchrow(progress, make_session_id(_NAME)) or ("", 0)
    assert (ranges, seen_index) == ("{[60,61),[62,63),[64,65),[66,67),[68,69)}", _LAST_INDEX)
    await run_dreams(rem, alice, "moments")
    assert tuple(await sql.fetchrow(progress, make_session_id(_NAME)) or ()) == ("{}", _LAST_INDEX)
