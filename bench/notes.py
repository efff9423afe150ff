"""Give one user 20,000 notes, and compare what a search, a page of a list, a dream and forgetting cost with 5,000.

The costs are CPU seconds of this process and of PostgreSQL, because other work on the machine changes the time that
they take. Meanwhile another user looks up one row: its slowest answers show whether REM stays responsive.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from bench.measure import Result, median, percentile, print_progress
from rem import Rem, Resource, Settings
from rem.context import Scope
from rem.db.embedded.server import EmbeddedServer

SIZES = (5_000, 10_000, 20_000)
QUICK = (300, 600)
OWNER = "owner"
BYSTANDER = "bystander"
SEARCHES = 12
PAGES = 6
PAGE_ROWS = 100
ROWS_AT_ONCE = 500
MAX_GROWTH = 1.5
"""How much more than in proportion to the notes an operation may cost."""
_PLACES = ("Oslo", "Turin", "Cork", "Lisbon", "Graz", "Porto")
_WORDS = ("garden", "harbour", "compiler", "invoice", "violin", "ticket", "recipe", "rollback", "schema", "latency")


async def run(home: Path, sizes: tuple[int, ...] = SIZES) -> Result:
    """Measure each operation with every number of notes."""
    result = Result("notes")
    costs: dict[int, dict[str, float]] = {}
    async with Rem.open(Settings(rem_home=home)) as rem:
        postmaster = psutil.Process(EmbeddedServer(home).status().pid)
        await rem.for_user(BYSTANDER).store.upsert(Resource(name="Mine", content="The only one."))
        stored = 0
        for size in sizes:
            await _store(rem, stored, size)
            stored = size
            async with _bystander(rem) as seconds:
                costs[size] = await _measure(rem, size, postmaster)
            waits = {"p99_ms": round(percentile(seconds, 99) * 1000, 1), "max_ms": round(max(seconds) * 1000, 1)}
            result.figures[str(size)] = {**costs[size], "lookups_of_another_user": waits}
            print_progress(f"notes, {size:,}: {result.figures[str(size)]}")
    first, last = sizes[0], sizes[-1]
    for name, cost in costs[last].items():
        growth = cost / max(costs[first][name], 0.01) / (last / first)
        result.check(f"cost of {name} at {last:,} notes, in proportion to {first:,}", growth, MAX_GROWTH)
    return result


async def _store(rem: Rem, first: int, end: int) -> None:
    for start in range(first, end, ROWS_AT_ONCE):
        numbers = range(start, min(start + ROWS_AT_ONCE, end))
        await rem.for_user(OWNER).store.upsert_many(
            Resource(name=f"note {number}", content=_text(number)) for number in numbers
        )
    await rem.for_user(OWNER).index()


async def _measure(rem: Rem, size: int, postmaster: psutil.Process) -> dict[str, float]:
    """Return the CPU seconds of each operation."""
    store = rem.for_user(OWNER).store

    async def search(number: int) -> None:
        assert (await rem.for_user(OWNER).query(f'SEARCH "who paid in {_PLACES[number % 6]}, {number}"')).count

    async def list_page(number: int) -> None:
        assert await store.find(Resource, limit=PAGE_ROWS, offset=number * (size - PAGE_ROWS) // PAGES)

    async def dream(_number: int) -> None:
        await rem.dreamer().dream(Scope.for_user(OWNER))

    async def forget(number: int) -> None:
        await rem.for_user(OWNER).forget(await rem.for_user(OWNER).plan_forget(f"note {size - 1 - number}"))

    operations: dict[str, tuple[Callable[[int], Awaitable[None]], int]] = {
        "search": (search, SEARCHES),
        "list": (list_page, PAGES),
        "dream": (dream, 1),
        "forget": (forget, 3),
    }
    costs = {}
    for name, (call, times) in operations.items():
        seconds = []
        for number in range(times):
            before = _cpu_seconds(postmaster)
            await call(number)
            seconds.append(_cpu_seconds(postmaster) - before)
        costs[name] = round(median(seconds), 3)
    return costs


def _cpu_seconds(postmaster: psutil.Process) -> float:
    """Return the CPU seconds of this process and of PostgreSQL, whose ended children count, too."""
    server = postmaster.cpu_times()
    running = [child.cpu_times() for child in postmaster.children()]
    return (
        time.process_time()
        + server.children_user
        + server.children_system
        + sum(times.user + times.system for times in (server, *running))
    )


@asynccontextmanager
async def _bystander(rem: Rem) -> AsyncIterator[list[float]]:
    """Look up a row of another user during the block, and yield the seconds of each answer."""
    seconds: list[float] = []

    async def look_up() -> None:
        while True:
            started = time.perf_counter()
            assert await rem.for_user(BYSTANDER).store.lookup("mine")
            seconds.append(time.perf_counter() - started)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(look_up())
    try:
        yield seconds
    finally:
        task.cancel()
        await asyncio.wait([task])


def _text(number: int) -> str:
    chance = random.Random(number)
    who, where, what = (chance.choice(texts) for texts in (("Sarah", "Bob", "Mia", "Noor"), _PLACES, _WORDS))
    return (
        f"{who} and I met in {where} about the {what}, and she pays {chance.randint(10, 900)} EUR for number {number}."
    )
