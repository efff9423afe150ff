"""`rem worker`: does the jobs that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.settings import Settings
    from rem.worker.worker import Worker


def worker(
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Jobs at the same time; 2 unless WORKER__CONCURRENCY says otherwise."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when no job waits any more.")] = False,
    kinds: Annotated[str | None, typer.Option(help="Only jobs of these kinds, separated by commas.")] = None,
) -> None:
    """Do the jobs that wait, until interrupted. Any number of workers may run, also on other machines.

    `rem serve` has a worker of its own. Ctrl-C or SIGTERM lets running jobs end, in bounded time; a second one
    interrupts them. What is not finished waits again.
    """
    from rem.cli.runtime import run_async

    _log_to_stderr()
    chosen = [kind.strip() for kind in kinds.split(",") if kind.strip()] if kinds is not None else None
    run_async(lambda: _work(_settings(concurrency), once, chosen))


async def _work(settings: Settings, once: bool, kinds: list[str] | None) -> None:
    import asyncio
    import signal

    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.cli.runtime import print_to_stderr
    from rem.worker.worker import Worker

    async with Rem.open(settings, on_progress=print_to_stderr) as rem:
        agents = Agents(rem, settings)
        try:
            worker = Worker(rem, agents, settings, kinds=kinds)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, worker.stop)
            if not once:
                print_to_stderr(f"Working on jobs of {rem.database.describe_address()}. Stop with Ctrl-C.")
            await _run(worker, rem, once)
        finally:
            await agents.close()


async def _run(worker: Worker, rem: Rem, once: bool) -> None:
    """Work; and, as long as it runs, keep the index current: there may be no server that does."""
    import asyncio

    indexing = None if once else asyncio.create_task(rem.keep_indexed())
    try:
        await worker.run(once=once)
    finally:
        if indexing is not None:
            indexing.cancel()
            await asyncio.wait([indexing])


def _settings(concurrency: int | None) -> Settings:
    from rem.settings import get_settings

    settings = get_settings()
    if concurrency is None:
        return settings
    return settings.model_copy(update={"worker": settings.worker.model_copy(update={"concurrency": concurrency})})


def _log_to_stderr() -> None:
    """What a worker does is what its log says, so that is told without --verbose, too."""
    import sys

    from loguru import logger

    logger.remove()
    logger.add(sys.stderr, level="INFO", diagnose=False, backtrace=False, format="{time:HH:mm:ss} {level}: {message}")
