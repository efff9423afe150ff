"""A message that is gone costs the stretch that it was said in, and leaves what a memory without it would have."""

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
from tests.dreaming.sample_sessions import MARCH, contents, dream, moments, session_id, statements, tables_with, talk

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
_DAYS, _OF_DAY = 14, 10
_SEEN = _DAYS * _OF_DAY - 1
_INTRODUCED, _CALLED, _MIDDLE = 14, 124, 66


def _lines() -> list[str]:
    """Some days of talk, each about something else, and every third about two things without a pause between them.
    Somebody is introduced once, and called by name long after."""
    lines = []
    for day in range(_DAYS):
        chance = random.Random(day)
        things = [chance.sample(_WORDS, 8), chance.sample(_WORDS, 8)]
        for number in range(_OF_DAY // 2):
            thing = things[number > 2 and day % 3 == 0]
            one, two, three, four = chance.sample(thing, 4)
            lines += [
                f"user: The {one} beside the {two} is for the {three}, and the {four} too.",
                f"assistant: So the {four} goes with the {one}, noted.",
            ]
    lines[_INTRODUCED] = "user: My colleague Sarah Chen <sarah.chen@acme.com> brings a ladder and a hammer for it."
    lines[_CALLED] = "user: Sarah Chen forgot the ladder and the hammer in the garage yesterday."
    return lines


async def _talk(store: Store, without: int | None = None) -> None:
    lines = _lines()
    for day in range(_DAYS):
        first, last = day * _OF_DAY, (day + 1) * _OF_DAY
        cut = without if without is not None and first <= without < last else last
        for start, end in ((first, cut), (cut + 1, last)):
            at = MARCH + timedelta(days=day, minutes=start)
            await talk(store, _NAME, *lines[start:end], at=at, first=start)


@asynccontextmanager
async def _never_said(index: int) -> AsyncIterator[list[tuple[Any, ...]]]:
    """What a memory has that never had a message."""
    async with fresh_database() as dsn, Rem.open(settings_for(dsn)) as rem:
        store = rem.store(_USER)
        await _talk(store, without=index)
        await dream(rem, store, *_DREAMS)
        connection = await asyncpg.connect(dsn)
        try:
            yield await _known(connection)
        finally:
            await connection.close()


async def _known(sql: Sql) -> list[tuple[Any, ...]]:
    edges = await sql.fetch(
        "SELECT e.src_type, e.rel_type, e.dst_key FROM rem.edges e WHERE e.src_type <> 'moments' ORDER BY 1, 2, 3"
    )
    rows = await sql.fetch(
        "SELECT o.key, o.content, o.extracted_data::text, o.sources FROM rem.ontologies o ORDER BY 1"
    )
    return [*await contents(sql), *map(tuple, edges), *map(tuple, rows)]


async def _message(store: Store, index: int) -> Message:
    (found,) = [one for one in await store.find(Message, limit=1000) if one.message_index == index]
    return found


@pytest.mark.parametrize(
    ("index", "erase"), [(0, False), (_INTRODUCED, True), (_MIDDLE, False), (_MIDDLE + 4, True), (_SEEN, False)]
)
async def test_what_is_left_is_as_if_it_had_never_been_said(
    rem: Rem, alice: Store, sql: Sql, index: int, erase: bool
) -> None:
    await _talk(alice)
    await dream(rem, alice, *_DREAMS)
    assert len(await moments(alice)) >= _DAYS
    all_said = await sql.fetchval("SELECT count(*) FROM statements WHERE dream = 'moments'")
    gone = await _message(alice, index)
    await (alice.erase(gone) if erase else alice.delete(gone))
    report = await dream(rem, alice, *_DREAMS)
    looked_at = report.changes["moments"].said + report.changes["moments"].unchanged
    assert 2 * looked_at < all_said
    async with _never_said(index) as fresh:
        assert await _known(sql) == fresh
    if erase:
        assert await tables_with(sql, f"-msg-{index}\\M") == []
    assert (await rem.dreamer().audit(alice.scope)).is_clean
    before = await statements(sql)
    assert (await dream(rem, alice, *_DREAMS)).changes == {}
    assert await statements(sql) == before
    assert (await dream(rem, alice, *_DREAMS, rescan=True)).statement_count == 0


async def test_a_message_that_comes_back_is_dreamt_on_with_the_rest(rem: Rem, alice: Store, sql: Sql) -> None:
    await _talk(alice)
    await dream(rem, alice, *_DREAMS)
    before = await _known(sql)
    gone = await _message(alice, _MIDDLE)
    await alice.delete(gone)
    assert await _known(sql) != before
    await alice.restore(Message, gone.id)
    await dream(rem, alice, *_DREAMS)
    assert await _known(sql) == before


async def test_a_night_without_news_looks_at_nothing(rem: Rem, alice: Store) -> None:
    await _talk(alice)
    assert (await dream(rem, alice, *_DREAMS)).statement_count > 0
    assert (await dream(rem, alice, *_DREAMS)).changes == {}


async def test_what_else_was_said_is_not_looked_at_again(rem: Rem, alice: Store, sql: Sql) -> None:
    await _talk(alice)
    await dream(rem, alice, "moments")
    marks = "SELECT again::text, seen_index FROM dream_progress WHERE source_id = $1 AND dream = 'moments'"
    assert tuple(await sql.fetchrow(marks, session_id(_NAME)) or ()) == ("{}", _SEEN)
    await alice.delete(await _message(alice, _MIDDLE))
    again, seen = await sql.fetchrow(marks, session_id(_NAME)) or ("", 0)
    assert (again, seen) == ("{[60,70)}", _SEEN)
    await dream(rem, alice, "moments")
    assert tuple(await sql.fetchrow(marks, session_id(_NAME)) or ()) == ("{}", _SEEN)
