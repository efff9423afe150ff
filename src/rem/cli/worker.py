"""`rem worker`: process background jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.cli.supervisor import Heartbeat
    from rem.jobs.worker import Worker
    from rem.settings import Settings


def worker(
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="The number of parallel jobs. Default: WORKER__CONCURRENCY, which is 3."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Exit when no job is queued.")] = False,
    kinds: Annotated[str | None, typer.Option(help="Only jobs of these kinds, separated by commas.")] = None,
) -> None:
    """Process background jobs until interrupted.

    Any number of workers may run, also on other machines. `rem serve` has its own worker. After Ctrl-C or SIGTERM,
    running jobs may finish within a time limit; a second signal interrupts them. Unfinished jobs are queued again.
    """
    from rem.cli.runtime import run_async
    from rem.cli.supervisor import CAN_SUPERVISE, Heartbeat, Options, supervise
    from rem.log_output import log_to_stderr

    heartbeat = Heartbeat.from_environment()
    settings = _settings_with_concurrency(concurrency)
    if heartbeat is None and CAN_SUPERVISE and not once:
        # A worker that is silent for longer has lost its jobs to others.
        supervise(Options(freeze_seconds=settings.worker.heartbeat_seconds, logs_json=settings.log.format == "json"))
    # At level INFO even without --verbose, because the log is the only output of a worker.
    log_to_stderr("INFO", settings.log.format)
    chosen_kinds = [kind.strip() for kind in kinds.split(",") if kind.strip()] if kinds is not None else None
    run_async(lambda: _work(settings, once, chosen_kinds, heartbeat))


async def _work(settings: Settings, once: bool, kinds: list[str] | None, heartbeat: Heartbeat | None) -> None:
    import asyncio
    import signal
    from contextlib import nullcontext

    from rem.app import Rem
    from rem.cli.runtime import print_to_stderr
    from rem.jobs.worker import Worker

    beating = nullcontext() if heartbeat is None else heartbeat.beating()
    async with Rem.open(settings, on_progress=print_to_stderr) as rem, beating:
        worker = Worker(rem, settings, kinds=kinds)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        if not once:
            print_to_stderr(f"Processing jobs of {rem.database.describe_address()}. Stop with Ctrl-C.")
        await _run(worker, rem, once)


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
