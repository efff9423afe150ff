"""Expired rows are not found any more, and pass their expiry on to dependent rows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import DeletedError, InvalidInputError, NotFoundError
from rem.forget.expiry import expire, parse_duration, parse_expiry, parse_time
from rem.models import Edge, File, Message, Ontology, Resource, Role, Session
from rem.sessions.manager import MemoryManager
from rem.sessions.message import NewMessage
from tests.dreams.sample_claims import claim_moment, list_moments, start_run, store_note, to_ref
from tests.dreams.sample_sessions import store_session

_SOON = timedelta(seconds=0.8)


def soon() -> datetime:
    return datetime.now(UTC) + _SOON


def later() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)


async def wait_until_expired() -> None:
    await asyncio.sleep(_SOON.total_seconds() + 0.1)


def user_message(content: str) -> NewMessage:
    return NewMessage(role=Role.USER, content=content)


@pytest.fixture
def memory(rem: Rem) -> MemoryManager:
    return rem.for_user("alice@example.com").sessions


@pytest.fixture
async def session(memory: MemoryManager) -> Session:
    created = await memory.create_session(name="Trip to Rome")
    await memory.append(
        created.id, [user_message("The hotel is called Zanzibar."), user_message("It is near the station.")]
    )
    return await memory.get_session(created.id)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 2_592_000), ("12h", 43_200), ("45 min", 2700), ("1w 2d", 777_600), ("1Y", 31_536_000)]
)
def test_duration_is_parsed(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "30", "d", "3 fortnights", "0d", "-1d", "99999y", "1d or so"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"not a duration|out of range"):
        parse_duration(text)


def test_date_means_midnight_utc() -> None:
    assert parse_time("2026-12-01") == datetime(2026, 12, 1, tzinfo=UTC)
    assert parse_time("2026-12-01T18:00+02:00") == datetime(2026, 12, 1, 16, tzinfo=UTC)
    with pytest.raises(InvalidInputError, match="is not a date"):
        parse_time("tomorrow")


def test_time_without_an_offset_is_in_the_zone_of_the_caller() -> None:
    zone = ZoneInfo("Europe/Ljubljana")
    assert parse_time("2026-12-01", zone) == datetime(2026, 11, 30, 23, tzinfo=UTC)
    now = datetime(2026, 7, 1, tzinfo=zone)
    assert parse_expiry(None, "2026-07-02T08:00", False, now=now) == datetime(2026, 7, 2, 6, tzinfo=UTC)
    assert parse_expiry("1d", None, False, now=now) == now + timedelta(days=1)


@pytest.mark.parametrize("options", [(None, None, False), ("1d", "2026-12-01", False), ("1d", None, True)])
def test_expiry_needs_exactly_one_option(options: tuple[str | None, str | None, bool]) -> None:
    with pytest.raises(InvalidInputError, match="exactly one of"):
        parse_expiry(*options)


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
async def test_no_query_verb_returns_expired_rows(rem: Rem, alice: Store, query: str) -> None:
    spot = Resource(name="parking spot", content="The car is parked in B12.", graph_edges=[Edge(dst="office")])
    await alice.upsert(
        Resource(name="office", content="Work.", graph_edges=[Edge(dst="parking spot", rel_type="parked_at")])
    )
    stored = await alice.upsert(spot)
    await rem.for_user("alice@example.com").index()
    before = (await rem.for_user("alice@example.com").query(query)).count
    assert before >= 1
    await expire(alice, [stored], datetime.now(UTC) - timedelta(seconds=1))
    assert (await rem.for_user("alice@example.com").query(query)).count < before


async def test_session_expiry_applies_to_present_and_later_messages(
    rem: Rem, memory: MemoryManager, session: Session
) -> None:
    await rem.for_user("alice@example.com").index()
    at = soon()
    await expire(memory.store, [session], at)
    await memory.append(session.id, [user_message("The room has number 12 of Zanzibar.")])
    await memory.store.upsert(Message(session_id=session.id, message_index=3, role=Role.USER, content="Zanzibar!"))
    assert {message.expires_at for message in await memory.load_session(session.id)} == {at}
    assert len(await memory.load_session(session.id)) == 4
    await wait_until_expired()
    with pytest.raises(NotFoundError):
        await memory.load_session(session.id)
    with pytest.raises(NotFoundError):
        await memory.get_history(session.id)
    with pytest.raises(NotFoundError):
        await memory.flag_message(session.id, 0)
    with pytest.raises(DeletedError):
        await memory.append(session.id, [user_message("Hello?")])
    assert await memory.list_sessions() == []
    assert await memory.search_similar("Zanzibar", min_similarity=0) == []
    assert await memory.store.find(Message) == []
    assert await memory.get_titles([session.id]) == {}
    assert await memory.get_summary(session.id) is None


async def test_share_expires_with_session(rem: Rem, memory: MemoryManager, session: Session) -> None:
    bob = rem.for_user("bob@example.com").sessions
    await memory.share_session(session.id, "bob@example.com")
    assert await bob.list_shared_sessions()
    await expire(memory.store, [session], soon())
    assert len(await bob.load_session(session.id)) == 2
    await wait_until_expired()
    assert await bob.list_shared_sessions() == []
    with pytest.raises(NotFoundError):
        await bob.load_session(session.id)


async def test_earlier_message_expiry_stays(memory: MemoryManager, session: Session) -> None:
    first, second = await memory.load_session(session.id)
    expiry = later()
    sooner = expiry - timedelta(days=20)
    await expire(memory.store, [first], sooner)
    await expire(memory.store, [session], expiry)
    assert [message.expires_at for message in await memory.load_session(session.id)] == [sooner, expiry]
    await expire(memory.store, [session], None)
    assert [message.expires_at for message in await memory.load_session(session.id)] == [sooner, None]
    assert second.expires_at is None


async def test_expired_message_stays_expired_when_session_expiry_is_removed(
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
async def test_name_of_expired_session_can_be_reused(memory: MemoryManager, session: Session, way: str) -> None:
    await expire(memory.store, [session], datetime.now(UTC) - timedelta(days=1))
    if way == "make":
        created = (await memory.create_session(name="Trip to Rome")).id
    elif way == "rename":
        created = (await memory.create_session()).id
        await memory.rename_session(created, "Trip to Rome")
    else:
        created = (await memory.begin_turn(uuid4(), user_message("Hello"), name="Trip to Rome")).session_id
    assert await memory.resolve_session_id("Trip to Rome") == created != session.id
    with pytest.raises(NotFoundError):
        await memory.get_session(session.id)


async def test_session_with_expiry_is_still_summarized(memory: MemoryManager) -> None:
    session = await memory.create_session()
    await expire(memory.store, [session], later())
    for number in range(40):
        await memory.append(
            session.id, [user_message(f"The decision number {number} is to build the harbour in stone.")]
        )
    await memory.refresh_summary(session.id, strategy="hybrid", max_tokens=300)
    assert "harbour" in str(await memory.get_summary(session.id))


async def test_concurrent_writes_and_expiry_leave_no_message_without_expiry(
    memory: MemoryManager, session: Session
) -> None:
    at = later()

    async def write(number: int) -> None:
        await memory.append(session.id, [user_message(f"Message {number}.")])

    await asyncio.gather(*map(write, range(10)), expire(memory.store, [session], at), *map(write, range(10)))
    stored = await memory.load_session(session.id)
    assert len(stored) == 22
    assert {message.expires_at for message in stored} == {at}


async def test_rows_of_another_user_cannot_be_expired(alice: Store, bob: Store) -> None:
    mine = await store_note(alice, "mine")
    with pytest.raises(NotFoundError):
        await expire(bob, [mine], later())
    assert (await alice.get(Resource, mine.id)).expires_at is None


async def test_expire_changes_all_rows_or_none(alice: Store) -> None:
    kept = await store_note(alice, "kept")
    with pytest.raises(NotFoundError):
        await expire(alice, [kept, Resource(name="no such row")], later())
    assert (await alice.get(Resource, kept.id)).expires_at is None


async def test_file_expiry_applies_to_present_and_new_chunks(alice: Store) -> None:
    file = await alice.upsert(File(name="report.md"))
    old = await alice.upsert(Resource(name="report.md#1", content="One.", metadata={"file_id": str(file.id)}))
    other = await alice.upsert(Resource(name="other.md#1", content="One.", metadata={"file_id": str(uuid4())}))
    odd = await alice.upsert(Resource(name="odd", content="One.", metadata={"file_id": "no id"}))
    at = later()
    await expire(alice, [file], at)
    new = await alice.upsert(Resource(name="report.md#2", content="Two.", metadata={"file_id": str(file.id)}))
    times = [(await alice.get(Resource, row.id)).expires_at for row in (old, new, other, odd)]
    assert times == [at, at, None, None]


async def test_dreamt_row_expires_with_its_first_source(rem: Rem, alice: Store) -> None:
    first, second = await store_note(alice, "first"), await store_note(alice, "second")
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(first), [claim_moment("both", first, second)])
    at = later()
    await expire(alice, [second], at)
    assert [row.expires_at for row in await list_moments(alice)] == [at]
    await expire(alice, [first], at - timedelta(days=1))
    assert [row.expires_at for row in await list_moments(alice)] == [at - timedelta(days=1)]
    await expire(alice, [first, second], None)
    assert [row.expires_at for row in await list_moments(alice)] == [None]
    assert (await list_moments(alice))[0].origin == "dream:moments"


async def test_moment_expires_with_its_session(rem: Rem, memory: MemoryManager, session: Session) -> None:
    messages = await memory.load_session(session.id)
    run = await start_run(rem, memory.store)
    await run.store_claims("moments", to_ref(session), [claim_moment("the trip", *messages)])
    at = later()
    await expire(memory.store, [session], at)
    assert [row.expires_at for row in await list_moments(memory.store)] == [at]


async def test_dreamt_row_expires_when_source_is_overwritten_with_expiry(
    rem: Rem, memory: MemoryManager, session: Session
) -> None:
    message, *_ = await memory.load_session(session.id)
    run = await start_run(rem, memory.store)
    await run.store_claims("moments", to_ref(session), [claim_moment("the trip", message)])
    for at in (later(), None):
        stored = await memory.store.get(Message, message.id)
        await memory.store.upsert(stored.model_copy(update={"expires_at": at}))
        assert [row.expires_at for row in await list_moments(memory.store)] == [at]


async def test_entity_from_two_sessions_expires_with_the_later_one(rem: Rem, alice: Store) -> None:
    first = await store_session(alice, "first", "user: My colleague Sarah Chen <sarah@acme.com> is here.")
    second = await store_session(alice, "second", "user: I called Sarah Chen <sarah@acme.com> again.")
    await rem.dreamer().dream(alice.scope, ["entities"])
    at = later()
    expected = [(first, at, None), (second, at + timedelta(days=1), at + timedelta(days=1)), (second, None, None)]
    for session, expiry, entity_expiry in expected:
        await expire(alice, [await alice.get(Session, session)], expiry)
        (sarah,) = [row for row in await alice.find(Ontology) if row.key == "sarah-chen"]
        assert sarah.expires_at == entity_expiry


async def test_renewed_row_is_not_swept(rem: Rem, alice: Store) -> None:
    spot = await store_note(alice, "parking spot", "B12")
    await expire(alice, [spot], datetime.now(UTC) - timedelta(seconds=1))
    await store_note(alice, "parking spot", "C3")
    assert (await rem.sweep()).total == 0
    assert [row.key for row in await alice.lookup("parking spot")] == ["parking-spot"]
