"""Worker: takes jobs from the queue and runs their handlers. Any number of workers may run on any machines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
from loguru import logger

from rem.db.driver_errors import DRIVER_ERRORS, to_rem_error
from rem.db.sql import query
from rem.errors import DatabaseUnavailableError, InvalidInputError, RemError
from rem.jobs.attempt import MAX_LOSSES, End, run_attempt
from rem.jobs.handlers import HANDLERS, Handler, HandlerContext
from rem.jobs.queue import CHANNEL, Job, JobQueue, make_key
from rem.settings import Settings, next_cron_time

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.database import Database

    DriverConnection = asyncpg.Connection[asyncpg.Record]

POLL_INTERVAL_SECONDS, MIN_POLL_SECONDS = 5.0, 0.02
INTERRUPT_TIMEOUT_SECONDS = 3.0
LEASE_SHARE = 0.9
"""Share of the heartbeat timeout after which a worker interrupts its jobs, before another one takes them over."""
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 0.2, 30.0
"""Waiting times between two attempts to connect."""
FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 60.0
"""Waiting times until a failed worker of `rem serve` runs again."""


def build_schedules(settings: Settings) -> dict[str, str]:
    """Return the cron expressions, in UTC, of all kinds of jobs that are enqueued regularly."""
    schedules = {"sweep": "17 * * * *", "prune": "47 * * * *"}
    if settings.dreaming.schedule is not None:
        schedules["dream-all"] = settings.dreaming.schedule
    return schedules


class Worker:
    """Processes jobs until it is stopped.

    `handlers` are added to those of REM, `kinds` limits the worker to some kinds of jobs, and `schedules` replace those
    of the settings.
    """

    def __init__(
        self,
        rem: Rem,
        settings: Settings,
        *,
        handlers: Mapping[str, Handler] | None = None,
        kinds: Sequence[str] | None = None,
        schedules: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings.worker
        self._database = rem.database
        self._context = HandlerContext(rem, settings, JobQueue(rem.database))
        self._handlers = _select_handlers(HANDLERS | dict(handlers or {}), kinds)
        self._schedules = build_schedules(settings) if schedules is None else schedules
        self._poll_seconds = min(POLL_INTERVAL_SECONDS, self._settings.heartbeat_seconds / 2)
        self._stopping = asyncio.Event()
        self._interrupt = asyncio.Event()
        self._wake = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        """Return whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Take no more jobs, and end when the running ones have ended. A second call interrupts them at once."""
        if self.is_stopping:
            self._interrupt.set()
        self._stopping.set()
        self._wake.set()

    async def wait_for_stop(self) -> None:
        """Wait until `stop` is called."""
        await self._stopping.wait()

    async def run(self, *, once: bool = False) -> None:
        """Process jobs until `stop` is called; with `once`, until the queue is empty."""
        self._reset()
        helpers = [asyncio.create_task(self._end_in_time())]
        try:
            await self._fetch("register", self._id)
            helpers.append(asyncio.create_task(self._keep_alive()))
            if not once:
                await self._plan()
            await self._work(once)
        except DatabaseUnavailableError:
            if not self.is_stopping:
                raise
        finally:
            self._connection.give_up()
            for task in [*helpers, *self._running]:
                task.cancel()
            await asyncio.wait([*helpers, *self._running], timeout=INTERRUPT_TIMEOUT_SECONDS)
            with suppress(RemError, *DRIVER_ERRORS):
                await self._store_ends()
                await self._fetch("leave", self._id)
            await self._connection.close()

    def _reset(self) -> None:
        heartbeat = self._settings.heartbeat_seconds
        self._id = uuid4()
        self._connection = WorkerConnection(
            self._database, heartbeat, CHANNEL, self._handle_notice, self._requeue_unknown
        )
        self._running: dict[asyncio.Task[End], Job] = {}
        self._ended: list[tuple[Job, End]] = []
        self._left_to_others: set[int] = set()
        self._silences: dict[UUID, tuple[datetime, float]] = {}
        self._looked_at = -inf
        self._is_abandoned = False

    async def _fetch(self, name: str, *values: object) -> list[asyncpg.Record]:
        return await self._connection.fetch(query("jobs/jobs", name), *values)

    async def _work(self, once: bool) -> None:
        while not self.is_stopping or (self._running and not self._is_abandoned):
            self._wake.clear()
            await self._store_ends()
            seconds = self._poll_seconds
            if not self.is_stopping:
                await self._look_around()
                await self._take()
                if once and not self._running and not await self._count_queued():
                    return
                if len(self._running) < self._settings.concurrency:
                    ((delay,),) = await self._fetch("seconds_to_next")
                    seconds = seconds if delay is None else max(MIN_POLL_SECONDS, min(seconds, delay))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)

    async def _take(self) -> None:
        """Start jobs in the free slots. The last slot is left to an owner that has none."""
        concurrency = self._settings.concurrency
        slots = concurrency - len(self._running)
        if slots > 0:
            limits = slots, max(1, concurrency - 1)
            for row in await self._fetch("take", self._id, list(self._handlers), *limits):
                job = Job.from_row(dict(row))
                task = asyncio.create_task(run_attempt(self._context, job, self._handlers[job.kind]))
                self._running[task] = job
                task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[End]) -> None:
        job = self._running.pop(task)
        if task.cancelled():
            logger.info("Job {} ({}) was interrupted and is queued again.", job.id, job.kind)
        end = End("queued") if task.cancelled() else task.result()
        if end.is_for_others:
            self._left_to_others.add(job.id)
        self._ended.append((job, end))
        self._wake.set()

    async def _store_ends(self) -> None:
        ended = list(self._ended)
        if ended:
            rows = [
                (job.id, job.worker, end.outcome, end.delay_seconds, end.attempts, end.losses, end.error)
                for job, end in ended
            ]
            await self._fetch("end", *(list(column) for column in zip(*rows, strict=True)))
            del self._ended[: len(ended)]

    async def _count_queued(self) -> int:
        """Return how many jobs a worker that empties the queue still has to wait for: not those left to others."""
        ((count,),) = await self._fetch("count_queued", list(self._handlers), list(self._left_to_others))
        return int(count)

    async def _plan(self) -> None:
        await self._fetch("unplan", list(self._schedules))
        for kind, cron in self._schedules.items():
            await self._fetch("plan", kind, cron, next_cron_time(cron, datetime.now(UTC)))

    async def _look_around(self) -> None:
        """Enqueue scheduled jobs that are due, and take jobs away from lost workers. Do so once in a while."""
        now = asyncio.get_running_loop().time()
        gap = now - self._looked_at
        if gap < 0.9 * self._poll_seconds:
            return
        self._looked_at = now
        for kind, next_at, at in await self._fetch("due_schedules", list(self._schedules)):
            key = make_key(kind, None, None, "scheduled")
            await self._fetch("fire", kind, next_at, key, next_cron_time(self._schedules[kind], at))
        # Only time in which this worker could read counts: during an outage of the database nobody can give heartbeats.
        await self._find_lost_workers(min(gap, 2 * self._poll_seconds))

    async def _find_lost_workers(self, seconds: float) -> None:
        """Declare workers lost that have been silent for too long, by the clock of this process alone."""
        silences: dict[UUID, tuple[datetime, float]] = {}
        for worker, beat_at in await self._fetch("other_workers", self._id):
            seen_at, silence = self._silences.get(worker, (None, 0.0))
            silences[worker] = beat_at, silence + seconds if beat_at == seen_at else 0.0
            if silences[worker][1] > self._settings.heartbeat_seconds:
                limits = self._settings.attempts, MAX_LOSSES
                jobs = await self._fetch("lose_worker", worker, beat_at, *limits)
                logger.warning("Worker {} is lost while running {} jobs.", worker, len(jobs))
        self._silences = silences

    async def _keep_alive(self) -> None:
        """Give heartbeats, and interrupt jobs that this worker no longer holds. Run until cancelled."""
        clock = asyncio.get_running_loop().time
        heartbeat = self._settings.heartbeat_seconds
        beaten_at = clock()
        while True:
            sent_at, running = clock(), dict(self._running)
            try:
                async with asyncio.timeout_at(beaten_at + heartbeat * LEASE_SHARE):
                    rows = await self._fetch("beat", self._id)
                    if not rows:
                        self._id = uuid4()
                        await self._fetch("register", self._id)
                beaten_at = sent_at
                held = set(rows[0]["held"]) if rows else set()
                self._interrupt_jobs([task for task, job in running.items() if job.id not in held])
            except TimeoutError:
                logger.warning("No heartbeat has reached the database for too long: all jobs are interrupted.")
                self._interrupt_jobs(list(self._running))
                beaten_at = clock()
            except (RemError, *DRIVER_ERRORS) as error:
                logger.warning("A heartbeat failed: {}", type(error).__name__)
            await asyncio.sleep(heartbeat / 4)

    async def _end_in_time(self) -> None:
        """After `stop`, wait for the running jobs, then interrupt them, then give up. Each step has a time limit."""
        await self._stopping.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._interrupt.wait(), self._settings.shutdown_seconds)
        for _ in range(2):
            if self._running:
                logger.warning("{} of the jobs did not end in time and are interrupted.", len(self._running))
                self._interrupt_jobs(list(self._running))
                await asyncio.sleep(INTERRUPT_TIMEOUT_SECONDS)
            self._connection.give_up()
        self._is_abandoned = True
        self._wake.set()

    def _interrupt_jobs(self, tasks: Sequence[asyncio.Task[End]]) -> None:
        for task in tasks:
            task.cancel()

    def _handle_notice(self, text: str) -> None:
        """Look for jobs, or stop the cancelled one whose id this is."""
        self._wake.set()
        self._interrupt_jobs([task for task, job in self._running.items() if str(job.id) == text])

    async def _requeue_unknown(self, connection: DriverConnection) -> None:
        """After a reconnect, queue the jobs again that were taken by a statement whose answer was lost."""
        known = [job.id for job in [*self._running.values(), *(job for job, _ in self._ended)]]
        await connection.execute(query("jobs/jobs", "requeue_unknown"), self._id, known)


def _select_handlers(handlers: Mapping[str, Handler], kinds: Sequence[str] | None) -> Mapping[str, Handler]:
    if kinds is None:
        return handlers
    unknown = sorted(set(kinds) - set(handlers))
    if unknown:
        raise InvalidInputError(f"Unknown kinds of jobs: {', '.join(unknown)}. Known kinds: {', '.join(handlers)}.")
    return {kind: handlers[kind] for kind in kinds}


class WorkerConnection:
    """One connection that listens on a channel, and is replaced, with growing delays, when it is lost.

    A statement that was interrupted is run again, so every statement must tolerate that. `on_reconnect` is called with
    every new connection except the first, before any other statement.
    """

    def __init__(
        self,
        database: Database,
        timeout_seconds: float,
        channel: str,
        on_notify: Callable[[str], None],
        on_reconnect: Callable[[DriverConnection], Awaitable[None]],
    ) -> None:
        self._database = database
        self._timeout_seconds = timeout_seconds
        self._channel = channel
        self._on_notify = on_notify
        self._on_reconnect = on_reconnect
        self._connection: DriverConnection | None = None
        self._was_connected = False
        self._lock = asyncio.Lock()
        self._is_closing = asyncio.Event()

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        """Run a statement, and return its rows."""
        async with self._lock:
            while True:
                connection = self._connection or await self._connect()
                try:
                    async with asyncio.timeout(self._timeout_seconds):
                        return await connection.fetch(query, *args)
                except DRIVER_ERRORS as error:
                    if not _is_connection_loss(error):
                        raise
                    self._drop(error)

    def give_up(self) -> None:
        """Stop reconnecting. Statements without a connection fail."""
        self._is_closing.set()

    async def close(self) -> None:
        """Close the connection."""
        self.give_up()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=2)
            except DRIVER_ERRORS:
                connection.terminate()

    async def _connect(self) -> DriverConnection:
        """Return a new connection that listens. Retry until the server answers or `give_up` is called."""
        delay = FIRST_DELAY_SECONDS
        while not self._is_closing.is_set():
            try:
                connection = await self._database.connect_as({})
                self._connection = connection
                async with asyncio.timeout(self._timeout_seconds):
                    await connection.add_listener(self._channel, self._relay)
                    if self._was_connected:
                        await self._on_reconnect(connection)
                        logger.info("The worker has reconnected to the database.")
                self._was_connected = True
                return connection
            except (RemError, *DRIVER_ERRORS) as error:
                if not _is_connection_loss(error):
                    raise
                self._drop(error)
            with suppress(TimeoutError):
                seconds = delay * random.uniform(0.8, 1.2)  # noqa: S311  # no secret
                await asyncio.wait_for(self._is_closing.wait(), seconds)
            delay = min(delay * 2, MAX_DELAY_SECONDS)
        raise DatabaseUnavailableError("The worker is stopping, and the database does not answer.")

    def _relay(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._on_notify(str(payload))

    def _drop(self, error: Exception) -> None:
        logger.warning("The worker has lost its connection to the database ({}) and reconnects.", type(error).__name__)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def _is_connection_loss(error: Any) -> bool:
    """Return whether a new connection may help. A read-only server may have become a replica of a new primary."""
    if isinstance(error, DatabaseUnavailableError | asyncpg.ReadOnlySQLTransactionError):
        return True
    return not isinstance(error, RemError) and isinstance(to_rem_error(error), DatabaseUnavailableError)


@asynccontextmanager
async def run_in_process_worker(rem: Rem | None, settings: Settings) -> AsyncIterator[None]:
    """Run a worker during the block, unless WORKER__IN_PROCESS=false or the database is a replica."""
    if rem is None or not settings.worker.in_process or rem.database.server_info.is_replica:
        yield
        return
    worker = Worker(rem, settings)
    task = asyncio.create_task(_keep_running(worker))
    try:
        yield
    finally:
        # It ends in bounded time. Unfinished jobs are queued again.
        worker.stop()
        await asyncio.wait([task])


async def _keep_running(worker: Worker) -> None:
    """Run the worker until it is stopped. Log each failure, and run it again with growing delays."""
    delay = FIRST_RESTART_SECONDS
    while not worker.is_stopping:
        started_at = asyncio.get_running_loop().time()
        try:
            await worker.run()
        except Exception:  # noqa: BLE001  # jobs must not wait for a restart of the server
            logger.exception("The worker failed and restarts in {:.0f} s.", delay)
        if asyncio.get_running_loop().time() - started_at > MAX_RESTART_SECONDS:
            delay = FIRST_RESTART_SECONDS
        with suppress(TimeoutError):
            await asyncio.wait_for(worker.wait_for_stop(), delay)
        delay = min(delay * 2, MAX_RESTART_SECONDS)
