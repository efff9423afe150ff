"""`rem worker`: process background jobs."""

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
        typer.Option(min=1, max=64, help="The number of parallel jobs. Default: WORKER__CONCURRENCY, which is 2."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when no job is queued.")] = False,
    kinds: Annotated[str | None, typer.Option(help="Only jobs of these kinds, separated by commas.")] = None,
) -> None:
    """Process background jobs until interrupted.

    Any number of workers may run, also on other machines. `rem serve` has its own worker. After Ctrl-C or SIGTERM,
    running jobs may finish within a time limit; a second signal interrupts them. Unfinished jobs are queued again.
    """
    from rem.cli.runtime import run_async
    from rem.log_output import log_to_stderr
    from rem.settings import get_settings

    # At level INFO even without --verbose, because the log is the only output of a worker.
    log_to_stderr("INFO", get_settings().log.format)
    chosen_kinds = [kind.strip() for kind in kinds.split(",") if kind.strip()] if kinds is not None else None
    run_async(lambda: _work(_settings_with_concurrency(concurrency), once, chosen_kinds))


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
                print_to_stderr(f"Processing jobs of {rem.database.describe_address()}. Stop with Ctrl-C.")
            await _run(worker, rem, once)
        finally:
            await agents.close()


async def _run(worker: Worker, rem: Rem, once: bool) -> None:
    """Run the worker. Meanwhile keep the index up to date, because there may be no server that does it."""
    import asyncio

    indexer = None if once else asyncio.create_task(rem.keep_indexed())
    try:
        await worker.run(once=once)
    finally:
        if indexer is not None:
            indexer.cancel()
            await asyncio.wait([indexer])


def _settings_with_concurrency(concurrency: int | None) -> Settings:
    from rem.settings import get_settings

    settings = get_settings()
    if concurrency is None:
        return settings
    return settings.model_copy(update={"worker": settings.worker.model_copy(update={"concurrency": concurrency})})
