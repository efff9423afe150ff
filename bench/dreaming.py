"""The cost of a night as a user's history grows, with the same day's news; as a ratio, which holds on any machine."""

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
_MESSAGES_OF_DAY = 20
_NIGHTS = 7
_DAYS_OF_NOTE = 5
_DAYS_OF_PERSON = 10
_UNHEARD = 1_000_000
"""The news are of none of the conversations before, and of nobody who was in them."""
_BEGIN = datetime(2010, 1, 1, 8, tzinfo=UTC)
_BETWEEN = timedelta(days=1)
_FLAT = 1.3
_IDLE = 0.5
_THINGS = (
    "harbour violin ledger greenhouse marathon kiln observatory bakery lighthouse comet passport mainsail plumber"
    " archive turbine orchard dentist glacier theatre compiler antenna vineyard locksmith telescope ferry choir"
    " bicycle museum notary reactor saddle chimney almanac cathedral pipeline aquarium falcon tractor sculpture"
    " monsoon balcony cactus"
)
_WORDS = _THINGS.split()
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
    """Somebody with a history: in a session for each day, or in one that does not end."""

    name: str
    session_id: UUID | None
    said: int = 0
    nights: list[float] = field(default_factory=list)
    idle: float = 0.0


async def run(settings: Settings, sizes: Sequence[int] = SIZES) -> Result:
    """Let users with longer and longer histories dream on one more day, several nights each in turn."""
    result = Result("dreaming")
    async with Rem.open(settings) as rem:
        shapes = {
            "": [await _user(rem, f"user-{size}", size, is_endless=False) for size in sizes],
            " in one session": [await _user(rem, f"endless-{size}", size, is_endless=True) for size in sizes],
        }
        users = [user for shape in shapes.values() for user in shape]
        for night in range(_NIGHTS):
            for user in users:
                await _day(rem, user, _UNHEARD + _DAYS_OF_PERSON * _DAYS_OF_NOTE * night)
                user.nights.append(await _night(rem, user))
            print_progress(
                f"night {night + 1}: " + ", ".join(f"{user.name}: {user.nights[-1]:.2f} s" for user in users)
            )
        for user in users:
            user.idle = await _night(rem, user)
    for shape, (first, *_, last) in shapes.items():
        growth = f"from {sizes[0]:,} to {sizes[-1]:,} messages{shape}"
        # Night by night: what else the machine did slowed both.
        ratios = [after / before for before, after in zip(first.nights, last.nights, strict=True)]
        result.check(f"a night's cost {growth}", median(ratios), _FLAT)
        result.check(
            f"a night without news after {sizes[-1]:,} messages{shape}", last.idle / median(last.nights), _IDLE
        )
    for user in users:
        name = user.name.replace("-", "_")
        result.figures[f"{name}_night_seconds"] = round(median(user.nights), 3)
        result.figures[f"{name}_idle_night_seconds"] = round(user.idle, 3)
    return result


async def _user(rem: Rem, name: str, messages: int, *, is_endless: bool) -> _User:
    """A user with a history that was dreamt on."""
    store = rem.store(name)
    user = _User(name, uuid4() if is_endless else None)
    await store.upsert(Schema(name=_AGENT, version="1.0.0", kind="agent", spec=_ORDER, description="You read orders."))
    await store.upsert(OntologyConfig(name="orders", agent_schema=_AGENT, uri_pattern="note:*"))
    for number in range(messages // _MESSAGES_OF_DAY):
        await _day(rem, user, number)
    taken = await _night(rem, user)
    print_progress(f"first night of {name}: {taken:.1f} s")
    # What was written in the morning may be changed by the night before it, once.
    await _night(rem, user)
    return user


async def _night(rem: Rem, user: _User) -> float:
    """How long a dream takes. What was said is indexed before, as a server does it when it is written."""
    await rem.index(user=user.name)
    started = time.perf_counter()
    await rem.dreamer().dream(Scope.for_user(user.name))
    return time.perf_counter() - started


async def _day(rem: Rem, user: _User, number: int) -> None:
    """A conversation, and on some days a note."""
    store = rem.store(user.name)
    at = _BEGIN + user.said // _MESSAGES_OF_DAY * _BETWEEN
    session_id = user.session_id or uuid4()
    if user.session_id is None or user.said == 0:
        await store.upsert(Session(id=session_id))
    first = user.said if user.session_id else 0
    await store.upsert_many(_messages(session_id, first, number, at))
    user.said += _MESSAGES_OF_DAY
    if number % _DAYS_OF_NOTE == 0:
        await _note(store, number, at)


async def _note(store: Store, number: int, at: datetime) -> None:
    chance = random.Random(number)
    item = " ".join(chance.sample(_WORDS, 3))
    content = f"Item: {item}\nParts: {chance.randint(2, 900)}\n\nOrdered again in week {chance.randint(1, 52)}."
    await store.upsert(Resource(name=f"order {number}", uri=f"note:{number}", content=content, timestamp=at))


def _messages(session_id: UUID, first: int, seed: int, at: datetime) -> list[Message]:
    """Talk about a few things out of many, so that no two conversations are about the same; and about somebody."""
    chance = random.Random(seed)
    about = chance.sample(_WORDS, 4)
    said = [
        chance.choice(_SENTENCES).format(*chance.sample(about, 2), chance.randint(2, 900))
        for _ in range(_MESSAGES_OF_DAY)
    ]
    person = seed // _DAYS_OF_PERSON
    last_names = _NEW_LAST_NAMES if seed >= _UNHEARD else _LAST_NAMES
    names = _FIRST_NAMES[person % len(_FIRST_NAMES)], last_names[person // len(_FIRST_NAMES) % len(last_names)]
    said[0] = f"My colleague {' '.join(names)} <{'.'.join(names).lower()}@acme.com> asks for a {about[0]}."
    return [
        Message(
            session_id=session_id,
            message_index=first + place,
            role=Role.ASSISTANT if place % 2 else Role.USER,
            content=text,
            created_at=at + timedelta(seconds=20 * place),
        )
        for place, text in enumerate(said)
    ]
