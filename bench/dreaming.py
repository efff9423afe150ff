"""Measure the cost of a dream run as a user's history grows, with the same new messages; as a ratio, on any machine."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from bench.measure import Result, median, print_progress
from rem import Rem, Settings
from rem.context import Scope
from rem.db.store import Store
from rem.models import Message, OntologyConfig, Resource, Role, Schema, Session

SIZES = (100, 1_000, 10_000)
MESSAGES_PER_DAY = 20
RUNS = 7
DAYS_PER_NOTE = 5
DAYS_PER_PERSON = 10
FIRST_NEW_DAY = 1_000_000
"""Days from this number on have topics and people that no day of the history has."""
START = datetime(2010, 1, 1, 8, tzinfo=UTC)
MAX_GROWTH_RATIO = 1.3
MAX_IDLE_RATIO = 0.5
_TOPICS = (
    "harbour violin ledger greenhouse marathon kiln observatory bakery lighthouse comet passport mainsail plumber"
    " archive turbine orchard dentist glacier theatre compiler antenna vineyard locksmith telescope ferry choir"
    " bicycle museum notary reactor saddle chimney almanac cathedral pipeline aquarium falcon tractor sculpture"
    " monsoon balcony cactus"
)
_WORDS = _TOPICS.split()
_FIRST_NAMES = ("Sarah", "Miguel", "Ingrid", "Tariq", "Noor", "Elena", "Jonas", "Priya", "Kofi", "Marta")
_LAST_NAMES = ("Chen", "Okafor", "Lindqvist", "Haddad", "Moreau", "Petrov", "Nakamura", "Keller", "Adeyemi", "Rossi")
_NEW_LAST_NAMES = ("Abara", "Bergström", "Castellano", "Dlamini", "Eriksen", "Fontaine", "Gupta", "Hartmann", "Ivanov")
_SENTENCES = (
    "I would like to repair the {} before winter; the {} can wait {} days.",
    "How much does a {} cost if we sell the {} for {} euros?",
    "Yesterday we carried the {} upstairs and forgot the {} in garage {}.",
    "Please remind me that the {0} opens {2} minutes earlier than the {1}.",
    "A letter about the {} arrived; it blames the {} and demands page {}.",
    "My neighbour painted her {} green, so the {} looks pale beside {} roses.",
    "That sounds sensible, although a {} rarely survives next to a {} for {} weeks.",
    "You could borrow a {} from the club and insure the {} under policy {}.",
    "There are {2} photographs of the {0} on the shelf, none of the {1}.",
    "Nobody measured the {}; the {} was delivered on pallet {}.",
)
_AGENT = "order-reader"
_ORDER = {
    "type": "object",
    "description": "You read orders.",
    "properties": {"item": {"type": "string"}, "parts": {"type": "integer"}},
    "required": ["item"],
    "json_schema_extra": {"kind": "agent", "name": _AGENT, "version": "1.0.0", "structured_output": True},
}


@dataclass(slots=True)
class _User:
    """A user with a history: in one session for each day, or in a single endless session."""

    name: str
    session_id: UUID | None
    """The endless session; None for one session a day."""
    message_count: int = 0
    run_seconds: list[float] = field(default_factory=list)
    idle_seconds: float = 0.0


async def run(settings: Settings, sizes: Sequence[int] = SIZES) -> Result:
    """Measure several runs, each with one more day of messages, for users with histories of different sizes."""
    result = Result("dreaming")
    async with Rem.open(settings) as rem:
        shapes = {
            "": [await _create_user(rem, f"user-{size}", size, is_endless=False) for size in sizes],
            " in one session": [await _create_user(rem, f"endless-{size}", size, is_endless=True) for size in sizes],
        }
        users = [user for shape in shapes.values() for user in shape]
        for number in range(RUNS):
            for user in users:
                await _store_day(rem, user, FIRST_NEW_DAY + DAYS_PER_PERSON * DAYS_PER_NOTE * number)
                user.run_seconds.append(await _dream(rem, user))
            times = ", ".join(f"{user.name}: {user.run_seconds[-1]:.2f} s" for user in users)
            print_progress(f"run {number + 1}: {times}")
        for user in users:
            user.idle_seconds = await _dream(rem, user)
    for shape, (first, *_, last) in shapes.items():
        growth = f"from {sizes[0]:,} to {sizes[-1]:,} messages{shape}"
        # Run by run: other load on the machine slows both.
        ratios = [after / before for before, after in zip(first.run_seconds, last.run_seconds, strict=True)]
        result.check(f"a night's cost {growth}", median(ratios), MAX_GROWTH_RATIO)
        result.check(
            f"a night without news after {sizes[-1]:,} messages{shape}",
            last.idle_seconds / median(last.run_seconds),
            MAX_IDLE_RATIO,
        )
    for user in users:
        name = user.name.replace("-", "_")
        result.figures[f"{name}_night_seconds"] = round(median(user.run_seconds), 3)
        result.figures[f"{name}_idle_night_seconds"] = round(user.idle_seconds, 3)
    return result


async def _create_user(rem: Rem, name: str, messages: int, *, is_endless: bool) -> _User:
    """Store a user with a history, run the dreams on it, and return the user."""
    store = rem.for_user(name).store
    user = _User(name, uuid4() if is_endless else None)
    await store.upsert(Schema(name=_AGENT, version="1.0.0", kind="agent", spec=_ORDER, description="You read orders."))
    await store.upsert(OntologyConfig(name="orders", agent_schema=_AGENT, uri_pattern="note:*"))
    for number in range(messages // MESSAGES_PER_DAY):
        await _store_day(rem, user, number)
    seconds = await _dream(rem, user)
    print_progress(f"first run of {name}: {seconds:.1f} s")
    # The first run may change rows that it has read already; the second one reads them again.
    await _dream(rem, user)
    return user


async def _dream(rem: Rem, user: _User) -> float:
    """Run the dreams and return the seconds. Messages are indexed before, as a server does it when they are written."""
    await rem.for_user(user.name).index()
    started = time.perf_counter()
    await rem.dreamer().dream(Scope.for_user(user.name))
    return time.perf_counter() - started


async def _store_day(rem: Rem, user: _User, number: int) -> None:
    """Store one day of messages and, on some days, a note."""
    store = rem.for_user(user.name).store
    at = START + timedelta(days=user.message_count // MESSAGES_PER_DAY)
    session_id = user.session_id or uuid4()
    if user.session_id is None or user.message_count == 0:
        await store.upsert(Session(id=session_id))
    first = user.message_count if user.session_id else 0
    await store.upsert_many(_make_messages(session_id, first, number, at))
    user.message_count += MESSAGES_PER_DAY
    if number % DAYS_PER_NOTE == 0:
        await _store_note(store, number, at)


async def _store_note(store: Store, number: int, at: datetime) -> None:
    chance = random.Random(number)
    item = " ".join(chance.sample(_WORDS, 3))
    content = f"Item: {item}\nParts: {chance.randint(2, 900)}\n\nOrdered again in week {chance.randint(1, 52)}."
    await store.upsert(Resource(name=f"order {number}", uri=f"note:{number}", content=content, timestamp=at))


def _make_messages(session_id: UUID, first: int, seed: int, at: datetime) -> list[Message]:
    """Return the messages of a day about four topics out of many and one person, so that no two days are the same."""
    chance = random.Random(seed)
    topics = chance.sample(_WORDS, 4)
    texts = [
        chance.choice(_SENTENCES).format(*chance.sample(topics, 2), chance.randint(2, 900))
        for _ in range(MESSAGES_PER_DAY)
    ]
    person = seed // DAYS_PER_PERSON
    last_names = _NEW_LAST_NAMES if seed >= FIRST_NEW_DAY else _LAST_NAMES
    names = _FIRST_NAMES[person % len(_FIRST_NAMES)], last_names[person // len(_FIRST_NAMES) % len(last_names)]
    texts[0] = f"My colleague {' '.join(names)} <{'.'.join(names).lower()}@acme.com> asks for a {topics[0]}."
    return [
        Message(
            session_id=session_id,
            message_index=first + offset,
            role=Role.ASSISTANT if offset % 2 else Role.USER,
            content=text,
            created_at=at + timedelta(seconds=20 * offset),
        )
        for offset, text in enumerate(texts)
    ]
