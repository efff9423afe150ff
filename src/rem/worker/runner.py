"""One attempt at a job: do it, and say how it ended."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import orjson
from anyio import CancelScope
from loguru import logger

from rem.jobs.job import JobFailure
from rem.worker.failures import describe_failure, is_final, unwrap_error
from rem.worker.queries import DeadError, FailedError, RequeueError, WorkerQueries

if TYPE_CHECKING:
    from pgqueuer.domain.models import Context, Job

    from rem.worker.handlers import Handler, HandlerContext

_LONGEST_DELAY_SECONDS = 3600.0
_WAIT_FOR_EQUAL_SECONDS = 1.0
_SHARE_OF_LEASE = 0.9


class JobRunner:
    """Runs handlers, and stops those whose job this worker no longer surely holds."""

    def __init__(self, work: HandlerContext, queries: WorkerQueries) -> None:
        self._work = work
        self._settings = work.settings.worker
        self._queries = queries
        self._scopes: dict[int, CancelScope] = {}

    @property
    def running(self) -> int:
        """How many jobs are being done."""
        return len(self._scopes)

    async def run(self, job: Job, context: Context, handler: Handler) -> None:
        """One attempt. What it raises tells pgqueuer, by way of `WorkerQueries`, what becomes of the job."""
        if job.attempts >= self._settings.attempts:
            raise self._dead(job, _vanished(job.attempts))
        after = (job.headers or {}).get("after")
        if isinstance(after, int) and await self._queries.is_running(after):
            raise RequeueError(delay=timedelta(seconds=_WAIT_FOR_EQUAL_SECONDS), reason="waits for its equal")
        started = time.perf_counter()
        failure: Exception | None = None
        # The outer scope is the worker's, to interrupt; the inner one is pgqueuer's, for `rem jobs cancel`.
        with CancelScope() as scope, context.cancellation:
            self._scopes[job.id] = scope
            try:
                await handler(self._work, orjson.loads(job.payload or b"{}"))
            except Exception as error:  # noqa: BLE001  # whatever a handler raises is the job's end, not the worker's
                failure = error
            finally:
                self._scopes.pop(job.id, None)
        if scope.cancelled_caught or (failure is not None and scope.cancel_called):
            logger.info("Job {} ({}) was interrupted and waits again.", job.id, job.entrypoint)
            raise RequeueError(delay=timedelta(), reason="interrupted")
        if failure is not None:
            raise self._failed(job, failure)
        logger.info("Job {} ({}) took {:.2f} s.", job.id, job.entrypoint, time.perf_counter() - started)

    def interrupt_all(self) -> None:
        """Stop what runs; it waits again at once."""
        for scope in list(self._scopes.values()):
            scope.cancel()

    async def watch(self) -> None:
        """Stop jobs that the server has not heard of for so long that another worker may take them, until cancelled."""
        lease = self._settings.heartbeat_seconds * _SHARE_OF_LEASE
        while True:
            await asyncio.sleep(lease / 10)
            now = asyncio.get_running_loop().time()
            for job_id, scope in list(self._scopes.items()):
                if now - self._queries.held.get(job_id, now) > lease and not scope.cancel_called:
                    logger.warning("Job {} is interrupted: the database has not heard of it for too long.", job_id)
                    scope.cancel()

    def _failed(self, job: Job, error: Exception) -> FailedError | DeadError:
        failure = describe_failure(error, self._work.settings)
        attempt = job.attempts + 1
        if is_final(error) or attempt >= self._settings.attempts:
            return self._dead(job, failure)
        delay = self._delay(job.attempts)
        # Not the text, which may be the user's: it stands in the job.
        logger.warning(
            "Job {} ({}) failed in attempt {} ({}) and is tried again in {:.1f} s.",
            *(job.id, job.entrypoint, attempt, type(unwrap_error(error)).__name__, delay),
        )
        return FailedError(delay=timedelta(seconds=delay), reason=_json(failure))

    def _dead(self, job: Job, failure: JobFailure) -> DeadError:
        logger.error(
            "Job {} ({}) is set aside after attempt {} ({}): see `rem jobs show {}`.",
            *(job.id, job.entrypoint, job.attempts + 1, failure.kind, job.id),
        )
        return DeadError(_json(failure))

    def _delay(self, retries: int) -> float:
        """Doubled for each retry. Not the same for all, or those that failed together would come back together."""
        longest = min(self._settings.retry_seconds * 2.0 ** min(retries, 30), _LONGEST_DELAY_SECONDS)
        return longest * random.uniform(0.8, 1.2)  # noqa: S311  # no secret


def _vanished(times: int) -> JobFailure:
    return JobFailure("WorkerVanished", f"Its worker ended or fell silent {times} times while doing it.")


def _json(failure: JobFailure) -> str:
    return orjson.dumps(asdict(failure)).decode()
