"""Measure writing, looking up and searching encrypted texts against the same calls without encryption."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from bench.measure import Call, Result, measure_in_turns, print_progress
from rem import Rem, Resource, Settings
from rem.db.embedded.server import EmbeddedServer
from rem.models import Role
from rem.sessions.message import NewMessage
from rem.settings import EmbeddingSettings, EncryptionSettings

ROWS = 5_000
_ROUNDS = 300
_USER = "bench@example.com"
_WORDS = [f"word{number}" for number in range(2_000)]
LIMITS = {"write_message": 1.3, "lookup": 1.8, "search": 1.3}
"""A text of a few hundred characters takes about 20 microseconds to encrypt or decrypt. That is little beside a write
or a search. A lookup is one short statement, and with encryption its row is also parsed a second time."""


async def run(home: Path, rows: int = ROWS, rounds: int = _ROUNDS) -> Result:
    """Measure both in turns, each on a server of its own."""
    result = Result("encryption")
    key = base64.b64encode(random.Random(1).randbytes(32)).decode()
    off = Settings(rem_home=home / "plain", embedding=EmbeddingSettings(provider="none"))
    on = off.model_copy(
        update={
            "rem_home": home / "encrypted",
            "encryption": EncryptionSettings(enabled=True, keys=SecretStr(f"k1:{key}")),
        }
    )
    async with _opened(off) as plain, _opened(on) as encrypted:
        for rem in (plain, encrypted):
            await _fill(rem, rows)
        for name, limit in LIMITS.items():
            calls = {"plain": _make_call(plain, name, rows), "encrypted": _make_call(encrypted, name, rows)}
            times = await measure_in_turns(calls, rounds, warm_up=20)
            result.figures[name] = times
            print_progress(f"{name}: {times}")
            result.check(f"{name} with encryption", times["encrypted"] / times["plain"], limit)
    return result


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Rem]:
    try:
        async with Rem.open(settings) as rem:
            yield rem
    finally:
        EmbeddedServer(settings.rem_home).stop()


async def _fill(rem: Rem, rows: int) -> None:
    source = random.Random(2)
    texts = (" ".join(source.choices(_WORDS, k=60)) for _ in range(rows))
    await rem.for_user(_USER).store.upsert_many(
        Resource(name=f"Entity Number {number}", content=text) for number, text in enumerate(texts)
    )
    await rem.index()


def _make_call(rem: Rem, name: str, rows: int) -> Call:
    store, memory, session = rem.for_user(_USER).store, rem.for_user(_USER).sessions, uuid4()
    source = random.Random(3)
    message = NewMessage(role=Role.USER, content=" ".join(source.choices(_WORDS, k=60)))

    async def write_message(_turn: int) -> None:
        await memory.save_message(session, message)

    async def lookup(turn: int) -> None:
        assert await store.lookup(f"entity-number-{turn * 7 % rows}")

    async def search(turn: int) -> None:
        words = f"{_WORDS[turn % 2000]} {_WORDS[turn * 3 % 2000]}"
        await rem.for_user(_USER).query(f'SEARCH "{words}" FROM resources LIMIT 10')

    return {"write_message": write_message, "lookup": lookup, "search": search}[name]
