"""A worker in a process of its own, with handlers that leave traces in a table: `python worker_process.py`.

The settings come from the environment, as for `rem worker`. With TEST_SCHEDULE it has one,
and with TEST_ONCE it ends with the queue.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys

from loguru import logger

from rem.app import Rem
from rem.errors import InvalidInputError
from rem.jobs.handlers import HandlerContext, Payload
from rem.jobs.worker import Worker
from rem.settings import get_settings


async def leave_trace(work: HandlerContext, payload: Payload, what: str) -> None:
    """Say in the table `traces` what happened, and in which process."""
    async with work.rem.database.connection() as connection:
        await connection.execute(
            "INSERT INTO public.traces (name, what, pid) VALUES ($1, $2, $3)", payload.get("name"), what, os.getpid()
        )


async def slow(work: HandlerContext, payload: Payload) -> None:
    """Takes as long as it is told."""
    await leave_trace(work, payload, "begun")
    await asyncio.sleep(payload.get("seconds", 0))
    await leave_trace(work, payload, "done")


async def fails(work: HandlerContext, payload: Payload) -> None:
    """Fails until it was tried so many times."""
    async with work.rem.database.connection() as connection:
        tried = await connection.fetchval("SELECT count(*) FROM public.traces WHERE name = $1", payload["name"])
    await leave_trace(work, payload, "tried")
    if tried < payload["times"]:
        raise RuntimeError(f"the service at postgresql://me:secret@host/db says no to {payload['name']}")


async def refuses(work: HandlerContext, payload: Payload) -> None:
    """Meets an error that no second attempt would mend."""
    await leave_trace(work, payload, "tried")
    raise InvalidInputError("This file is encrypted: store it without a password.")


async def kills(work: HandlerContext, payload: Payload) -> None:
    """Takes its whole worker along."""
    await leave_trace(work, payload, "begun")
    os.kill(os.getpid(), signal.SIGKILL)


async def blocks(work: HandlerContext, payload: Payload) -> None:
    """Swallows the first request to stop."""
    await leave_trace(work, payload, "begun")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await leave_trace(work, payload, "clinging")
        await asyncio.sleep(60)


async def freezes(work: HandlerContext, payload: Payload) -> None:
    """Holds the interpreter, so that nothing else runs in its process."""
    await leave_trace(work, payload, "begun")
    re.fullmatch(r"(a+)+b", "a" * 60)


HANDLERS = {"slow": slow, "freezes": freezes, "fails": fails, "refuses": refuses, "kills": kills, "blocks": blocks}


async def main() -> None:
    """Work until SIGTERM."""
    # Not those of `__main__`: a process of a job imports them.
    from tests.jobs.worker_process import HANDLERS

    schedule = os.environ.get("TEST_SCHEDULE")
    async with Rem.open() as rem:
        worker = Worker(
            rem,
            get_settings(),
            handlers=HANDLERS,
            schedules={"slow": schedule} if schedule else {},
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        print("ready", flush=True)
        await worker.run(once="TEST_ONCE" in os.environ)


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="INFO", diagnose=False, backtrace=False, format="{level}: {message}")
    asyncio.run(main())
