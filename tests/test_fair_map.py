"""Long work on many items or a long text lets other tasks run."""

from __future__ import annotations

import asyncio
import threading
import time

from rem.fair_map import MAX_CHARS_AT_ONCE, MAX_SECONDS_AT_ONCE, map_fairly, run_fairly


async def test_other_tasks_run_meanwhile() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def work(number: int) -> int:
        time.sleep(MAX_SECONDS_AT_ONCE * 2)
        return number * 2

    other = asyncio.create_task(count_turns())
    assert await map_fairly(work, range(10)) == [number * 2 for number in range(10)]
    other.cancel()
    assert turns >= 9


async def test_nothing_is_mapped_to_nothing() -> None:
    assert await map_fairly(str, []) == []


async def test_only_work_on_a_long_text_goes_to_a_thread() -> None:
    loop_thread = threading.get_ident()
    assert await run_fairly(MAX_CHARS_AT_ONCE, threading.get_ident) == loop_thread
    assert await run_fairly(MAX_CHARS_AT_ONCE + 1, threading.get_ident) != loop_thread
