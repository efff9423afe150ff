"""What lapses: nothing finds it from then on, and it takes along what it is made of."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import DeletedError, InvalidInputError, NotFoundError
from rem.forgetting.expiry import expire, parse_duration, parse_expiry, parse_time
from rem.memory.manager import MemoryManager
from rem.memory.message import NewMessage
from rem.models import Edge, File, Message, Ontology, Resource, Role, Session
from tests.dreaming.sample_claims import moment, moments, night_for, note, ref
from tests.dreaming.sample_sessions import talk

_SOON = timedelta(seconds=0.8)


def soon() -> datetime:
    return datetime.now(UTC) + _SOON


def later() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)


async def until_lapsed() -> None:
    await asyncio.sleep(_SOON.total_seconds() + 0.1)


def said(content: str) -> NewMessage:
    return NewMessage(role=Role.USER, content=content)


@pytest.fixture
def memory(rem: Rem) -> MemoryManager:
    return rem.memory("alice@example.com")


@pytest.fixture
async def session(memory: MemoryManager) -> Session:
    made = await memory.create_session(name="Trip to Rome")
    await memory.append(made.id, [said("The hotel is called Zanzibar."), said("It is near the station.")])
    return await memory.get_session(made.id)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2_592_000), ("12h", 43_200), ("45 min", 2700), ("1w 2d", 777_600), ("1Y", 31_536_000)]
)
def test_a_span_of_time_is_written_as_people_do(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "30", "d", "3 fortnights", "0d", "-1d", "99999y", "1d or so"])
def test_what_is_no_span_says_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"span of time|lapses"):
        parse_duration(text)


def test_a_date_is_the_beginning_of_the_day_in_utc() -> None:
    assert parse_time("2026-12-01") == datetime(2026, 12, 1, tzinfo=UTC)
    assert parse_time("2026-12-01T18:00+02:00") == datetime(2026, 12, 1, 16, tzinfo=UTC)
    with pytest.raises(InvalidInputError, match="is no date"):
        parse_time("tomorrow")


@pytest.mark.parametrize("said_twice", [(None, None, False), ("1d", "2026-12-01", False), ("1d", None, True)])
def test_when_is_said_in_exactly_one_way(said_twice: tuple[str | None, str | None, bool]) -> None:
    with pytest.raises(InvalidInputError, match="in one way"):
        parse_expiry(*said_twice)


_QUERIES = (
    "LOOKUP parking-spot",
    "FUZZY parkin-spot",
    'SEARCH "where is the car parked" FROM resources',
    "TRAVERSE FROM office",
    "SQL SELECT * FROM resources WHERE name = 'parking spot'",
    "SQL SELECT * FROM kv_store WHERE entity_key = 'parking-spot'",
    "SQL SELECT * FROM edges WHERE src_key = 'parking-spot'",
)


@pytest.mark.parametrize("query", _QUERIES)
async def test_no_verb_finds_what_has_lapsed(rem: Rem, alice: Store, query: str) -> None:
    spot = Resource(name="parking spot", content="The car is parked in B12.", graph_edges=[Edge(dst="office")])
    await alice.upsert(
        Resource(name="office", content="Work.", graph_edges=[Edge(dst="parking spot", rel_type="parked_at")])
    )
    stored = await alice.upsert(spot)
    await rem.index(user="alice@example.com")
    before = (await rem.query(query, user="alice@example.com")).count
    assert before >= 1
    await expire(alice, [stored], datetime.now(UTC) - timedelta(seconds=1))
    assert (await rem.query(query, user="alice@example.com")).count < before


async def test_a_sessions_messages_lapse_with_it_also_those_that_are_written_later(
    rem: Rem, memory: MemoryManager, session: Session
) -> None:
    await rem.index(user="alice@example.com")
    at = soon()
    await expire(memory.store, [session], at)
    await memory.append(session.id, [said("The room has number 12 of Zanzibar.")])
    await memory.store.upsert(Message(session_id=session.id, message_index=3, role=Role.USER, content="Zanzibar!"))
    assert {message.expires_at for message in await memory.load_session(session.id)} == {at}
    assert len(await memory.load_session(session.id)) == 4
    await until_lapsed()
    with pytest.raises(NotFoundError):
        await memory.load_session(session.id)
    with pytest.raises(NotFoundError):
        await memory.get_history(session.id)
    with pytest.raises(NotFoundError):
        await memory.flag_message(session.id, 0)
    with pytest.raises(DeletedError):
        await memory.append(session.id, [said("Hello?")])
    assert await memory.list_sessions() == []
    assert await memory.search_similar("Zanzibar", min_similarity=0) == []
    assert await memory.store.find(Message) == []
    assert await memory.get_titles([session.id]) == {}
    assert await memory.get_summary(session.id) is None


async def test_who_may_read_a_session_may_not_read_it_longer_than_its_owner(
    rem: Rem, memory: MemoryManager, session: Session
) -> None:
    bob = rem.memory("bob@example.com")
    await memory.share_session(session.id, "bob@example.com")
    assert await bob.list_shared_sessions()
    await expire(memory.store, [session], soon())
    assert len(await bob.load_session(session.id)) == 2
    await until_lapsed()
    assert await bob.list_shared_sessions() == []
    with pytest.raises(NotFoundError):
        await bob.load_session(session.id)


async def test_a_message_that_lapses_sooner_still_does(memory: MemoryManager, session: Session) -> None:
    first, second = await memory.load_session(session.id)
    sooner = later() - timedelta(days=20)
    await expire(memory.store, [first], sooner)
    await expire(memory.store, [session], later())
    assert [message.expires_at for message in await memory.load_session(session.id)] == [sooner, later()]
    await expire(memory.store, [session], None)
    assert [message.expires_at for message in await memory.load_session(session.id)] == [sooner, None]
    assert second.expires_at is None


async def test_what_has_lapsed_stays_lapsed_when_its_session_is_to_last(
    memory: MemoryManager, session: Session
) -> None:
    first, _ = await memory.load_session(session.id)
    await expire(memory.store, [first], datetime.now(UTC) - timedelta(seconds=1))
    await expire(memory.store, [session], later())
    await expire(memory.store, [session], None)
    assert len(await memory.load_session(session.id)) == 1
    with pytest.raises(NotFoundError, match="messages has no"):
        await expire(memory.store, [first], None)


@pytest.mark.parametrize("way", ["make", "rename", "talk"])
async def test_the_name_of_a_session_that_has_lapsed_is_free(memory: MemoryManager, session: Session, way: str) -> None:
    await expire(memory.store, [session], datetime.now(UTC) - timedelta(days=1))
    if way == "make":
        made = (await memory.create_session(name="Trip to Rome")).id
    elif way == "rename":
        made = (await memory.create_session()).id
        await memory.rename_session(made, "Trip to Rome")
    else:
        made = (await memory.begin_turn(uuid4(), said("Hello"), name="Trip to Rome")).session_id
    assert await memory.resolve_session_id("Trip to Rome") == made != session.id
    with pytest.raises(NotFoundError):
        await memory.get_session(session.id)


async def test_a_session_that_lapses_is_still_summarised(memory: MemoryManager) -> None:
    session = await memory.create_session()
    await expire(memory.store, [session], later())
    for number in range(40):
        await memory.append(session.id, [said(f"The decision number {number} is to build the harbour in stone.")])
    await memory.refresh_summary(session.id, strategy="hybrid", max_tokens=300)
    assert "harbour" in str(await memory.get_summary(session.id))


async def test_writers_and_whoever_sets_the_expiry_do_not_miss_each_other(
    memory: MemoryManager, session: Session
) -> None:
    at = later()

    async def write(number: int) -> None:
        await memory.append(session.id, [said(f"Message {number}.")])

    await asyncio.gather(*map(write, range(10)), expire(memory.store, [session], at), *map(write, range(10)))
    stored = await memory.load_session(session.id)
    assert len(stored) == 22
    assert {message.expires_at for message in stored} == {at}


async def test_another_users_rows_do_not_lapse(alice: Store, bob: Store) -> None:
    mine = await note(alice, "mine")
    with pytest.raises(NotFoundError):
        await expire(bob, [mine], later())
    assert (await alice.get(Resource, mine.id)).expires_at is None


async def test_all_rows_lapse_or_none(alice: Store) -> None:
    kept = await note(alice, "kept")
    with pytest.raises(NotFoundError):
        await expire(alice, [kept, Resource(name="no such row")], later())
    assert (await alice.get(Resource, kept.id)).expires_at is None


async def test_a_file_takes_its_chunks_along_also_new_ones(alice: Store) -> None:
    file = await alice.upsert(File(name="report.md"))
    old = await alice.upsert(Resource(name="report.md#1", content="One.", metadata={"file_id": str(file.id)}))
    other = await alice.upsert(Resource(name="other.md#1", content="One.", metadata={"file_id": str(uuid4())}))
    odd = await alice.upsert(Resource(name="odd", content="One.", metadata={"file_id": "no id"}))
    at = later()
    await expire(alice, [file], at)
    new = await alice.upsert(Resource(name="report.md#2", content="Two.", metadata={"file_id": str(file.id)}))
    times = [(await alice.get(Resource, row.id)).expires_at for row in (old, new, other, odd)]
    assert times == [at, at, None, None]


async def test_what_was_dreamt_lapses_with_the_first_of_its_sources(rem: Rem, alice: Store) -> None:
    first, second = await note(alice, "first"), await note(alice, "second")
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(first), [moment("both", first, second)])
    at = later()
    await expire(alice, [second], at)
    assert [row.expires_at for row in await moments(alice)] == [at]
    await expire(alice, [first], at - timedelta(days=1))
    assert [row.expires_at for row in await moments(alice)] == [at - timedelta(days=1)]
    await expire(alice, [first, second], None)
    assert [row.expires_at for row in await moments(alice)] == [None]
    assert (await moments(alice))[0].origin == "dream:moments"


async def test_what_was_dreamt_of_a_conversation_lapses_with_it(
    rem: Rem, memory: MemoryManager, session: Session
) -> None:
    messages = await memory.load_session(session.id)
    night = await night_for(rem, memory.store)
    await night.store_claims("moments", ref(session), [moment("the trip", *messages)])
    at = later()
    await expire(memory.store, [session], at)
    assert [row.expires_at for row in await moments(memory.store)] == [at]


async def test_what_was_dreamt_lapses_also_if_its_source_is_written_over(
    rem: Rem, memory: MemoryManager, session: Session
) -> None:
    message, *_ = await memory.load_session(session.id)
    night = await night_for(rem, memory.store)
    await night.store_claims("moments", ref(session), [moment("the trip", message)])
    for at in (later(), None):
        stored = await memory.store.get(Message, message.id)
        await memory.store.upsert(stored.model_copy(update={"expires_at": at}))
        assert [row.expires_at for row in await moments(memory.store)] == [at]


async def test_who_is_known_from_two_conversations_lapses_with_the_last(rem: Rem, alice: Store) -> None:
    first = await talk(alice, "first", "user: My colleague Sarah Chen <sarah@acme.com> is here.")
    second = await talk(alice, "second", "user: I called Sarah Chen <sarah@acme.com> again.")
    await rem.dreamer().dream(alice.scope, ["entities"])
    at = later()
    expected = [(first, at, None), (second, at + timedelta(days=1), at + timedelta(days=1)), (second, None, None)]
    for session, expiry, lapses in expected:
        await expire(alice, [await alice.get(Session, session)], expiry)
        (sarah,) = [row for row in await alice.find(Ontology) if row.key == "sarah-chen"]
        assert sarah.expires_at == lapses


async def test_a_row_that_is_renewed_is_not_swept_away(rem: Rem, alice: Store) -> None:
    spot = await note(alice, "parking spot", "B12")
    await expire(alice, [spot], datetime.now(UTC) - timedelta(seconds=1))
    await note(alice, "parking spot", "C3")
    assert (await rem.sweep()).total == 0
    assert [row.key for row in await alice.lookup("parking spot")] == ["parking-spot"]
