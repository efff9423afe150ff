"""pgqueuer's statements, with REM's ends of a job: by the worker that holds it, and with the error in the job's row."""

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
# Constructed, not validated: pgqueuer's settings would otherwise come from PGQUEUER_* of the environment, too.
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
    """An attempt failed, and another one follows; the reason is the failure as JSON."""


class RequeueError(RetryRequested):
    """A job was interrupted through no fault of its own: no attempt is used up."""


class DeadError(Exception):
    """A job is set aside; the text is the failure as JSON."""


class WorkerQueries(Queries):
    """The statements of one worker, which knows the jobs that it holds.

    `held` has when each was last known to be ours: from then on the server waits for the next sign of life.
    """

    def __init__(self, driver: Driver, concurrency: int) -> None:
        super().__init__(
            driver,
            QueryBuilderEnvironment(PGQUEUER_SETTINGS),
            QueryQueueBuilder(PGQUEUER_SETTINGS),
            QuerySchedulerBuilder(PGQUEUER_SETTINGS),
        )
        self.held: dict[int, float] = {}
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
        """Take jobs, as many as fit. pgqueuer has no way to say that one at a time fits; so the limit is ours."""
        self._manager_id = queue_manager_id
        asked_at = _now()
        jobs = await super().dequeue(batch_size, entrypoints, queue_manager_id, self._concurrency, heartbeat_timeout)
        self.held |= {job.id: asked_at for job in jobs}
        return jobs

    async def update_heartbeat(self, job_ids: list[JobId]) -> None:
        """Say that jobs are still being done. One that is not ours any more was last ours long ago."""
        asked_at = _now()
        rows = await self.driver.fetch(query("jobs", "heartbeat"), list(set(job_ids)), self._manager_id)
        ours = {row["id"] for row in rows}
        self.held |= {job_id: asked_at if job_id in ours else -inf for job_id in job_ids if job_id in self.held}

    async def log_jobs(self, job_status: list[tuple[Job, JOB_STATUS, TracebackRecord | None]]) -> None:
        """Write down how runs ended. What was merely interrupted waits again; pgqueuer would throw it away."""
        await self.driver.execute(
            query("jobs", "finish"),
            [job.id for job, _, _ in job_status],
            [job.queue_manager_id for job, _, _ in job_status],
            [status for _, status, _ in job_status],
            [None if record is None else record.exception_message for _, _, record in job_status],
        )
        self._let_go(*(job for job, _, _ in job_status))

    async def retry_job(self, job: Job, delay: timedelta, traceback_record: TracebackRecord | None) -> None:
        """Let a job wait for its next attempt."""
        failed = traceback_record is not None and traceback_record.exception_type == FailedError.__name__
        error = (traceback_record.additional_context or {}).get("reason") if traceback_record and failed else None
        await self.driver.execute(
            query("jobs", "requeue"), job.id, job.queue_manager_id, delay, 1 if failed else 0, error
        )
        self._let_go(job)

    async def is_running(self, job_id: int) -> bool:
        """Whether somebody is doing a job."""
        (row,) = await self.driver.fetch(query("jobs", "is_running"), job_id)
        return bool(row["is_running"])

    async def put_back_unknown(self, connection: asyncpg.Connection[Any]) -> None:
        """After a lost connection: give back what was taken by a statement whose answer never came."""
        if self._manager_id is not None:
            await connection.execute(query("jobs", "requeue_unknown"), self._manager_id, list(self.held))

    def _let_go(self, *jobs: Job) -> None:
        for job in jobs:
            self.held.pop(job.id, None)


def _now() -> float:
    return asyncio.get_running_loop().time()
