"""Worker: takes jobs from the queue and does them. Any number may run, in any processes, on any machines."""

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
from rem.worker.driver import ReconnectingDriver
from rem.worker.handlers import HANDLERS, Handler, HandlerContext
from rem.worker.queries import CHANNEL, DeadError, WorkerQueries
from rem.worker.runner import JobRunner

if TYPE_CHECKING:
    from pgqueuer.domain.models import Context, Job

    from rem.agents.service import Agents
    from rem.app import Rem


@dataclass(frozen=True, slots=True)
class Schedule:
    """A kind of job, and when it is due, as a cron expression in UTC."""

    kind: str
    cron: str


def build_schedules(settings: Settings) -> Sequence[Schedule]:
    """What the settings ask for."""
    found = [Schedule("sweep", "17 * * * *"), Schedule("prune", "47 * * * *")]
    if settings.dreaming.schedule is not None:
        found.append(Schedule("dream-all", settings.dreaming.schedule))
    return found


def check_schedules(schedules: Sequence[Schedule]) -> None:
    """Refuse what is no cron expression."""
    for schedule in schedules:
        if not is_cron_expression(schedule.cron):
            raise SettingsError(
                f"The schedule of {schedule.kind}, {schedule.cron!r}, is no cron expression: write five fields, as in "
                "'0 3 * * *' for three at night."
            )


_LOOK_SECONDS = 5.0
_MOST_AT_ONCE = 10
_AFTER_INTERRUPT_SECONDS = 3.0


class Worker:
    """Does jobs until it is told to stop. A job that fails is tried again, and set aside after so many attempts.

    `handlers` are added to those of REM; `kinds` are the only ones to be done; `schedules` replace those of the
    settings.
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
        self._work = HandlerContext(rem, settings, self._jobs, agents)
        self._handlers = _chosen(HANDLERS | dict(handlers or {}), kinds)
        self._schedules = build_schedules(settings) if schedules is None else schedules
        check_schedules(self._schedules)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Take no more jobs, and end when those that run have ended; called again, interrupt them at once."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self, *, once: bool = False) -> None:
        """Do jobs until `stop`; or, `once`, until none is left."""
        _log_by_loguru()
        heartbeat = self._settings.worker.heartbeat_seconds
        driver = ReconnectingDriver(self._database, heartbeat, lambda connection: queries.put_back_unknown(connection))
        queries = WorkerQueries(driver, self._settings.worker.concurrency)
        runner = JobRunner(self._work, queries)
        tasks = [asyncio.create_task(self._queue(queries, runner).run(**self._pace(once)))]
        if not once:
            tasks.append(asyncio.create_task(self._scheduler(queries).run()))
        helpers = [asyncio.create_task(runner.watch()), asyncio.create_task(self._stop.wait())]
        try:
            await asyncio.wait([*tasks, helpers[-1]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_stopped = self._stop.is_set()
            await self._wind_down(tasks, runner, driver)
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
            await driver.close()
        _raise_first(tasks, but=DatabaseUnavailableError if was_stopped else ())

    def _queue(self, queries: WorkerQueries, runner: JobRunner) -> QueueManager:
        manager = QueueManager(queries, CHANNEL)
        manager.shutdown = self._stop
        for kind, handler in self._handlers.items():
            manager.entrypoint(kind, accepts_context=True, on_failure="hold")(_attempt(runner, handler))
        return manager

    def _scheduler(self, queries: WorkerQueries) -> SchedulerManager:
        scheduler = SchedulerManager(queries)
        scheduler.shutdown = self._stop
        for schedule in self._schedules:
            fire = functools.partial(self._fire, schedule)
            scheduler.schedule(schedule.kind, schedule.cron, accepts_context=False)(fire)
        return scheduler

    async def _fire(self, schedule: Schedule, _row: object) -> None:
        job_id = await self._jobs.enqueue(schedule.kind, {}, dedupe="scheduled")
        logger.debug("{} is due: job {}", schedule.kind, job_id)

    def _pace(self, once: bool) -> dict[str, Any]:
        worker = self._settings.worker
        at_once = max(1, min(_MOST_AT_ONCE, worker.concurrency // 2))
        return {
            "mode": QueueExecutionMode.drain if once else QueueExecutionMode.continuous,
            "dequeue_timeout": timedelta(seconds=min(_LOOK_SECONDS, worker.heartbeat_seconds / 2)),
            "batch_size": at_once,
            # pgqueuer wants twice the batch; what holds is the limit of WorkerQueries.
            "max_concurrent_tasks": max(worker.concurrency, 2 * at_once),
            "heartbeat_timeout": timedelta(seconds=worker.heartbeat_seconds),
            # Nobody reads the statistics: `rem jobs stats` counts in the log, which is trimmed.
            "log_aggregation_interval": timedelta(),
        }

    async def _wind_down(
        self, tasks: Sequence[asyncio.Task[None]], runner: JobRunner, driver: ReconnectingDriver
    ) -> None:
        """End what runs: first by itself, then by interrupting it, then whatever it does. Each in bounded time."""
        self._stop.set()
        hurry = asyncio.create_task(self._hurry.wait())
        all_ended = asyncio.ensure_future(asyncio.wait(tasks))
        patience = self._settings.worker.shutdown_seconds
        await asyncio.wait([hurry, all_ended], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not all_ended.done():
            if runner.running:
                logger.warning("{} of the jobs did not end in time and are interrupted.", runner.running)
            runner.interrupt_all()
            await asyncio.wait([all_ended], timeout=_AFTER_INTERRUPT_SECONDS)
        driver.give_up()
        for task in tasks:
            task.cancel()
        await all_ended


def _raise_first(tasks: Sequence[asyncio.Task[None]], but: type[Exception] | tuple[()]) -> None:
    """Raise what a task failed with. A worker that was to stop has done so, also without its database."""
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, but):
            raise error


def _attempt(runner: JobRunner, handler: Handler) -> Any:
    async def attempt(job: Job, context: Context) -> None:
        await runner.run(job, context, handler)

    return attempt


def _chosen(handlers: Mapping[str, Handler], kinds: Sequence[str] | None) -> Mapping[str, Handler]:
    if kinds is None:
        return handlers
    unknown = sorted(set(kinds) - set(handlers))
    if unknown:
        raise InvalidInputError(f"There is no job of kind {', '.join(unknown)}: there are {', '.join(handlers)}.")
    return {kind: handlers[kind] for kind in kinds}


class _ToLoguru(logging.Handler):
    """What pgqueuer complains of. How a job ended is not: the runner has said that."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, DeadError):
            logger.warning("{} ({})", record.getMessage(), type(error).__name__)


def _log_by_loguru() -> None:
    library = logging.getLogger("pgqueuer")
    if not any(isinstance(handler, _ToLoguru) for handler in library.handlers):
        library.addHandler(_ToLoguru(logging.WARNING))
        library.propagate = False
