"""The SQL statements of pgqueuer, changed so only the worker that holds a job can end it, and errors are stored."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any

from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.settings import DBSettings, Durability
from pgqueuer.domain.types import Channel

from rem.db.sql import query

if TYPE_CHECKING:
    import asyncpg
    from pgqueuer.domain.models import Job, TracebackRecord
    from pgqueuer.domain.types import JOB_STATUS, JobId, QueueEntrypoint, QueueManagerId
    from pgqueuer.ports.driver import Driver
    from pgqueuer.ports.repository import EntrypointExecutionParameter

CHANNEL = Channel("rem_jobs")
# model_construct, because validation would also read PGQUEUER_* from the environment.
PGQUEUER_SETTINGS = DBSettings.model_construct(
    prefix="",
    db_schema="rem_jobs",
    channel=CHANNEL,
    function="fn_pgqueuer_changed",
    statistics_table="pgqueuer_statistics",
    queue_status_type="pgqueuer_status",
    queue_table="pgqueuer",
    queue_table_log="pgqueuer_log",
    trigger="tg_pgqueuer_changed",
    schedules_table="pgqueuer_schedules",
    durability=Durability.durable,
    widen_id=True,
)


class FailedError(RetryRequested):
    """An attempt failed and is retried. The reason is the failure as JSON."""


class RequeueError(RetryRequested):
    """A job was interrupted without an error: it is queued again and no attempt is counted."""


class DeadError(Exception):
    """A job has failed finally. The text is the failure as JSON."""


class WorkerQueries(Queries):
    """The statements of one worker.

    `held` has the jobs that this worker holds, with the time of the last confirmed heartbeat of each. `left_to_others`
    has the jobs that it cannot do and other workers can.
    """

    def __init__(self, driver: Driver, concurrency: int) -> None:
        super().__init__(
            driver,
            QueryBuilderEnvironment(PGQUEUER_SETTINGS),
            QueryQueueBuilder(PGQUEUER_SETTINGS),
            QuerySchedulerBuilder(PGQUEUER_SETTINGS),
        )
        self.held: dict[int, float] = {}
        self.left_to_others: set[int] = set()
        self._concurrency = concurrency
        self._manager_id: QueueManagerId | None = None

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[Job]:
        """Take jobs up to the concurrency limit. It is set here because pgqueuer cannot limit a worker to one job."""
        self._manager_id = queue_manager_id
        sent_at = _now()
        jobs = await super().dequeue(batch_size, entrypoints, queue_manager_id, self._concurrency, heartbeat_timeout)
        self.held |= {job.id: sent_at for job in jobs}
        return jobs

    async def update_heartbeat(self, job_ids: list[JobId]) -> None:
        """Renew the heartbeat of jobs. A job that another worker has taken over counts as lost (-inf)."""
        sent_at = _now()
        rows = await self.driver.fetch(query("jobs", "heartbeat"), list(set(job_ids)), self._manager_id)
        held_ids = {row["id"] for row in rows}
        self.held |= {job_id: sent_at if job_id in held_ids else -inf for job_id in job_ids if job_id in self.held}

    async def log_jobs(self, job_status: list[tuple[Job, JOB_STATUS, TracebackRecord | None]]) -> None:
        """Store how runs ended. An interrupted job is queued again; pgqueuer would remove it."""
        await self.driver.execute(
            query("jobs", "finish"),
            [job.id for job, _, _ in job_status],
            [job.queue_manager_id for job, _, _ in job_status],
            [status for _, status, _ in job_status],
            [None if record is None else record.exception_message for _, _, record in job_status],
        )
        self._release(*(job for job, _, _ in job_status))

    async def retry_job(self, job: Job, delay: timedelta, traceback_record: TracebackRecord | None) -> None:
        """Queue a job again for its next attempt."""
        failed = traceback_record is not None and traceback_record.exception_type == FailedError.__name__
        error = (traceback_record.additional_context or {}).get("reason") if traceback_record and failed else None
        await self.driver.execute(
            query("jobs", "requeue"), job.id, job.queue_manager_id, delay, 1 if failed else 0, error
        )
        self._release(job)

    async def queued_work(self, entrypoints: list[QueueEntrypoint]) -> int:
        """Return how many jobs a worker that empties the queue still has to wait for: not those left to others."""
        (row,) = await self.driver.fetch(query("jobs", "count_queued"), entrypoints, list(self.left_to_others))
        return int(str(row["jobs"]))

    async def is_running(self, job_id: int) -> bool:
        """Return whether a worker is running a job."""
        (row,) = await self.driver.fetch(query("jobs", "is_running"), job_id)
        return bool(row["is_running"])

    async def requeue_unknown(self, connection: asyncpg.Connection[Any]) -> None:
        """After a reconnect, queue the jobs again that were taken by a statement whose answer was lost."""
        if self._manager_id is not None:
            await connection.execute(query("jobs", "requeue_unknown"), self._manager_id, list(self.held))

    def _release(self, *jobs: Job) -> None:
        for job in jobs:
            self.held.pop(job.id, None)


def _now() -> float:
    return asyncio.get_running_loop().time()
