"""Worker: takes jobs from the queue and runs their handlers. Any number of workers may run on any machines."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from loguru import logger
from pgqueuer.core.qm import QueueManager
from pgqueuer.core.sm import SchedulerManager
from pgqueuer.domain.types import QueueExecutionMode

from rem.errors import DatabaseUnavailableError, InvalidInputError, SettingsError
from rem.jobs.queue import JobQueue
from rem.settings import Settings, is_cron_expression
from rem.worker.handlers import HANDLERS, Handler, HandlerContext
from rem.worker.pgqueuer_driver import ReconnectingDriver
from rem.worker.queries import CHANNEL, DeadError, WorkerQueries
from rem.worker.runner import JobRunner

if TYPE_CHECKING:
    from pgqueuer.domain.models import Context, Job

    from rem.agents.service import Agents
    from rem.app import Rem


POLL_INTERVAL_SECONDS = 5.0
MAX_BATCH_JOBS = 10
INTERRUPT_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A kind of job, and the times when it is enqueued."""

    kind: str
    cron: str
    """A cron expression in UTC."""


def build_schedules(settings: Settings) -> Sequence[Schedule]:
    """Return the schedules of all regular jobs."""
    schedules = [Schedule("sweep", "17 * * * *"), Schedule("prune", "47 * * * *")]
    if settings.dreaming.schedule is not None:
        schedules.append(Schedule("dream-all", settings.dreaming.schedule))
    return schedules


def check_schedules(schedules: Sequence[Schedule]) -> None:
    """Raise a SettingsError for an invalid cron expression."""
    for schedule in schedules:
        if not is_cron_expression(schedule.cron):
            raise SettingsError(
                f"The schedule of {schedule.kind}, {schedule.cron!r}, is not a valid cron expression: "
                "write five fields, such as '0 3 * * *' for 3 a.m."
            )


class Worker:
    """Processes jobs until it is stopped.

    `handlers` are added to those of REM, `kinds` limits the worker to some kinds of jobs, and `schedules` replace those
    of the settings.
    """

    def __init__(
        self,
        rem: Rem,
        agents: Agents | None,
        settings: Settings,
        *,
        handlers: Mapping[str, Handler] | None = None,
        kinds: Sequence[str] | None = None,
        schedules: Sequence[Schedule] | None = None,
    ) -> None:
        self._settings = settings
        self._database = rem.database
        self._jobs = JobQueue(rem.database)
        self._context = HandlerContext(rem, settings, self._jobs, agents)
        self._handlers = _select_handlers(HANDLERS | dict(handlers or {}), kinds)
        self._schedules = build_schedules(settings) if schedules is None else schedules
        check_schedules(self._schedules)
        self._stopping = asyncio.Event()
        self._interrupt = asyncio.Event()

    def stop(self) -> None:
        """Take no more jobs, and end when the running ones have ended. A second call interrupts them at once."""
        if self._stopping.is_set():
            self._interrupt.set()
        self._stopping.set()

    async def run(self, *, once: bool = False) -> None:
        """Process jobs until `stop` is called; with `once`, until the queue is empty."""
        _forward_log_to_loguru()
        heartbeat = self._settings.worker.heartbeat_seconds
        driver = ReconnectingDriver(self._database, heartbeat, lambda connection: queries.requeue_unknown(connection))
        queries = WorkerQueries(driver, self._settings.worker.concurrency)
        runner = JobRunner(self._context, queries)
        tasks = [asyncio.create_task(self._make_queue_manager(queries, runner).run(**self._queue_options(once)))]
        if not once:
            tasks.append(asyncio.create_task(self._make_scheduler(queries).run()))
        helpers = [asyncio.create_task(runner.watch()), asyncio.create_task(self._stopping.wait())]
        try:
            await asyncio.wait([*tasks, helpers[-1]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_stopped = self._stopping.is_set()
            await self._shut_down(tasks, runner, driver)
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
            await driver.close()
        _raise_first_error(tasks, ignored=DatabaseUnavailableError if was_stopped else ())

    def _make_queue_manager(self, queries: WorkerQueries, runner: JobRunner) -> QueueManager:
        manager = QueueManager(queries, CHANNEL)
        manager.shutdown = self._stopping
        for kind, handler in self._handlers.items():
            manager.entrypoint(kind, accepts_context=True, on_failure="hold")(_make_entrypoint(runner, handler))
        return manager

    def _make_scheduler(self, queries: WorkerQueries) -> SchedulerManager:
        scheduler = SchedulerManager(queries)
        scheduler.shutdown = self._stopping
        for schedule in self._schedules:
            enqueue = functools.partial(self._enqueue_scheduled, schedule)
            scheduler.schedule(schedule.kind, schedule.cron, accepts_context=False)(enqueue)
        return scheduler

    async def _enqueue_scheduled(self, schedule: Schedule, _row: object) -> None:
        job_id = await self._jobs.enqueue(schedule.kind, {}, dedupe="scheduled")
        logger.debug("{} is due: job {}", schedule.kind, job_id)

    def _queue_options(self, once: bool) -> dict[str, Any]:
        worker = self._settings.worker
        batch_size = max(1, min(MAX_BATCH_JOBS, worker.concurrency // 2))
        return {
            "mode": QueueExecutionMode.drain if once else QueueExecutionMode.continuous,
            "dequeue_timeout": timedelta(seconds=min(POLL_INTERVAL_SECONDS, worker.heartbeat_seconds / 2)),
            "batch_size": batch_size,
            # pgqueuer requires twice the batch size here. WorkerQueries enforces the real limit.
            "max_concurrent_tasks": max(worker.concurrency, 2 * batch_size),
            "heartbeat_timeout": timedelta(seconds=worker.heartbeat_seconds),
            # Do not write statistics: `rem jobs stats` counts rows of the log instead.
            "log_aggregation_interval": timedelta(),
        }

    async def _shut_down(
        self, tasks: Sequence[asyncio.Task[None]], runner: JobRunner, driver: ReconnectingDriver
    ) -> None:
        """Wait for the running jobs, then interrupt them, then cancel all tasks. Each step has a time limit."""
        self._stopping.set()
        interrupted = asyncio.create_task(self._interrupt.wait())
        all_ended = asyncio.ensure_future(asyncio.wait(tasks))
        timeout = self._settings.worker.shutdown_seconds
        await asyncio.wait([interrupted, all_ended], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if not all_ended.done():
            if runner.running:
                logger.warning("{} of the jobs did not end in time and are interrupted.", runner.running)
            runner.interrupt_all()
            await asyncio.wait([all_ended], timeout=INTERRUPT_TIMEOUT_SECONDS)
        driver.give_up()
        for task in tasks:
            task.cancel()
        await all_ended


def _raise_first_error(tasks: Sequence[asyncio.Task[None]], ignored: type[Exception] | tuple[()]) -> None:
    """Raise the error of the first task that failed, unless it is one of the ignored classes."""
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ignored):
            raise error


def _make_entrypoint(runner: JobRunner, handler: Handler) -> Any:
    async def attempt(job: Job, context: Context) -> None:
        with logger.contextualize(job_id=job.id):
            await runner.run(job, context, handler)

    return attempt


def _select_handlers(handlers: Mapping[str, Handler], kinds: Sequence[str] | None) -> Mapping[str, Handler]:
    if kinds is None:
        return handlers
    unknown = sorted(set(kinds) - set(handlers))
    if unknown:
        raise InvalidInputError(f"Unknown kinds of jobs: {', '.join(unknown)}. Known kinds: {', '.join(handlers)}.")
    return {kind: handlers[kind] for kind in kinds}


class _LoguruHandler(logging.Handler):
    """Logs the warnings of pgqueuer, except for dead jobs, which the runner has logged already."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, DeadError):
            logger.warning("{} ({})", record.getMessage(), type(error).__name__)


def _forward_log_to_loguru() -> None:
    library = logging.getLogger("pgqueuer")
    if not any(isinstance(handler, _LoguruHandler) for handler in library.handlers):
        library.addHandler(_LoguruHandler(logging.WARNING))
        library.propagate = False
