"""Owners take slots in turns, and none can keep them all."""

from __future__ import annotations

import asyncio

import pytest

from rem.db.fair_slots import MAX_WAITING_PER_OWNER, FairSlots, Slot
from rem.errors import QueryLimitError


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_owner_with_many_callers_leaves_room_for_others() -> None:
    slots = FairSlots(4)
    greedy = [asyncio.create_task(slots.acquire("greedy", 60)) for _ in range(100)]
    await settle()
    assert sum(task.done() for task in greedy) == 2
    other = await slots.acquire("other", 0.1)
    other.release()
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)


async def test_waiting_owners_take_turns() -> None:
    slots = FairSlots(1)
    first = await slots.acquire("a", 1)
    order: list[str] = []

    async def work(owner: str) -> None:
        slot = await slots.acquire(owner, 60)
        order.append(owner)
        slot.release()

    tasks = [asyncio.create_task(work(owner)) for owner in "aaabbc"]
    await settle()
    first.release()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_caller_without_a_slot_in_time_is_refused_and_takes_none() -> None:
    slots = FairSlots(1)
    held = await slots.acquire("a", 1)
    with pytest.raises(QueryLimitError, match=r"no room for this one in 0\.01 s"):
        await slots.acquire("b", 0.01)
    held.release()
    (await slots.acquire("c", 0.1)).release()


async def test_cancelled_caller_gives_its_turn_to_the_next() -> None:
    slots = FairSlots(1)
    held = await slots.acquire("a", 1)
    waiting = [asyncio.create_task(slots.acquire("b", 60)) for _ in range(2)]
    await settle()
    held.release()
    # It was granted its turn, but has not run since.
    waiting[0].cancel()
    granted = await asyncio.wait_for(waiting[1], 1)
    assert isinstance(granted, Slot)
    granted.release()
    granted.release()
    one = await slots.acquire("c", 0.1)
    with pytest.raises(QueryLimitError):
        await slots.acquire("d", 0.01)
    one.release()


async def test_owner_cannot_queue_without_end() -> None:
    slots = FairSlots(1)
    held = await slots.acquire("a", 1)
    waiting = [asyncio.create_task(slots.acquire("a", 60)) for _ in range(MAX_WAITING_PER_OWNER)]
    await settle()
    with pytest.raises(QueryLimitError, match="You have 100 SQL queries waiting"):
        await slots.acquire("a", 60)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    held.release()
    (await slots.acquire("b", 0.1)).release()
