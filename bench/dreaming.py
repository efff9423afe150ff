"""The cost of a night as a user's history grows, with the same day's news; as a ratio, which holds on any machine."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from bench.measure import Result, median, say
from rem import Rem, Settings
from rem.context import Scope
from rem.models import Message, Role, Session

SIZES = (100, 1_000, 10_000)
_NEWS = 20
_MESSAGES_OF_SESSION = 20
_NIGHTS = 5
_UNHEARD = 1_000_000
"""The news are of none of the conversations before."""
_DREAMS = ("moments", "affinity")
_BEGIN = datetime(2010, 1, 1, 8, tzinfo=UTC)
_THINGS = (
    "harbour violin ledger greenhouse marathon kiln observatory bakery lighthouse comet passport mainsail plumber"
    " archive turbine orchard dentist glacier theatre compiler antenna vineyard locksmith telescope ferry choir"
    " bicycle museum notary reactor saddle chimney almanac cathedral pipeline aquarium falcon tractor sculpture"
    " monsoon balcony cactus"
)
_WORDS = _THINGS.split()


async def run(settings: Settings, sizes: Sequence[int] = SIZES) -> Result:
    """Let users with longer and longer histories dream on one more day, several nights each in turn."""
    result = Result("dreaming")
    nights: dict[int, list[float]] = {size: [] for size in sizes}
    one_session: dict[int, list[float]] = {size: [] for size in sizes}
    async with Rem.open(settings) as rem:
        endless = {}
        for size in sizes:
            await _history(rem, f"user-{size}", size)
            endless[size] = await _endless(rem, f"endless-{size}", size)
        for night in range(_NIGHTS):
            for size in sizes:
                await _session(rem, f"user-{size}", _UNHEARD + night, _BEGIN + timedelta(days=4000 + night))
                nights[size].append(await _night(rem, f"user-{size}"))
                await _append(rem, f"endless-{size}", endless[size], size + night * _NEWS, _UNHEARD + night)
                one_session[size].append(await _night(rem, f"endless-{size}"))
            say(f"night {night + 1}: " + ", ".join(f"{size:,}: {nights[size][-1]:.2f} s" for size in sizes))
    for size in sizes:
        result.figures[f"night_after_{size}_messages_seconds"] = round(median(nights[size]), 3)
        result.figures[f"night_after_{size}_messages_in_one_session_seconds"] = round(median(one_session[size]), 3)
    first, last = sizes[0], sizes[-1]
    growth = f"from {first:,} to {last:,} messages"
    result.check(f"a night's cost {growth}", median(nights[last]) / median(nights[first]), 2.0)
    result.check(f"a night's cost {growth} in one session", median(one_session[last]) / median(one_session[first]), 2.0)
    return result


async def _night(rem: Rem, user: str) -> float:
    """How long a dream takes. What was said is indexed before, as a server does it when it is written."""
    await rem.index(user=user)
    started = time.perf_counter()
    await rem.dreamer().dream(Scope.of(user), _DREAMS)
    return time.perf_counter() - started


async def _history(rem: Rem, user: str, messages: int) -> None:
    for number in range(messages // _MESSAGES_OF_SESSION):
        await _session(rem, user, number, _BEGIN + timedelta(hours=8 * number))
    taken = await _night(rem, user)
    say(f"first night of {messages:,} messages: {taken:.1f} s")


async def _endless(rem: Rem, user: str, messages: int) -> UUID:
    """One session with all messages, twenty each morning."""
    session = await rem.store(user).upsert(Session(id=uuid4()))
    for number in range(messages // _NEWS):
        await _append(rem, user, session.id, number * _NEWS, number)
    taken = await _night(rem, user)
    say(f"first night of a session of {messages:,} messages: {taken:.1f} s")
    return session.id


async def _session(rem: Rem, user: str, number: int, at: datetime) -> None:
    session = await rem.store(user).upsert(Session(id=uuid4()))
    await rem.store(user).upsert_many(_messages(session.id, 0, number, at))


async def _append(rem: Rem, user: str, session_id: UUID, first: int, number: int) -> None:
    at = _BEGIN + timedelta(hours=8 * (first // _NEWS))
    await rem.store(user).upsert_many(_messages(session_id, first, number, at))


def _messages(session_id: UUID, first: int, seed: int, at: datetime) -> list[Message]:
    """Talk about a few things out of many, so that no two conversations are about the same."""
    chance = random.Random(seed)
    about = chance.sample(_WORDS, 4)
    return [
        Message(
            session_id=session_id,
            message_index=first + place,
            role=Role.ASSISTANT if place % 2 else Role.USER,
            content=f"The {chance.choice(about)} near the {chance.choice(about)} needs {chance.randint(2, 900)} parts "
            f"for the {chance.choice(about)}, says number {chance.randint(1, 10_000)}.",
            created_at=at + timedelta(seconds=20 * place),
        )
        for place in range(_NEWS)
    ]
